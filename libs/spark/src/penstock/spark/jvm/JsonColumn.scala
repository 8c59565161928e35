package org.apache.spark.sql.execution.penstock

import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field}
import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

/** The line that is being read. */
final class JsonLine(val allocator: BufferAllocator) {
  val number = new JsonNumber
  var id = 0L // never the same twice
  var end = 0L // the address of its newline
}

/** Memory that keeps what it holds when it grows. */
final class Memory(allocator: BufferAllocator) {
  private var buffer: ArrowBuf = allocator.getEmpty
  var address = 0L

  def capacity: Long = buffer.capacity

  def reserve(size: Long): Unit = if (size > buffer.capacity) {
    val larger = allocator.buffer(Math.max(size, buffer.capacity * 2))
    Platform.copyMemory(null, buffer.memoryAddress, null, larger.memoryAddress, buffer.capacity)
    release()
    buffer = larger
    address = larger.memoryAddress
  }

  def filled(size: Long): ArrowBuf = buffer.writerIndex(size)

  def release(): Unit = {
    buffer.close()
    buffer = allocator.getEmpty
    address = 0
  }
}

/** One column's values of the rows so far, in Arrow's layout. A row is written again when its line was not taken. */
abstract class JsonColumn(field: Field, line: JsonLine) {
  private val validity = new Memory(line.allocator)
  private var nulls = 0
  private var lastNull = -1
  val name: String = field.getName
  val nullable: Boolean = field.isNullable
  var readIn = -1L // the line in which it was last there

  /** Reads the value at an address, which is not null. */
  def read(p: Long, row: Int): Long

  def putNull(row: Int): Unit = {
    val address = validity.address + (row >>> 3)
    Platform.putByte(null, address, (byteAt(address) & ~(1 << (row & 7))).toByte)
    nulls += 1
    lastNull = row
    putBlank(row)
  }

  /** Undoes what a line that was not taken has left. */
  def undo(row: Int): Unit = if (lastNull == row) {
    val address = validity.address + (row >>> 3)
    Platform.putByte(null, address, (byteAt(address) | 1 << (row & 7)).toByte)
    nulls -= 1
    lastNull = -1
  }

  /** Makes room for so many rows. */
  def grow(rows: Int): Unit = {
    val before = validity.capacity
    validity.reserve(rows / 8 + 1)
    Platform.setMemory(validity.address + before, -1.toByte, validity.capacity - before)
    growValues(rows)
  }

  /** Forgets all rows. */
  def reset(): Unit = {
    if (nulls > 0) Platform.setMemory(validity.address, -1.toByte, validity.capacity)
    nulls = 0
    lastNull = -1
  }

  def size: Long = validity.capacity + values.map(_.capacity).sum

  def release(): Unit = {
    validity.release()
    values.foreach(_.release())
  }

  def collect(rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit = {
    nodes += new ArrowFieldNode(rows, nulls)
    buffers += (if (nulls == 0) line.allocator.getEmpty else validity.filled((rows + 7) / 8))
    collectValues(rows, nodes, buffers)
  }

  protected def values: Seq[Memory]
  protected def putBlank(row: Int): Unit
  protected def growValues(rows: Int): Unit
  protected def collectValues(rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit
}

object JsonColumn {
  def all(fields: Seq[Field], line: JsonLine): Seq[JsonColumn] = fields.map(of(_, line))

  private def of(field: Field, line: JsonLine): JsonColumn = field.getType match {
    case kind: ArrowType.Int => new IntegerColumn(field, line, kind)
    case kind: ArrowType.FloatingPoint if kind.getPrecision == FloatingPointPrecision.DOUBLE =>
      new DoubleColumn(field, line)
    case kind: ArrowType.FloatingPoint if kind.getPrecision == FloatingPointPrecision.SINGLE =>
      new FloatColumn(field, line)
    case _: ArrowType.Bool => new BooleanColumn(field, line)
    case _: ArrowType.Utf8 => new TextColumn(field, line)
    case kind: ArrowType.Date if kind.getUnit == DateUnit.DAY => new DateColumn(field, line)
    case kind: ArrowType.Timestamp if kind.getUnit == TimeUnit.MICROSECOND => new TimestampColumn(field, line)
    case _: ArrowType.Struct => new StructColumn(field, line)
    case other => throw new IllegalArgumentException(s"column ${field.getName}: lines of $other are not read here")
  }
}
