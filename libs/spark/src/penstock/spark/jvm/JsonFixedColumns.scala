package org.apache.spark.sql.execution.penstock

import scala.collection.mutable.ArrayBuffer

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.arrow.vector.types.pojo.{ArrowType, Field}
import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

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
