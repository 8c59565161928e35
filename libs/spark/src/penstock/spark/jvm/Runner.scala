package org.apache.spark.sql.execution.penstock

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels
import java.util.Properties
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.VectorUnloader
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.{ArrowRecordBatch, MessageSerializer}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.{Partition, SparkEnv, TaskContext, TaskContextImpl}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A planned fragment: runs again and again on new input. */
trait Runner extends AutoCloseable {
  def query: Query

  /** The columns of its inputs. */
  def received: Seq[Schema]

  /** The result's columns. */
  def schema: Schema
  def run(inputs: Inputs, wire: Wire): Unit

  /** Lets go of what the run wrote, once it is sent or dropped. */
  def release(): Unit

  /** Ends a run that is under way, from another thread. */
  def interrupt(): Unit
}

/** The batches of one run, read from the wire as the plan asks for them and kept until the run is over; and the event
 * time of their partition. */
final class Inputs(
    val schemas: Seq[Schema],
    first: Header,
    wire: Wire,
    allocator: BufferAllocator,
    val eventTime: EventTime)
    extends AutoCloseable {
  private val received = Array.fill(schemas.length)(ArrayBuffer.empty[ArrowRecordBatch])
  private var header = first
  private var complete = first.kind == Kind.Run

  /** An input's batches from the first on; it may be read more than once, and in any order with the others. */
  def batches(slot: Int): Iterator[ArrowRecordBatch] = new Iterator[ArrowRecordBatch] {
    private var position = 0
    override def hasNext: Boolean = {
      while (position == received(slot).length && !complete) receive()
      position < received(slot).length
    }
    override def next(): ArrowRecordBatch = {
      position += 1
      received(slot)(position - 1)
    }
  }

  private def receive(): Unit = {
    val batch = wire.readBatch(header.length, allocator)
    received(header.slot) += batch
    advance()
  }

  private def advance(): Unit = {
    header = wire.readHeader()
    complete = header.kind == Kind.Run
  }

  /** Reads past what the plan did not ask for, so that the next frame is the next run's. */
  def drain(): Unit = while (!complete) {
    wire.skip(header.length)
    advance()
  }

  override def close(): Unit = received.foreach { batches =>
    batches.foreach(_.close())
    batches.clear()
  }
}

/** What a direct run has instead of a Spark task. */
final class RunContext(
    run: Long,
    val startedAtMicros: Long,
    val inputs: Inputs,
    val allocator: BufferAllocator,
    memory: TaskMemoryManager,
    properties: Properties,
    metrics: TaskMetrics)
    extends TaskContextImpl(0, 0, 0, run, 0, 1, memory, properties, SparkEnv.get.metricsSystem, metrics) {
  /** Seeds the run's random functions. */
  def number: Int = run.toInt
}

/** Runs the plan's code-generated iterator on the calling thread: no job and no task. */
final class DirectRunner(session: SparkSession, override val query: Query, plan: SharedPlan, allocator: BufferAllocator)
    extends Runner {
  override val received: Seq[Schema] = plan.answers.received
  override val schema: Schema = plan.answers.told
  private val output = new Output(plan.answers.written, query.partitions, allocator)
  private val write = plan.copied() match {
    case Executable(rdd, partitions, true) =>
      writing(rdd.asInstanceOf[RDD[ColumnarBatch]], partitions, output.writeColumns)
    case Executable(rdd, partitions, false) => writing(rdd.asInstanceOf[RDD[InternalRow]], partitions, output.write)
  }
  private val metrics = TaskMetrics.empty
  @volatile private var current: Option[RunContext] = None

  // Expressions ask for the session's settings through the task's properties.
  private val properties = new Properties
  session.sessionState.conf.getAllConfs.foreach { case (key, value) => properties.setProperty(key, value) }

  private def writing[T](
      rdd: RDD[T],
      partitions: Array[Partition],
      write: (Iterator[T], BatchSink) => Unit): (TaskContext, BatchSink) => Unit =
    (context, sink) => partitions.foreach(partition => write(rdd.iterator(partition, context), sink))

  override def run(inputs: Inputs, wire: Wire): Unit = {
    val number = DirectRunner.runs.incrementAndGet()
    val memory = new TaskMemoryManager(SparkEnv.get.memoryManager, number)
    val context = new RunContext(number, DirectRunner.nowMicros(), inputs, allocator, memory, properties, metrics)
    val sink: BatchSink = (partition, batch, last) => {
      context.killTaskIfInterrupted()
      wire.queueBatch(partition, batch)
      if (!last) wire.flush() // the last goes with the frame that ends the run
    }
    current = Some(context)
    TaskContext.setTaskContext(context)
    var failure: Option[Throwable] = None
    try {
      write(context, sink)
      output.finish(sink)
    } catch {
      case error: Throwable =>
        failure = Some(error)
        throw error
    } finally {
      current = None
      try context.markTaskCompleted(failure)
      finally {
        TaskContext.unset()
        memory.cleanUpAllAllocatedMemory()
      }
    }
  }

  override def release(): Unit = output.reset()

  override def interrupt(): Unit = current.foreach(_.markInterrupted("the caller is gone"))

  override def close(): Unit = output.close()
}

