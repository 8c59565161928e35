package org.apache.spark.sql.execution.penstock

import java.nio.charset.StandardCharsets

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

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

/** Values of a fixed number of bytes. */
abstract class FixedColumn(field: Field, line: JsonLine, width: Int) extends JsonColumn(field, line) {
  private val data = new Memory(line.allocator)
  override protected val values: Seq[Memory] = Seq(data)

  protected final def at(row: Int): Long = data.address + row.toLong * width

  override protected def putBlank(row: Int): Unit = Platform.setMemory(at(row), 0.toByte, width)
  override protected def growValues(rows: Int): Unit = data.reserve(rows.toLong * width)
  override protected def collectValues(
      rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit =
    buffers += data.filled(rows.toLong * width)
}

final class IntegerColumn(field: Field, line: JsonLine, kind: ArrowType.Int)
    extends FixedColumn(field, line, kind.getBitWidth / 8) {
  private val bits = kind.getBitWidth
  private val highest = if (bits == 64) Long.MaxValue else (1L << (if (kind.getIsSigned) bits - 1 else bits)) - 1
  private val lowest = if (kind.getIsSigned) -highest - 1 else 0L

  override def read(p: Long, row: Int): Long = {
    val end = line.number.pastLong(p)
    val value = line.number.whole
    if (end < 0 || value < lowest || value > highest) return No
    bits match {
      case 64 => Platform.putLong(null, at(row), value)
      case 32 => Platform.putInt(null, at(row), value.toInt)
      case 16 => Platform.putShort(null, at(row), value.toShort)
      case 8 => Platform.putByte(null, at(row), value.toByte)
    }
    end
  }
}

final class DoubleColumn(field: Field, line: JsonLine) extends FixedColumn(field, line, 8) {
  override def read(p: Long, row: Int): Long = {
    val end = line.number.pastDouble(p)
    if (end >= 0) Platform.putDouble(null, at(row), line.number.real)
    end
  }
}

final class FloatColumn(field: Field, line: JsonLine) extends FixedColumn(field, line, 4) {
  override def read(p: Long, row: Int): Long = {
    val end = line.number.pastFloat(p)
    if (end >= 0) Platform.putFloat(null, at(row), line.number.single)
    end
  }
}

/** Days since 1970, from text. */
final class DateColumn(field: Field, line: JsonLine) extends FixedColumn(field, line, 4) {
  override def read(p: Long, row: Int): Long = {
    if (byteAt(p) != '"' || byteAt(p + 11) != '"') return No
    val day = JsonTime.day(p + 1)
    if (day == JsonTime.None) return No
    Platform.putInt(null, at(row), day.toInt)
    p + 12
  }
}

/** Microseconds since 1970, from text or from a number of milliseconds. */
final class TimestampColumn(field: Field, line: JsonLine) extends FixedColumn(field, line, 8) {
  override def read(p: Long, row: Int): Long = if (byteAt(p) == '"') fromText(p + 1, row) else fromNumber(p, row)

  private def fromNumber(p: Long, row: Int): Long = {
    val end = line.number.pastLong(p)
    val millis = line.number.whole
    if (end < 0 || Math.abs(millis) > Long.MaxValue / 1000) return No
    Platform.putLong(null, at(row), millis * 1000)
    end
  }

