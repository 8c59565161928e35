package org.apache.spark.sql.execution.penstock

import java.nio.charset.StandardCharsets

import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

/** Reads a JSON number into what a column holds. One is reused for all numbers, so that none costs an object. */
final class JsonNumber {
  var whole = 0L
  var real = 0.0
  var single = 0.0f

  private var start = 0L
  private var negative = false
  private var digits = 0 // that count: leading zeros do not
  private var mantissa = 0L // exact up to 18 digits
  private var exponent = 0 // of ten
  private var hasExponent = false

  /** An integer of 64 bits into `whole`. `-0`, the least one, and whatever has a fraction or an exponent are none. */
  def pastLong(from: Long): Long = {
    val minus = byteAt(from) == '-'
    val first = if (minus) from + 1 else from
    var p = first
    var value = 0L
    while (isDigit(byteAt(p))) {
      value = value * 10 + (byteAt(p) - '0')
      p += 1
    }
    val count = p - first
    // 19 digits fit 64 bits without a sign, so too large a value is negative here.
    if (count == 0 || count > 19 || value < 0 || (byteAt(first) == '0' && (count > 1 || minus))) return No
    whole = if (minus) -value else value
    p
  }

  /** A number of double precision into `real`. */
  def pastDouble(from: Long): Long = {
    val p = pastDecimal(from)
    if (p < 0) return No
    if (digits <= 18 && mantissa <= (1L << 53) && exponent >= -22 && exponent <= 22) {
      if (mantissa == 0 && isUnusualZero) return No
      // Both are exact, so the one rounding is the right one.
      val power = JsonNumber.Powers(Math.abs(exponent))
      val value = if (exponent < 0) mantissa / power else mantissa * power
      real = if (negative) -value else value
      return p
    }
    val size = if (digits <= 18 && mantissa != 0) JsonDouble.of(mantissa, exponent) else Double.NaN
    if (!java.lang.Double.isNaN(size)) {
      real = if (negative) -size else size
      return p
    }
    real = java.lang.Double.parseDouble(text(p))
    val parsed = Math.abs(real)
    if (parsed >= java.lang.Double.MIN_NORMAL && parsed <= java.lang.Double.MAX_VALUE) p else No
  }

  /** A number of single precision into `single`, rounded once. */
  def pastFloat(from: Long): Long = {
    val p = pastDecimal(from)
    if (p < 0) return No
    if (digits <= 18 && mantissa <= (1L << 24) && exponent >= -10 && exponent <= 10) {
      if (mantissa == 0 && isUnusualZero) return No
      val power = JsonNumber.Powers(Math.abs(exponent)).toFloat
      val value = if (exponent < 0) mantissa.toFloat / power else mantissa.toFloat * power
      single = if (negative) -value else value
      return p
    }
    single = java.lang.Float.parseFloat(text(p))
    val size = Math.abs(single)
    if (size >= java.lang.Float.MIN_NORMAL && size <= java.lang.Float.MAX_VALUE) p else No
  }

  private def isUnusualZero: Boolean = negative || hasExponent

  private def pastDecimal(from: Long): Long = {
    start = from
    digits = 0
    mantissa = 0
    exponent = 0
    hasExponent = false
    negative = byteAt(from) == '-'
    var p = if (negative) from + 1 else from
    if (byteAt(p) == '0') p += 1
    else {
      val end = accumulated(p)
      if (end == p) return No
      p = end
    }
    if (byteAt(p) == '.') {
      val end = accumulated(p + 1)
      if (end == p + 1) return No
      exponent = (p + 1 - end).toInt
      p = end
    }
    if ((byteAt(p) | 0x20) == 'e') pastExponent(p + 1) else p
  }

  private def accumulated(from: Long): Long = {
    var p = from
    var value = mantissa
    var count = digits
    var digit = byteAt(p) - '0'
    while (digit >= 0 && digit <= 9) {
      if (count < 18) value = value * 10 + digit
      if (value != 0) count += 1
      p += 1
      digit = byteAt(p) - '0'
    }
    mantissa = value
    digits = count
    p
  }

  private def pastExponent(from: Long): Long = {
    hasExponent = true
    val sign = byteAt(from)
    val first = if (sign == '+' || sign == '-') from + 1 else from
    var p = first
    var value = 0
    while (isDigit(byteAt(p))) {
      if (value < 100000) value = value * 10 + (byteAt(p) - '0')
      p += 1
    }
    exponent += (if (sign == '-') -value else value)
    if (p == first) No else p
  }

  private def text(end: Long): String = {
    val bytes = new Array[Byte]((end - start).toInt)
    Platform.copyMemory(null, start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)
    new String(bytes, StandardCharsets.ISO_8859_1)
  }
}

object JsonNumber {
  /** The powers of ten that a double holds exactly. */
  private val Powers: Array[Double] = Array.tabulate(23)(n => s"1e$n".toDouble)
}
