package org.apache.spark.sql.execution.penstock

import java.nio.ByteOrder

import org.apache.spark.unsafe.Platform

/** JSON's grammar over memory outside the heap. Each method takes the address where something must begin and returns
 * the address behind it, or `No`. Nothing looks for an end of the memory: a line ends in a newline, which is in no
 * JSON value, and at least 16 bytes behind the last one may be read. */
object JsonText {
  require(ByteOrder.nativeOrder == ByteOrder.LITTLE_ENDIAN, "words are compared as little-endian")

  final val No = -1L
  final val Margin = 16
  private final val Ones = 0x0101010101010101L
  private final val Highs = 0x8080808080808080L
  private final val MostDepth = 64

  def byteAt(p: Long): Int = Platform.getByte(null, p)
  def wordAt(p: Long): Long = Platform.getLong(null, p)

  def pastSpace(start: Long): Long = {
    var p = start
    while (isSpace(byteAt(p))) p += 1
    p
  }

  private def isSpace(b: Int): Boolean = b <= ' ' && (b == ' ' || b == '\t' || b == '\r')

  def isDigit(b: Int): Boolean = b >= '0' && b <= '9'

  /** A bit in each byte of a word that equals another's; the lowest is exact, and none is there without one. */
  private def equalBytes(word: Long, repeated: Long): Long = {
    val difference = word ^ repeated
    (difference - Ones) & ~difference & Highs
  }

  def newlines(word: Long): Long = equalBytes(word, Ones * '\n')

  /** Where in a word a string may end: a quote, a backslash or a control character. */
  def specials(word: Long): Long =
    equalBytes(word, Ones * '"') | equalBytes(word, Ones * '\\') | ((word - Ones * ' ') & ~word & Highs)

  def indexOf(bits: Long): Int = java.lang.Long.numberOfTrailingZeros(bits) >>> 3

  /** The first special character from an address on. */
  def nextSpecial(start: Long): Long = {
    var p = start
    var found = specials(wordAt(p))
    while (found == 0) {
      p += 8
      found = specials(wordAt(p))
    }
    p + indexOf(found)
  }

  /** What the backslash at an address begins: its code point and, in the lowest 8 bits, its length; negative for none.
   * Halves of a surrogate pair count only together. */
  def escape(p: Long): Int = byteAt(p + 1) match {
    case '"' => '"' << 8 | 2
    case '\\' => '\\' << 8 | 2
    case '/' => '/' << 8 | 2
    case 'b' => '\b' << 8 | 2
    case 'f' => '\f' << 8 | 2
    case 'n' => '\n' << 8 | 2
    case 'r' => '\r' << 8 | 2
    case 't' => '\t' << 8 | 2
    case 'u' =>
      val unit = hex4(p + 2)
      if (unit < 0) -1
      else if (unit >> 11 != 0x1b) unit << 8 | 6
      else if (unit >= 0xdc00 || byteAt(p + 6) != '\\' || byteAt(p + 7) != 'u') -1
      else {
        val low = hex4(p + 8)
        if (low >> 10 != 0x37) -1 else (0x10000 + ((unit & 0x3ff) << 10 | low & 0x3ff)) << 8 | 12
      }
    case _ => -1
  }

  /** Negative unless all four are digits. */
  private def hex4(p: Long): Int =
    hex(byteAt(p)) << 12 | hex(byteAt(p + 1)) << 8 | hex(byteAt(p + 2)) << 4 | hex(byteAt(p + 3))

  private def hex(b: Int): Int =
    if (isDigit(b)) b - '0'
    else if (b >= 'a' && b <= 'f') b - 'a' + 10
    else if (b >= 'A' && b <= 'F') b - 'A' + 10
    else -1

  def pastString(start: Long): Long = {
    if (byteAt(start) != '"') return No
    var p = nextSpecial(start + 1)
    while (byteAt(p) == '\\') {
      val escaped = escape(p)
      if (escaped < 0) return No
      p = nextSpecial(p + (escaped & 0xff))
    }
    if (byteAt(p) == '"') p + 1 else No
  }

