package org.apache.spark.sql.execution.penstock

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.util.{Arrays, Base64}

import org.apache.spark.sql.types.Decimal
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** The bytes of a JSON text while it is made. Its memory is used again for the next one. All values are written as
 * Python's `JsonEncoder` does, byte for byte: a table may be encoded here or there. */
final class JsonWriter {
  import JsonWriter._

  private var bytes = new Array[Byte](256)
  private var size = 0
  private val decimal = new ShortestDecimal

  def clear(): Unit = size = 0

  /** What was written; its bytes are good until the next `clear`. */
  def text: UTF8String = UTF8String.fromBytes(bytes, 0, size)

  private def reserve(more: Int): Unit =
    if (bytes.length - size < more) bytes = Arrays.copyOf(bytes, Math.max(Math.addExact(size, more), grown))

  private def grown: Int = Math.min(bytes.length.toLong * 2, Int.MaxValue - 16).toInt

  def writeBytes(text: Array[Byte]): Unit = {
    reserve(text.length)
    System.arraycopy(text, 0, bytes, size, text.length)
    size += text.length
  }

  def writeByte(byte: Int): Unit = {
    reserve(1)
    bytes(size) = byte.toByte
    size += 1
  }

  def writeNull(): Unit = writeBytes(Null)

  def writeBoolean(value: Boolean): Unit = writeBytes(if (value) True else False)

  /** Text that is JSON already. */
  def writeRaw(text: UTF8String): Unit = {
    val length = text.numBytes
    reserve(length)
    Platform.copyMemory(text.getBaseObject, text.getBaseOffset, bytes, Platform.BYTE_ARRAY_OFFSET + size, length)
    size += length
  }

  def writeText(text: UTF8String): Unit = {
    val (base, start, length) = (text.getBaseObject, text.getBaseOffset, text.numBytes)
    reserve(length + 10) // two quotes, and a word that is copied before it is looked at
    bytes(size) = '"'
    size += 1
    var done = 0
    while (done < length) {
      done += copyPlain(base, start + done, length - done)
      if (done < length) {
        escape(Platform.getByte(base, start + done) & 0xff)
        done += 1
        reserve(length - done + 10)
      }
    }
    bytes(size) = '"'
    size += 1
  }

  /** Copies up to the first byte that has to be escaped; returns how many. */
  private def copyPlain(base: AnyRef, start: Long, length: Int): Int = {
    val to = Platform.BYTE_ARRAY_OFFSET + size
    var n = 0
    while (n + 8 <= length) {
      val word = Platform.getLong(base, start + n)
      Platform.putLong(bytes, to + n, word)
      val found = JsonText.specials(word)
      if (found != 0) {
        n += JsonText.indexOf(found)
        size += n
        return n
      }
      n += 8
    }
    while (n < length) {
      val byte = Platform.getByte(base, start + n)
      if (byte == '"' || byte == '\\' || byte >= 0 && byte < ' ') {
        size += n
        return n
      }
      Platform.putByte(bytes, to + n, byte)
      n += 1
    }
    size += n
    n
  }

  private def escape(byte: Int): Unit = writeBytes(Escapes(byte))

  def writeLong(value: Long): Unit = {
    reserve(20)
    if (value < 0) {
      bytes(size) = '-'
      size += 1
      if (value == Long.MinValue) writeBytes(LeastLong) else putDigits(-value, lengthOf(-value))
    } else putDigits(value, lengthOf(value))
  }

  /** The last digits of a number, with zeros before it; there is room. */
  private def putDigits(value: Long, length: Int): Unit = {
    var rest = value
    var at = size + length
    while (at - size >= 2) {
      val next = rest / 100
      val pair = (rest - next * 100).toInt << 1
      at -= 2
      bytes(at) = Pairs(pair)
      bytes(at + 1) = Pairs(pair + 1)
      rest = next
    }
    if (at > size) bytes(size) = ('0' + rest % 10).toByte
    size += length
  }

