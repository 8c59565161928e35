package org.apache.spark.sql.execution.penstock

import org.apache.arrow.vector.{BaseVariableWidthVector, FieldVector}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ArrowColumnVector
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** A column of numbers, times or text, read at its addresses: Spark's own column asks an accessor and a vector for each
 * value, and for each whether it is null where no value is. The vector holds its batch, and keeps it. */
final class FlatColumn(vector: FieldVector) extends ArrowColumnVector(vector) {
  private val nulls = vector.getNullCount
  private val validity = vector.getValidityBuffer.memoryAddress
  private val data = vector.getDataBuffer.memoryAddress
  private val offsets = vector match {
    case text: BaseVariableWidthVector => text.getOffsetBuffer.memoryAddress
    case _ => 0L
  }

  override def hasNull: Boolean = nulls > 0
  override def numNulls: Int = nulls
  override def isNullAt(row: Int): Boolean = nulls > 0 && !bit(validity, row)

  private def bit(bits: Long, row: Int): Boolean = (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) == 1

  override def getBoolean(row: Int): Boolean = bit(data, row)
  override def getByte(row: Int): Byte = Platform.getByte(null, data + row)
  override def getShort(row: Int): Short = Platform.getShort(null, data + 2L * row)
  override def getInt(row: Int): Int = Platform.getInt(null, data + 4L * row)
  override def getLong(row: Int): Long = Platform.getLong(null, data + 8L * row)
  override def getFloat(row: Int): Float = Platform.getFloat(null, data + 4L * row)
  override def getDouble(row: Int): Double = Platform.getDouble(null, data + 8L * row)
  override def getUTF8String(row: Int): UTF8String = {
    val start = Platform.getInt(null, offsets + 4L * row)
    UTF8String.fromAddress(null, data + start, Platform.getInt(null, offsets + 4L * row + 4) - start)
  }
}

object FlatColumn {
  def holds(kind: DataType): Boolean = kind match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType | DateType |
        TimestampType | TimestampNTZType | StringType => true
    case _ => false
  }

  def classOfColumn(kind: DataType): Class[_ <: ArrowColumnVector] =
    if (holds(kind)) classOf[FlatColumn] else classOf[ArrowColumnVector]
}