  private def fromText(p: Long, row: Int): Long = {
    val day = JsonTime.day(p)
    val separator = byteAt(p + 10)
    if (day == JsonTime.None || (separator != 'T' && separator != ' ')) return No
    val second = JsonTime.second(p + 11)
    if (second < 0) return No
    var end = p + 19
    var micros = 0L
    if (byteAt(end) == '.') {
      val first = end + 1
      end = pastDigits(first)
      val count = (end - first).toInt
      if (count < 1 || count > 9) return No
      var i = 0
      while (i < 6) {
        micros = micros * 10 + (if (i < count) byteAt(first + i) - '0' else 0)
        i += 1
      }
    }
    if (byteAt(end) == 'Z') end += 1
    if (byteAt(end) != '"') return No
    Platform.putLong(null, at(row), (day * 86400 + second) * 1000000 + micros)
    end + 1
  }
}

/** Dates and times of day in the one form that has no doubt about it. */
object JsonTime {
  final val None = Long.MinValue
  private val monthDays = Array(0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

  /** The day of `YYYY-MM-DD`, since 1970; the year 0 is left to others. */
  def day(p: Long): Long = {
    val century = two(p)
    val rest = two(p + 2)
    val month = two(p + 5)
    val day = two(p + 8)
    if (century < 0 || rest < 0 || byteAt(p + 4) != '-' || byteAt(p + 7) != '-') return None
    val year = century * 100 + rest
    if (year == 0 || month < 1 || month > 12 || day < 1 || day > monthDays(month)) return None
    val isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
    if (month == 2 && day == 29 && !isLeap) return None
    // Years that begin in March end with the leap day, and their months' lengths follow a line.
    val marchYear = if (month > 2) year else year - 1
    val monthFromMarch = (month + 9) % 12
    val dayOfYear = (153 * monthFromMarch + 2) / 5 + day - 1
    365L * marchYear + marchYear / 4 - marchYear / 100 + marchYear / 400 + dayOfYear - 719468
  }

  /** The second of the day at `HH:MM:SS`, or a negative number. */
  def second(p: Long): Int = {
    val hour = two(p)
    val minute = two(p + 3)
    val second = two(p + 6)
    if (hour < 0 || minute < 0 || second < 0 || hour > 23 || minute > 59 || second > 59) -1
    else if (byteAt(p + 2) != ':' || byteAt(p + 5) != ':') -1
    else hour * 3600 + minute * 60 + second
  }

  private def two(p: Long): Int =
    if (isDigit(byteAt(p)) && isDigit(byteAt(p + 1))) (byteAt(p) - '0') * 10 + byteAt(p + 1) - '0' else -1
}

final class BooleanColumn(field: Field, line: JsonLine) extends JsonColumn(field, line) {
  private val data = new Memory(line.allocator)
  override protected val values: Seq[Memory] = Seq(data)

  override def read(p: Long, row: Int): Long = {
    val isTrue = byteAt(p) == 't'
    val end = if (isTrue) pastTrue(p) else pastFalse(p)
    if (end >= 0) put(row, isTrue)
    end
  }

  private def put(row: Int, value: Boolean): Unit = {
    val address = data.address + (row >>> 3)
    val bit = 1 << (row & 7)
    val others = byteAt(address) & ~bit
    Platform.putByte(null, address, (if (value) others | bit else others).toByte)
  }

  override protected def putBlank(row: Int): Unit = put(row, false)
  override protected def growValues(rows: Int): Unit = data.reserve(rows / 8 + 1)
  override protected def collectValues(
      rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit =
    buffers += data.filled((rows + 7) / 8)
}

final class TextColumn(field: Field, line: JsonLine) extends JsonColumn(field, line) {
  private val offsets = new Memory(line.allocator)
  private val data = new Memory(line.allocator)
  override protected val values: Seq[Memory] = Seq(offsets, data)

  /** Copies the text while it looks for its end. */
  override def read(p: Long, row: Int): Long = {
    if (byteAt(p) != '"') return No
    val start = Platform.getInt(null, offsets.address + row * 4L)
    data.reserve(start + (line.end - p) + Margin) // text never takes more room than its JSON
    var from = p + 1
    var to = data.address + start
    while (true) {
      val word = wordAt(from)
      Platform.putLong(null, to, word)
      val found = specials(word)
      if (found == 0) {
        from += 8
        to += 8
      } else {
        val index = indexOf(found)
        from += index
        to += index
        byteAt(from) match {
          case '"' =>
            Platform.putInt(null, offsets.address + row * 4L + 4, (to - data.address).toInt)
            return from + 1
          case '\\' =>
            val escaped = escape(from)
            if (escaped < 0) return No
            from += escaped & 0xff
            to = putCharacter(to, escaped >>> 8)
          case _ => return No
        }
      }
    }
    No
  }

