package org.apache.spark.sql.execution.penstock

import org.apache.arrow.vector.{BaseVariableWidthVector, FieldVector}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** A column of numbers, times or text, read at its addresses: Spark's own column asks an accessor and a vector for each
 * value, and for each whether it is null where no value is. */
final class FlatColumn(vector: FieldVector, kind: DataType) extends ColumnVector(kind) {
  private var data = 0L
  private var offsets = 0L
  private var validity = 0L
  private var nulls = 0

  /** After a batch was loaded into the vector. */
  def refresh(): Unit = {
    nulls = vector.getNullCount
    validity = vector.getValidityBuffer.memoryAddress
    data = vector.getDataBuffer.memoryAddress
    vector match {
      case text: BaseVariableWidthVector => offsets = text.getOffsetBuffer.memoryAddress
      case _ =>
    }
  }

  override def close(): Unit = vector.close()
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

  private def no: Nothing = throw new UnsupportedOperationException(s"not of ${kind.sql}")
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = no
  override def getBinary(row: Int): Array[Byte] = no
  override def getArray(row: Int): ColumnarArray = no
  override def getMap(row: Int): ColumnarMap = no
  override def getChild(ordinal: Int): ColumnVector = no
}

object FlatColumn {
  def holds(kind: DataType): Boolean = kind match {
    case BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType | DateType |
        TimestampType | TimestampNTZType | StringType => true
    case _ => false
  }

  def classOfColumn(kind: DataType): Class[_ <: ColumnVector] =
    if (holds(kind)) classOf[FlatColumn] else classOf[ArrowColumnVector]
}
