package org.apache.spark.sql.execution.penstock

import java.math.BigInteger

/** Decimal to double, rounded right, by one or two multiplications with a power of five of 128 bits: the algorithm of
 * Eisel and Lemire ("Number parsing at a gigabyte per second", 2021), without its branches for what is rare. */
object JsonDouble {
  private final val Least = -290
  private final val Most = 280
  private val one = BigInteger.ONE
  private val powers = Array.tabulate(Most - Least + 1)(n => power(n + Least))
  private val highs = powers.map(_.shiftRight(64).longValue)
  private val lows = powers.map(_.longValue)

  /** `mantissa` (positive) times ten to the `exponent`; NaN when another parser has to say. */
  def of(mantissa: Long, exponent: Int): Double = {
    if (exponent < Least || exponent > Most) return Double.NaN
    val zeros = java.lang.Long.numberOfLeadingZeros(mantissa)
    val scaled = mantissa << zeros
    val index = exponent - Least
    var high = multiplyHigh(scaled, highs(index))
    var low = scaled * highs(index)
    if ((high & 0x1ff) == 0x1ff) {
      val carry = multiplyHigh(scaled, lows(index))
      low += carry
      if (java.lang.Long.compareUnsigned(low, carry) < 0) high += 1
    }
    if (low == -1L && (exponent < -27 || exponent > 55)) return Double.NaN
    val top = (high >>> 63).toInt
    val shift = top + 9
    var bits = high >>> shift
    // Exactly between two doubles, the even one is right.
    val isLowTiny = low == 0 || low == 1
    if (isLowTiny && exponent >= -4 && exponent <= 23 && (bits & 3) == 1 && bits << shift == high) bits &= ~1L
    bits = (bits + (bits & 1)) >>> 1
    var power2 = (((152170 + 65536) * exponent) >> 16) + 63 + top - zeros + 1023
    if (bits == 1L << 53) {
      bits = 1L << 52
      power2 += 1
    }
    if (power2 <= 0 || power2 >= 0x7ff) Double.NaN
    else java.lang.Double.longBitsToDouble(bits & ~(1L << 52) | power2.toLong << 52)
  }

  /** Of two numbers without a sign. */
  private def multiplyHigh(a: Long, b: Long): Long = Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a)

  /** The first 128 bits of five to the `exponent`; of a fraction, rounded up. */
  private def power(exponent: Int): BigInteger = {
    val five = BigInteger.valueOf(5).pow(Math.abs(exponent))
    if (exponent >= 0) cut(five.shiftLeft(Math.max(0, 128 - five.bitLength)))
    else {
      val size = five.subtract(one).bitLength
      val scale = if (exponent >= -27) size + 127 else 2 * size + 128
      cut(one.shiftLeft(scale).divide(five).add(one))
    }
  }

  private def cut(number: BigInteger): BigInteger = number.shiftRight(Math.max(0, number.bitLength - 128))
}