  private def putCharacter(to: Long, point: Int): Long = {
    def put(index: Int, byte: Int): Unit = Platform.putByte(null, to + index, byte.toByte)
    def tail(shift: Int): Int = 0x80 | point >> shift & 0x3f
    if (point < 0x80) {
      put(0, point)
      to + 1
    } else if (point < 0x800) {
      put(0, 0xc0 | point >> 6)
      put(1, tail(0))
      to + 2
    } else if (point < 0x10000) {
      put(0, 0xe0 | point >> 12)
      put(1, tail(6))
      put(2, tail(0))
      to + 3
    } else {
      put(0, 0xf0 | point >> 18)
      put(1, tail(12))
      put(2, tail(6))
      put(3, tail(0))
      to + 4
    }
  }

  override protected def putBlank(row: Int): Unit = {
    val address = offsets.address + row * 4L
    Platform.putInt(null, address + 4, Platform.getInt(null, address))
  }

  override protected def growValues(rows: Int): Unit = {
    offsets.reserve(rows * 4L + 4)
    Platform.putInt(null, offsets.address, 0)
  }

  override protected def collectValues(
      rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit = {
    buffers += offsets.filled(rows * 4L + 4)
    val size = Platform.getInt(null, offsets.address + rows * 4L)
    buffers += (if (size == 0) line.allocator.getEmpty else data.filled(size))
  }
}

final class StructColumn(field: Field, line: JsonLine) extends JsonColumn(field, line) {
  private val members = JsonColumn.all(field.getChildren.asScala.toSeq, line)
  private val reader = new JsonMembers(members.toArray, line)
  override protected val values: Seq[Memory] = Nil

  override def read(p: Long, row: Int): Long = if (byteAt(p) == '{') reader.read(p + 1, row) else No

  override def undo(row: Int): Unit = {
    super.undo(row)
    members.foreach(_.undo(row))
  }

  override def reset(): Unit = {
    super.reset()
    members.foreach(_.reset())
  }

  override def size: Long = super.size + members.map(_.size).sum

  override def release(): Unit = {
    super.release()
    members.foreach(_.release())
  }

  override protected def putBlank(row: Int): Unit = members.foreach(_.putNull(row))
  override protected def growValues(rows: Int): Unit = members.foreach(_.grow(rows))
  override protected def collectValues(
      rows: Int, nodes: ArrayBuffer[ArrowFieldNode], buffers: ArrayBuffer[ArrowBuf]): Unit =
    members.foreach(_.collect(rows, nodes, buffers))
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

/** A key as it stands in a line, quotes included, and the column that it is of; null for one that nobody wants. */
final class JsonKey(val bytes: Array[Byte], val column: JsonColumn) {
  private val words = Array.tabulate(bytes.length / 8)(n => Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + n * 8))
  private val rest = bytes.length & 7
  private val mask = (1L << rest * 8) - 1
  private val last = Platform.getLong(bytes.drop(words.length * 8).padTo(8, 0.toByte), Platform.BYTE_ARRAY_OFFSET) & mask

  /** The key that came after this one the last time. */
  var next: JsonKey = _

  def isAt(p: Long): Boolean = {
    var n = 0
    while (n < words.length) {
      if (wordAt(p + n * 8) != words(n)) return false
      n += 1
    }
    (wordAt(p + n * 8) & mask) == last
  }
}

/** Reads the members of an object, guessing that its keys come in the order of the last one's. */
final class JsonMembers(columns: Array[JsonColumn], line: JsonLine) {
  private val before = new JsonKey(Array.emptyByteArray, null) // its next is the first
  private val unknown = new JsonKey(Array.emptyByteArray, null)
  private val table = new Array[JsonKey](Integer.highestOneBit((columns.length + JsonMembers.MostUnwanted) * 4))
  private var unwanted = 0
  private var found: JsonKey = _
  columns.foreach { column =>
    val bytes = s"\"${column.name}\"".getBytes(StandardCharsets.UTF_8)
    table(slotOf(bytes)) = new JsonKey(bytes, column)
  }

