package org.apache.spark.sql.execution.python.penstock // what talks to Python workers is private to Spark's `python`

import java.util.ArrayDeque

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.FieldVector
import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.{JobArtifactSet, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeSet, PythonUDF}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.execution.{SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.penstock.{ArrowPlan, Batches, RunContext}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, ColumnarArrowPythonWithNamedArgumentRunner, PythonSQLMetrics}
import org.apache.spark.sql.execution.python.EvalPythonExec.ArgumentMetadata
import org.apache.spark.sql.types.{StructField, StructType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}

/** Calls Python functions of whole columns: each batch goes to the worker as the Arrow memory that it is, and comes back
 * with the results beside its own columns. Spark's operator puts every row into a queue and makes two rows of it. */
final case class PythonColumnsExec(udfs: Seq[PythonUDF], results: Seq[Attribute], child: SparkPlan, kind: Int)
    extends UnaryExecNode with ArrowPlan with PythonSQLMetrics {
  override def output: Seq[Attribute] = child.output ++ results
  override def producedAttributes: AttributeSet = AttributeSet(results)
  override def outputPartitioning: Partitioning = child.outputPartitioning

  @transient private lazy val fields = ArrowUtils.toArrowSchema(
    StructType(results.map(result => StructField(result.name, result.dataType))), conf.sessionLocalTimeZone, true, false)
    .getFields.asScala.toSeq

  // They choose the worker, which is to be the one of Spark's own operators.
  private val artifacts = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)
  private val logged = Option.when(conf.pythonWorkerLoggingEnabled)(session.sessionUUID)

  override protected def doExecuteColumnar(): RDD[ColumnarBatch] =
    child.executeColumnar().mapPartitionsInternal(called(_, TaskContext.get().asInstanceOf[RunContext]))

  private def called(batches: Iterator[ColumnarBatch], run: RunContext): Iterator[ColumnarBatch] = {
    val waiting = new ArrayDeque[ColumnarBatch] // sent, and not yet answered
    val sent = batches.map { batch =>
      waiting.add(batch)
      batch
    }
    newRunner().compute(sent, run.partitionId, run).map { answer =>
      val batch = waiting.remove()
      val found = PythonColumnsExec.columns(answer).map(PythonColumnsExec.kept(_, run))
      refuseUnlike(found.map(Batches.vector(_).getField), answer.numRows, batch.numRows)
      Batches.of(PythonColumnsExec.columns(batch) ++ found, batch.numRows)
    }
  }

  private def newRunner(): ColumnarArrowPythonWithNamedArgumentRunner = {
    val (functions, arguments) = udfs.map { udf =>
      val (chain, arguments) = PythonColumnsExec.chain(udf)
      ((ChainedPythonFunctions(chain), udf.resultId.id), arguments)
    }.unzip
    val places = arguments.map(_.map(argument => child.output.indexWhere(_.exprId == argument.exprId)))
    val columns = places.flatten.distinct
    val schema = StructType(columns.zipWithIndex.map { case (place, i) => StructField(s"_$i", child.output(place).dataType) })
    new ColumnarArrowPythonWithNamedArgumentRunner(
      functions,
      kind,
      places.map(_.map(place => ArgumentMetadata(columns.indexOf(place), None)).toArray).toArray,
      schema,
      conf.sessionLocalTimeZone,
      largeVarTypes = false,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      pythonMetrics,
      artifacts,
      logged,
      columns.toArray)
  }

  /** Values are read at their addresses, and handed on as they are: what comes must be what is expected. */
  private def refuseUnlike(found: Seq[Field], rows: Int, expectedRows: Int): Unit = {
    val isExpected = found.length == fields.length && found.zip(fields).forall { case (one, other) =>
      ArrowUtils.isCompatibleWithDeclaredField(one, other)
    }
    if (!isExpected || rows != expectedRows) throw new IllegalStateException(
      s"Python functions gave $rows rows of ${found.mkString(", ")}, not $expectedRows of ${fields.mkString(", ")}")
  }

  override protected def withNewChildInternal(changed: SparkPlan): PythonColumnsExec = copy(child = changed)
}

object PythonColumnsExec {

  /** The functions of f(g(x)), the innermost first, and what that takes. */
  private def chain(udf: PythonUDF): (Seq[PythonFunction], Seq[Attribute]) = udf.children match {
    case Seq(inner: PythonUDF) =>
      val (functions, arguments) = chain(inner)
      (functions :+ udf.func, arguments)
    case arguments => (Seq(udf.func), arguments.map { case column: Attribute => column })
  }

  private def columns(batch: ColumnarBatch): Seq[ColumnVector] = (0 until batch.numCols).map(batch.column)

  /** A column in a vector of its own: the next answer is read into the one that it came in. */
  private def kept(column: ColumnVector, run: RunContext): ColumnVector = {
    val moved = Batches.vector(column).getTransferPair(run.allocator)
    moved.transfer()
    val vector = moved.getTo.asInstanceOf[FieldVector]
    run.addTaskCompletionListener[Unit](_ => vector.close())
    Batches.column(vector)
  }
}