object DirectRunner {
  private val runs = new AtomicLong(1L << 40) // far from the ids of the session's own tasks

  private def nowMicros(): Long = {
    val now = java.time.Instant.now()
    now.getEpochSecond * 1000000 + now.getNano / 1000
  }
}

/** Runs the fragment as a Spark job on the session's master, planned anew for each run's data. */
final class JobRunner(session: SparkSession, override val query: Query) extends Runner {
  private val planner = new Planner(session)
  override val received: Seq[Schema] = query.inputs.map(_._2)
  override val schema: Schema = {
    val analysed = planner.analyse(query, _ => MessageSource("", Nil))
    // Thrown away: but what cannot be planned is told now, not at the first run.
    session.withActive(session.sessionState.executePlan(planner.project(analysed, query)).executedPlan)
    planner.schemaOf(analysed.output)
  }
  private val tag = s"penstock-fragment-${JobRunner.count.incrementAndGet()}"

  override def run(inputs: Inputs, wire: Wire): Unit = {
    val sources = query.inputs.zipWithIndex.map { case ((_, schema), slot) =>
      MessageSource(schema.toJson, inputs.batches(slot).map(JobRunner.message).toSeq)
    }
    val plan = planner.project(planner.analyse(query, sources), query)
    session.withActive {
      val execution = session.sessionState.executePlan(plan)
      session.sparkContext.addJobTag(tag)
      try SQLExecution.withNewExecutionId(execution) {
        val (schemaJson, partitions) = (schema.toJson, query.partitions)
        execution.executedPlan.execute()
          .mapPartitions(JobRunner.encode(schemaJson, partitions, _))
          .collect()
          .foreach { case (partition, message) => wire.writeMessage(partition, message) }
      } finally session.sparkContext.removeJobTag(tag)
    }
  }

  override def release(): Unit = ()

  override def interrupt(): Unit = session.sparkContext.cancelJobsWithTag(tag)

  override def close(): Unit = ()
}

object JobRunner {
  private val count = new AtomicLong

  private def message(batch: ArrowRecordBatch): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    MessageSerializer.serialize(new WriteChannel(Channels.newChannel(bytes)), batch)
    bytes.toByteArray
  }

  /** On an executor: rows to (partition, IPC message). */
  private def encode(schemaJson: String, partitions: Int, rows: Iterator[InternalRow]): Iterator[(Int, Array[Byte])] = {
    val allocator = ArrowUtils.rootAllocator.newChildAllocator("penstock job output", 0, Long.MaxValue)
    val output = new Output(Schema.fromJSON(schemaJson), partitions, allocator)
    TaskContext.get().addTaskCompletionListener[Unit] { _ =>
      output.close()
      allocator.close()
    }
    val messages = mutable.ArrayBuffer.empty[(Int, Array[Byte])]
    val sink: BatchSink = (partition: Int, unloader: VectorUnloader, _: Boolean) => {
      val batch = unloader.getRecordBatch
      try messages += partition -> message(batch)
      finally batch.close()
    }
    output.write(rows, sink)
    output.finish(sink)
    messages.iterator
  }
}