  /** NaN and the infinities are null, since JSON has none of them. */
  def writeDouble(value: Double): Unit = {
    val positive = Math.abs(value)
    if (!(positive <= Double.MaxValue)) writeNull()
    else {
      writeSign(java.lang.Double.doubleToRawLongBits(value) < 0)
      // A decimal of up to 15 digits that is read as the number is the only one of them, hence the shortest.
      val thousandths = (positive * 1000 + 0.5).toLong
      if (thousandths < MostThousandths && thousandths / 1000.0 == positive) putThousandths(thousandths)
      else {
        decimal.of(positive)
        writeDecimal()
      }
    }
  }

  def writeFloat(value: Float): Unit = {
    val positive = Math.abs(value)
    if (!(positive <= Float.MaxValue)) writeNull()
    else {
      writeSign(java.lang.Float.floatToRawIntBits(value) < 0)
      if (positive == 0) writeByte('0')
      else {
        decimal.of(positive)
        writeDecimal()
      }
    }
  }

  /** Of -0.0 too. */
  private def writeSign(isNegative: Boolean): Unit = {
    reserve(32)
    if (isNegative) {
      bytes(size) = '-'
      size += 1
    }
  }

  private def putThousandths(thousandths: Long): Unit = {
    val whole = thousandths / 1000
    val fraction = (thousandths - whole * 1000).toInt
    putDigits(whole, lengthOf(whole))
    if (fraction != 0) {
      bytes(size) = '.'
      size += 1
      if (fraction % 100 == 0) putDigits(fraction / 100, 1)
      else if (fraction % 10 == 0) putDigits(fraction / 10, 2)
      else putDigits(fraction, 3)
    }
  }

  /** As Arrow has it: with an exponent from 1e10 up and below 1e-6. */
  private def writeDecimal(): Unit = {
    var (digits, exponent) = (decimal.digits, decimal.exponent)
    while (digits % 10 == 0) {
      digits /= 10
      exponent += 1
    }
    val length = lengthOf(digits)
    val scientific = exponent + length - 1
    reserve(32)
    if (scientific < -6 || scientific >= 10) putScientific(digits, length, scientific)
    else if (exponent >= 0) {
      putDigits(digits, length)
      putZeros(exponent)
    } else if (scientific < 0) {
      putZeros(1)
      bytes(size) = '.'
      size += 1
      putZeros(-scientific - 1)
      putDigits(digits, length)
    } else putWithPoint(digits, length, scientific + 1)
  }

  private def putScientific(digits: Long, length: Int, exponent: Int): Unit = {
    if (length == 1) putDigits(digits, 1) else putWithPoint(digits, length, 1)
    bytes(size) = 'e'
    bytes(size + 1) = if (exponent < 0) '-' else '+'
    size += 2
    putDigits(Math.abs(exponent), lengthOf(Math.abs(exponent)))
  }

  private def putWithPoint(digits: Long, length: Int, before: Int): Unit = {
    putDigits(digits, length)
    System.arraycopy(bytes, size - length + before, bytes, size - length + before + 1, length - before)
    bytes(size - length + before) = '.'
    size += 1
  }

  private def putZeros(count: Int): Unit = {
    Arrays.fill(bytes, size, size + count, '0'.toByte)
    size += count
  }

  /** Null when it does not fit its type, as in Spark's own writers. */
  def writeDecimal(value: Decimal, precision: Int, scale: Int): Unit =
    if (value.changePrecision(precision, scale)) writeBytes(value.toJavaBigDecimal.toString.getBytes(ISO_8859_1))
    else writeNull()

  def writeBase64(value: Array[Byte]): Unit = {
    writeByte('"')
    writeBytes(Base64.getEncoder.encode(value))
    writeByte('"')
  }

  def writeDate(days: Int): Unit = {
    reserve(24)
    bytes(size) = '"'
    size += 1
    putDate(days)
    bytes(size) = '"'
    size += 1
  }

