package org.apache.spark.sql.execution.penstock

import java.math.BigInteger

/** Double and float to the shortest decimal that is read back as the same number, the nearest of the shortest: the
 * algorithm of Giulietti ("The Schubfach way to render doubles", 2021). Java's own text has two digits at least, and
 * before Java 19 more than it needs. One instance is one thread's: it holds the last result. */
final class ShortestDecimal {
  import ShortestDecimal._

  /** The number is `digits` times ten to the `exponent`; the digits may end in zeros. */
  var digits = 0L
  var exponent = 0

  /** Of a finite number above zero. */
  def of(value: Double): Unit = {
    val bits = java.lang.Double.doubleToRawLongBits(value)
    find(bits & (1L << 52) - 1, (bits >>> 52).toInt, 1L << 52, -1074)
  }

  def of(value: Float): Unit = {
    val bits = java.lang.Float.floatToRawIntBits(value)
    find(bits & (1L << 23) - 1, bits >>> 23, 1L << 23, -149)
  }

  private def find(fraction: Long, biased: Int, implied: Long, least: Int): Unit =
    if (biased == 0) shorten(fraction, least, isPowerOfTwo = false)
    else shorten(fraction | implied, least + biased - 1, isPowerOfTwo = fraction == 0 && biased > 1)

  /** Of c times two to the q. The numbers below a power of two are half as far away as those above it. Names are those
   * of the paper, in which all of this is proved. */
  private def shorten(c: Long, q: Int, isPowerOfTwo: Boolean): Unit = {
    val out = c & 1
    val cb = c << 2
    val cbl = if (isPowerOfTwo) cb - 1 else cb - 2
    val k = ((q * 661971961083L + (if (isPowerOfTwo) -274743187321L else 0L)) >> 41).toInt
    val h = q + ((-k * 913124641741L) >> 38).toInt + 2
    val (g1, g0) = (highs(k - Least), lows(k - Least))
    val vb = roundToOdd(g1, g0, cb << h)
    val vbl = roundToOdd(g1, g0, cbl << h)
    val vbr = roundToOdd(g1, g0, (cb + 2) << h)
    val s = vb >> 2
    exponent = k
    if (s >= 10) {
      val tens = s / 10 * 10
      val isLowerIn = vbl + out <= (tens << 2)
      if (isLowerIn != (((tens + 10) << 2) + out <= vbr)) {
        digits = if (isLowerIn) tens else tens + 10
        return
      }
    }
    val isLowerIn = vbl + out <= (s << 2)
    val isUpperIn = ((s + 1) << 2) + out <= vbr
    val difference = vb - ((s + s + 1) << 1)
    val takesLower = if (isLowerIn != isUpperIn) isLowerIn else difference < 0 || difference == 0 && (s & 1) == 0
    digits = if (takesLower) s else s + 1
  }
}

object ShortestDecimal {
  private final val Least = -324
  private final val Most = 292
  private final val Mask = (1L << 63) - 1
  private val powers = Array.tabulate(Most - Least + 1)(n => power(-(n + Least)))
  private val highs = powers.map(_.shiftRight(63).longValue)
  private val lows = powers.map(_.longValue & Mask)

  private def roundToOdd(g1: Long, g0: Long, cp: Long): Long = {
    val z = ((g1 * cp) >>> 1) + Math.multiplyHigh(g0, cp)
    val w = Math.multiplyHigh(g1, cp) + (z >>> 63)
    w | ((z & Mask) + Mask) >>> 63
  }

  /** The first 126 bits of ten to the `exponent`, and one. */
  private def power(exponent: Int): BigInteger = {
    val ten = BigInteger.TEN.pow(Math.abs(exponent))
    val bits =
      if (exponent >= 0) shifted(ten, 126 - ten.bitLength)
      else {
        val quotient = BigInteger.ONE.shiftLeft(ten.bitLength + 126).divide(ten)
        shifted(quotient, 126 - quotient.bitLength)
      }
    bits.add(BigInteger.ONE)
  }

  private def shifted(number: BigInteger, left: Int): BigInteger =
    if (left >= 0) number.shiftLeft(left) else number.shiftRight(-left)
}
