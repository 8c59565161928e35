package org.apache.spark.sql.execution.penstock

import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.{FieldVector, VectorLoader, VectorSchemaRoot}
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.{Partition, SparkContext, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.analysis.MultiInstanceRelation
import org.apache.spark.sql.catalyst.expressions.{Attribute, AttributeReference}
import org.apache.spark.sql.catalyst.plans.logical.{LeafNode, LogicalPlan, Statistics}
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, SinglePartition, UnknownPartitioning}
import org.apache.spark.sql.execution.{LeafExecNode, SparkPlan, SparkStrategy}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}

/** Where an input's batches come from when the plan runs. */
sealed trait BatchSource extends Serializable {
  def rdd(context: SparkContext): RDD[ColumnarBatch]
  def partitioning: Partitioning
}

/** Direct mode: the batches of the run under way, in the one partition that there is. */
final case class RunSource(slot: Int) extends BatchSource {
  override def rdd(context: SparkContext): RDD[ColumnarBatch] = new RunRDD(context, slot)
  override def partitioning: Partitioning = SinglePartition
}

/** Job mode: batches as IPC messages, spread over the cluster's tasks. */
final case class MessageSource(schemaJson: String, messages: Seq[Array[Byte]]) extends BatchSource {
  override def rdd(context: SparkContext): RDD[ColumnarBatch] = {
    val json = schemaJson
    context
      .parallelize(messages, Math.max(1, Math.min(messages.length, context.defaultParallelism)))
      .mapPartitions(Batches.decode(json, _))
  }
  override def partitioning: Partitioning = UnknownPartitioning(0)
  override def toString: String = s"MessageSource(${messages.length})"
}

/** Stands for the rows of a plan that is still to be put there. */
case object PlanSource extends BatchSource {
  override def rdd(context: SparkContext): RDD[ColumnarBatch] = throw new IllegalStateException("no plan was put here")
  override def partitioning: Partitioning = SinglePartition
}

/** One named input of a fragment in a logical plan. */
final case class ArrowInput(output: Seq[Attribute], source: BatchSource) extends LeafNode with MultiInstanceRelation {
  override def newInstance(): LogicalPlan = copy(output = output.map(_.newInstance()))
  override def computeStats(): Statistics = Statistics(sizeInBytes = conf.defaultSizeInBytes)
  override def maxRows: Option[Long] = None
}

object ArrowInput {
  def apply(schema: Schema, source: BatchSource): ArrowInput = {
    val columns = ArrowUtils.fromArrowSchema(schema)
    ArrowInput(columns.map(f => AttributeReference(f.name, f.dataType, f.nullable)()), source)
  }
}

/** Reads whole batches: Spark's generated code then takes each column's values from Arrow memory itself. */
final case class ArrowScanExec(output: Seq[Attribute], source: BatchSource) extends LeafExecNode with ArrowPlan {
  override def outputPartitioning: Partitioning = source.partitioning
  override protected def doExecuteColumnar(): RDD[ColumnarBatch] = source.rdd(sparkContext)
}

object ArrowStrategy extends SparkStrategy {
  override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
    case ArrowInput(output, source) => ArrowScanExec(output, source) :: Nil
    case _ => Nil
  }
}

final class RunRDD(context: SparkContext, slot: Int) extends RDD[ColumnarBatch](context, Nil) {
  override protected def getPartitions: Array[Partition] = Array(new Partition { override def index: Int = 0 })
  override def compute(split: Partition, context: TaskContext): Iterator[ColumnarBatch] = {
    val run = context.asInstanceOf[RunContext]
    Batches.load(run.inputs.schemas(slot), run.inputs.batches(slot), run.allocator, context)
  }
}

object Batches {

  /** Loads each batch into vectors of its own: whoever reads ahead still has those before. The batches stay their
   * owner's: Spark's strings and rows may point into them, so they are let go only when the run is over. */
  def load(
      schema: Schema,
      batches: Iterator[ArrowRecordBatch],
      allocator: BufferAllocator,
      context: TaskContext): Iterator[ColumnarBatch] =
    batches.map { batch =>
      context.killTaskIfInterrupted()
      val root = VectorSchemaRoot.create(schema, allocator)
      context.addTaskCompletionListener[Unit](_ => root.close())
      new VectorLoader(root).load(batch)
      of(root.getFieldVectors.asScala.map(column), batch.getLength)
    }

  /** Spark would close the vectors after each batch; they are closed when the run is over. */
  def of(columns: Iterable[ColumnVector], rows: Int): ColumnarBatch =
    new ColumnarBatch(columns.toArray, rows) { override def closeIfFreeable(): Unit = () }

  def column(vector: FieldVector): ArrowColumnVector =
    if (FlatColumn.holds(ArrowUtils.fromArrowField(vector.getField))) new FlatColumn(vector) else new ArrowColumnVector(vector)

  /** The vector that a column reads. */
  def vector(column: ColumnVector): FieldVector =
    column.asInstanceOf[ArrowColumnVector].getValueVector.asInstanceOf[FieldVector]

  def decode(schemaJson: String, messages: Iterator[Array[Byte]]): Iterator[ColumnarBatch] = {
    val context = TaskContext.get()
    val allocator = ArrowUtils.rootAllocator.newChildAllocator("penstock job input", 0, Long.MaxValue)
    context.addTaskCompletionListener[Unit](_ => allocator.close()) // listeners run in reverse: this one last
    val batches = messages.map { message =>
      val buffer = allocator.buffer(message.length)
      buffer.writeBytes(message)
      val batch = try Wire.toBatch(buffer, message.length) finally buffer.close()
      context.addTaskCompletionListener[Unit](_ => batch.close())
      batch
    }
    load(Schema.fromJSON(schemaJson), batches, allocator, context)
  }
}
