package org.apache.spark.sql.execution.penstock

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Expression, NamedExpression, PythonUDF}
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{ColumnarToRowExec, InputAdapter, ProjectExec, SparkPlan, UnaryExecNode, WholeStageCodegenExec}
import org.apache.spark.sql.execution.python.ArrowEvalPythonExec
import org.apache.spark.sql.execution.python.penstock.PythonColumnsExec
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Gives whole columns of Arrow memory, each batch in vectors of its own that stay until the run is over. */
trait ArrowPlan extends SparkPlan {
  final override def supportsColumnar: Boolean = true
  final override def vectorTypes: Option[Seq[String]] =
    Some(output.map(column => FlatColumn.classOfColumn(column.dataType).getName))
  final override protected def doExecute(): RDD[InternalRow] = throw new UnsupportedOperationException("columnar only")
}

/** Chooses columns, and names them. */
final case class SelectColumnsExec(columns: Seq[NamedExpression], child: SparkPlan) extends UnaryExecNode with ArrowPlan {
  override def output: Seq[Attribute] = columns.map(_.toAttribute)
  override def outputPartitioning: Partitioning = child.outputPartitioning

  /** Where each column is in the child's. */
  def places: Seq[Int] = columns.flatMap(_.references).map(column => child.output.indexWhere(_.exprId == column.exprId))

  override protected def doExecuteColumnar(): RDD[ColumnarBatch] = {
    val places = this.places
    child.executeColumnar().mapPartitionsInternal(_.map(batch => Batches.of(places.map(batch.column), batch.numRows)))
  }

  override protected def withNewChildInternal(changed: SparkPlan): SelectColumnsExec = copy(child = changed)
}

/** Makes no rows of columns before somebody needs rows: neither where columns are only chosen, nor for Python functions
 * of columns. Functions of anything else, or above what gives rows, stay with Spark's own operator. */
object KeepColumns extends Rule[SparkPlan] {
  private val batchwise = Set(
    PythonEvalType.SQL_SCALAR_ARROW_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF, PythonEvalType.SQL_SCALAR_PANDAS_UDF)

  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case ProjectExec(columns, child: ArrowPlan) if columns.nonEmpty && columns.forall(isColumn) =>
      SelectColumnsExec(columns, child)
    case ArrowEvalPythonExec(udfs, results, child: ArrowPlan, kind)
        if batchwise(kind) && udfs.forall(isOfColumns) && !conf.arrowUseLargeVarTypes =>
      PythonColumnsExec(udfs, results, child, kind)
  }

  /** The plan without its last step where that only makes rows, of which the caller would make columns again. */
  def atTheEnd(plan: SparkPlan): SparkPlan = plan match {
    case WholeStageCodegenExec(rows: ColumnarToRowExec) => atTheEnd(rows)
    case ColumnarToRowExec(columns: ArrowPlan) => columns
    case ColumnarToRowExec(input: InputAdapter) if input.child.isInstanceOf[ArrowPlan] => input.child
    case rows => rows
  }

  private def isColumn(expression: Expression): Boolean = expression match {
    case Alias(_: Attribute, _) | _: Attribute => true
    case _ => false
  }

  private def isOfColumns(udf: PythonUDF): Boolean = udf.children match {
    case Seq(inner: PythonUDF) => isOfColumns(inner)
    case arguments => arguments.nonEmpty && arguments.forall(_.isInstanceOf[Attribute])
  }
}