  def pastDigits(start: Long): Long = {
    var p = start
    while (isDigit(byteAt(p))) p += 1
    p
  }

  def pastNumber(start: Long): Long = {
    var p = if (byteAt(start) == '-') start + 1 else start
    if (byteAt(p) == '0') p += 1
    else {
      val end = pastDigits(p)
      if (end == p) return No
      p = end
    }
    if (byteAt(p) == '.') {
      val end = pastDigits(p + 1)
      if (end == p + 1) return No
      p = end
    }
    if ((byteAt(p) | 0x20) == 'e') {
      val sign = byteAt(p + 1)
      val first = if (sign == '+' || sign == '-') p + 2 else p + 1
      p = pastDigits(first)
      if (p == first) return No
    }
    p
  }

  def pastNull(p: Long): Long = if (Platform.getInt(null, p) == 0x6c6c756e) p + 4 else No
  def pastTrue(p: Long): Long = if (Platform.getInt(null, p) == 0x65757274) p + 4 else No
  def pastFalse(p: Long): Long =
    if (Platform.getInt(null, p) == 0x736c6166 && byteAt(p + 4) == 'e') p + 5 else No

  /** Any value, checked and not kept; one that is nested deeply counts as none. */
  def pastValue(p: Long, depth: Int = 0): Long = byteAt(p) match {
    case '"' => pastString(p)
    case '{' => if (depth == MostDepth) No else pastObject(p + 1, depth + 1)
    case '[' => if (depth == MostDepth) No else pastArray(p + 1, depth + 1)
    case 't' => pastTrue(p)
    case 'f' => pastFalse(p)
    case 'n' => pastNull(p)
    case _ => pastNumber(p)
  }

  private def pastObject(start: Long, depth: Int): Long = {
    var p = pastSpace(start)
    if (byteAt(p) == '}') return p + 1
    while (true) {
      p = pastString(p)
      if (p < 0) return No
      p = pastColon(p)
      if (p < 0) return No
      p = pastValue(p, depth)
      if (p < 0) return No
      p = pastSpace(p)
      byteAt(p) match {
        case ',' => p = pastSpace(p + 1)
        case '}' => return p + 1
        case _ => return No
      }
    }
    No
  }

  private def pastArray(start: Long, depth: Int): Long = {
    var p = pastSpace(start)
    if (byteAt(p) == ']') return p + 1
    while (true) {
      p = pastValue(p, depth)
      if (p < 0) return No
      p = pastSpace(p)
      byteAt(p) match {
        case ',' => p = pastSpace(p + 1)
        case ']' => return p + 1
        case _ => return No
      }
    }
    No
  }

  /** To the value behind a key. */
  def pastColon(start: Long): Long = {
    val p = pastSpace(start)
    if (byteAt(p) == ':') pastSpace(p + 1) else No
  }

  /** Whether the bytes from one address up to another are UTF-8, as Unicode's table 3-7 has it. */
  def isUtf8(start: Long, end: Long): Boolean = {
    var p = start
    while (p < end) {
      val b = byteAt(p) & 0xff
      val size = if (b < 0x80) 1 else if (b < 0xc2) 0 else if (b < 0xe0) 2 else if (b < 0xf0) 3 else if (b < 0xf5) 4 else 0
      if (size == 0 || p + size > end) return false
      if (size > 1) {
        val second = byteAt(p + 1) & 0xff
        val low = if (b == 0xe0) 0xa0 else if (b == 0xf0) 0x90 else 0x80
        val high = if (b == 0xed) 0x9f else if (b == 0xf4) 0x8f else 0xbf
        if (second < low || second > high) return false
        if (size > 2 && (byteAt(p + 2) & 0xc0) != 0x80) return false
        if (size > 3 && (byteAt(p + 3) & 0xc0) != 0x80) return false
      }
      p += size
    }
    true
  }
}