  def writeTimestamp(micros: Long, isZoned: Boolean): Unit = {
    reserve(48)
    val days = Math.floorDiv(micros, MicrosOfDay)
    bytes(size) = '"'
    size += 1
    putDate(days)
    bytes(size) = 'T'
    size += 1
    putClock(micros - days * MicrosOfDay)
    if (isZoned) {
      bytes(size) = 'Z'
      size += 1
    }
    bytes(size) = '"'
    size += 1
  }

  /** Rounded down, before 1970 too. */
  def writeUnixMillis(micros: Long): Unit = writeLong(Math.floorDiv(micros, 1000L))

  def writeTime(nanos: Long): Unit = {
    reserve(24)
    bytes(size) = '"'
    size += 1
    putClock(nanos / 1000)
    bytes(size) = '"'
    size += 1
  }

  /** The Gregorian date of a day counted from 1970, by the algorithm of Hinnant ("chrono-compatible low-level date
   * algorithms"), in which a year begins in March. */
  private def putDate(sinceEpoch: Long): Unit = {
    val days = sinceEpoch + 719468
    val era = Math.floorDiv(days, 146097L)
    val dayOfEra = (days - era * 146097).toInt
    val yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146096) / 365
    val dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    val monthFromMarch = (5 * dayOfYear + 2) / 153
    val month = if (monthFromMarch < 10) monthFromMarch + 3 else monthFromMarch - 9
    val year = yearOfEra + era * 400 + (if (month <= 2) 1 else 0)
    if (year < 0) {
      bytes(size) = '-'
      size += 1
    }
    putDigits(Math.abs(year), Math.max(4, lengthOf(Math.abs(year))))
    putPart('-', month)
    putPart('-', dayOfYear - (153 * monthFromMarch + 2) / 5 + 1)
  }

  /** With a fraction only if there is one, of 3 digits or, if these are not enough, of 6. */
  private def putClock(micros: Long): Unit = {
    val seconds = (micros / 1000000).toInt
    val fraction = (micros - seconds * 1000000L).toInt
    putDigits(seconds / 3600, 2)
    putPart(':', seconds / 60 % 60)
    putPart(':', seconds % 60)
    if (fraction != 0) {
      bytes(size) = '.'
      size += 1
      if (fraction % 1000 == 0) putDigits(fraction / 1000, 3) else putDigits(fraction, 6)
    }
  }

  private def putPart(separator: Char, number: Int): Unit = {
    bytes(size) = separator.toByte
    size += 1
    putDigits(number, 2)
  }
}

object JsonWriter {
  private final val MicrosOfDay = 86400000000L
  private final val MostThousandths = 10000000000000L // so 1e10, from which on an exponent is written
  private val Null = "null".getBytes(UTF_8)
  private val True = "true".getBytes(UTF_8)
  private val False = "false".getBytes(UTF_8)
  private val LeastLong = "9223372036854775808".getBytes(UTF_8)
  private val Pairs = (0 until 100).map(n => f"$n%02d").mkString.getBytes(UTF_8)
  private val Escapes = Array.tabulate('\\' + 1) { byte =>
    val escaped = byte.toChar match {
      case '"' | '\\' => s"\\${byte.toChar}"
      case '\b' => "\\b"
      case '\f' => "\\f"
      case '\n' => "\\n"
      case '\r' => "\\r"
      case '\t' => "\\t"
      case _ => f"\\u$byte%04x"
    }
    escaped.getBytes(UTF_8)
  }

  def quoted(name: String): Array[Byte] = {
    val writer = new JsonWriter
    writer.writeText(UTF8String.fromString(name))
    writer.text.getBytes
  }

  private def lengthOf(number: Long): Int = {
    var length = 1
    var limit = 10L
    while (length < 19 && number >= limit) {
      length += 1
      limit *= 10
    }
    length
  }
}
