package org.apache.spark.sql.execution.penstock

import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.{VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.arrow.ArrowWriter

/** Takes a finished batch; its memory is reused as soon as this returns. */
trait BatchSink { def accept(partition: Int, batch: VectorUnloader): Unit }

/** Writes rows into one set of Arrow vectors per partition, handing each set on when it is full. The vectors keep
 * their memory from run to run, within `ChunkRows` rows or about `ChunkBytes` bytes a partition. */
final class Output(schema: Schema, partitions: Int, allocator: BufferAllocator) extends AutoCloseable {
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

  def flush(sink: BatchSink): Unit = parts.foreach(part => if (part != null) part.flush(sink))

  /** Forgets the rows of a failed run. */
  def reset(): Unit = parts.foreach(part => if (part != null) part.reset())

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

    def write(row: InternalRow, sink: BatchSink): Unit = {
      writer.write(row)
      rows += 1
      if (rows == Output.ChunkRows || (rows & 255) == 0 && writer.sizeInBytes() > Output.ChunkBytes) flush(sink)
    }

    def flush(sink: BatchSink): Unit = if (rows > 0) {
      writer.finish()
      sink.accept(index, unloader)
      reset()
    }

    def reset(): Unit = {
      rows = 0
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