  def read(start: Long, row: Int): Long = {
    var p = pastSpace(start)
    var missing = columns.length
    var last = before
    var open = true
    if (byteAt(p) == '}') {
      p += 1
      open = false
    }
    while (open) {
      val guess = last.next
      if (guess != null && guess.isAt(p)) {
        p += guess.bytes.length
        last = guess
      } else {
        p = pastKey(p)
        if (p < 0) return No
        if (found ne unknown) last.next = found
        last = found
      }
      if (byteAt(p) == ':' && byteAt(p + 1) > ' ') p += 1 else p = pastColon(p)
      if (p < 0) return No
      val column = last.column
      if (column == null) p = pastValue(p)
      else if (column.readIn == line.id) return No
      else {
        column.readIn = line.id
        missing -= 1
        p = if (byteAt(p) == 'n') readNull(column, p, row) else column.read(p, row)
      }
      if (p < 0) return No
      if (byteAt(p) <= ' ') p = pastSpace(p)
      byteAt(p) match {
        case ',' => p = if (byteAt(p + 1) == '"') p + 1 else pastSpace(p + 1)
        case '}' =>
          p += 1
          open = false
        case _ => return No
      }
    }
    if (missing == 0 || putMissing(row)) p else No
  }

  private def readNull(column: JsonColumn, p: Long, row: Int): Long = {
    val end = if (column.nullable) pastNull(p) else No
    if (end >= 0) column.putNull(row)
    end
  }

  private def putMissing(row: Int): Boolean = {
    var n = 0
    while (n < columns.length) {
      val column = columns(n)
      if (column.readIn != line.id) {
        if (!column.nullable) return false
        column.putNull(row)
      }
      n += 1
    }
    true
  }

  /** Finds the key at an address. One with a backslash could be written in many ways, and is left to others. */
  private def pastKey(p: Long): Long = {
    if (byteAt(p) != '"') return No
    val end = nextSpecial(p + 1) + 1
    if (byteAt(end - 1) != '"') return No
    val length = (end - p).toInt
    var slot = hash(p, length)
    while (table(slot) != null && !(table(slot).bytes.length == length && table(slot).isAt(p))) slot = after(slot)
    found = table(slot)
    if (found == null) found = learn(p, length, slot)
    end
  }

  private def learn(p: Long, length: Int, slot: Int): JsonKey =
    if (unwanted == JsonMembers.MostUnwanted || length > JsonMembers.LongestUnwanted) unknown
    else {
      val bytes = new Array[Byte](length)
      Platform.copyMemory(null, p, bytes, Platform.BYTE_ARRAY_OFFSET, length)
      table(slot) = new JsonKey(bytes, null)
      unwanted += 1
      table(slot)
    }

  private def after(slot: Int): Int = slot + 1 & table.length - 1

  private def slotOf(bytes: Array[Byte]): Int = {
    var hash = 0
    bytes.foreach(byte => hash = hash * 31 + byte)
    var slot = spread(hash)
    while (table(slot) != null) slot = after(slot)
    slot
  }

  private def hash(p: Long, length: Int): Int = {
    var hash = 0
    var n = 0
    while (n < length) {
      hash = hash * 31 + byteAt(p + n)
      n += 1
    }
    spread(hash)
  }

  private def spread(hash: Int): Int = (hash ^ hash >>> 15) & table.length - 1
}

object JsonMembers {
  private val MostUnwanted = 256
  private val LongestUnwanted = 256
}
