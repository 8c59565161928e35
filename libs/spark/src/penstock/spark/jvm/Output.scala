package org.apache.spark.sql.execution.penstock

import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.{BufferAllocator, OutOfMemoryException}
import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Takes a finished batch. Its memory is reused as soon as this returns, unless it is its partition's last: that stays
 * as it is until the output is reset. */
trait BatchSink { def accept(partition: Int, batch: VectorUnloader, last: Boolean): Unit }

/** Writes rows into one set of Arrow vectors per partition, handing each set on when it is full. The vectors keep
 * their memory from run to run, within `ChunkRows` rows or about `ChunkBytes` bytes a partition. */
final class Output(schema: Schema, partitions: Int, allocator: BufferAllocator) extends AutoCloseable {
  private var written = 0L // bytes, in this run
  private val parts = new Array[Part](partitions)
  private val partitionColumn = schema.getFields.size

  def write(rows: Iterator[InternalRow], sink: BatchSink): Unit =
    if (partitions == 1) {
      val part = partAt(0)
      while (rows.hasNext) part.write(rows.next(), sink)
    } else {
      while (rows.hasNext) {
        val row = rows.next()
        partAt(row.getInt(partitionColumn)).write(row, sink)
      }
    }

  /** Hands on whole columns of the one partition as they are: Arrow has them as the schema says. */
  def writeColumns(batches: Iterator[ColumnarBatch], sink: BatchSink): Unit =
    while (batches.hasNext) {
      val batch = batches.next()
      val vectors = (0 until batch.numCols).map(place => Batches.vector(batch.column(place)))
      count(vectors.iterator.map(_.getBufferSize.toLong).sum)
      val root = new VectorSchemaRoot(schema.getFields, vectors.asJava, batch.numRows)
      sink.accept(0, new VectorUnloader(root), last = !batches.hasNext)
    }

  /** Hands on what is left. */
  def finish(sink: BatchSink): Unit = parts.foreach(part => if (part != null) part.flush(sink, last = true))

  /** Forgets the run's rows. */
  def reset(): Unit = {
    written = 0
    parts.foreach(part => if (part != null) part.reset())
  }

  /** The caller holds a whole result, so it may be no larger than what the engine may hold. */
  private def count(bytes: Long): Unit = {
    written += bytes
    if (written > allocator.getLimit) throw new OutOfMemoryException(
      s"the result of one run is larger than ${allocator.getLimit >> 20} MiB")
  }

  override def close(): Unit = parts.foreach(part => if (part != null) part.close())

  private def partAt(index: Int): Part = {
    if (parts(index) == null) parts(index) = new Part(index)
    parts(index)
  }

  private final class Part(index: Int) {
    private val root = VectorSchemaRoot.create(schema, allocator)
    private val writer = ArrowWriter.create(root)
    private val unloader = new VectorUnloader(root)
    private var rows = 0
    private var bytes = 0L

    def write(row: InternalRow, sink: BatchSink): Unit = {
      writer.write(row)
      rows += 1
      row match {
        case unsafe: UnsafeRow => bytes += unsafe.getSizeInBytes
        case _ =>
      }
      if (rows == Output.ChunkRows || bytes >= Output.ChunkBytes) {
        flush(sink, last = false)
        reset()
      }
    }

    def flush(sink: BatchSink, last: Boolean): Unit = if (rows > 0) {
      count(bytes)
      writer.finish()
      sink.accept(index, unloader, last)
    }

    def reset(): Unit = {
      rows = 0
      bytes = 0
      // A run of very large rows must not leave its memory behind.
      if (root.getFieldVectors.stream.mapToLong(_.getBufferSize).sum > 4L * Output.ChunkBytes) root.clear()
      writer.reset()
    }

    def close(): Unit = root.close()
  }
}

object Output {
  val ChunkRows: Int = 1 << 16
  val ChunkBytes: Int = 1 << 24
}
