package org.apache.spark.sql.execution.penstock

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.catalyst.expressions.SpecializedGetters
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.types._

/** Writes a value of a row or an array. */
trait JsonValue extends Serializable {
  def write(from: SpecializedGetters, ordinal: Int, to: JsonWriter): Unit

  final def writeOrNull(from: SpecializedGetters, ordinal: Int, to: JsonWriter): Unit =
    if (from.isNullAt(ordinal)) to.writeNull() else write(from, ordinal, to)
}

/** The members of an object: what stands before each value, and the value. */
final class JsonObject(names: Seq[String], values: Array[JsonValue]) extends Serializable {
  private val before = JsonObject.before(names)

  def write(row: SpecializedGetters, to: JsonWriter): Unit = {
    if (values.isEmpty) to.writeByte('{')
    var n = 0
    while (n < values.length) {
      to.writeBytes(before(n))
      values(n).writeOrNull(row, n, to)
      n += 1
    }
    to.writeByte('}')
  }
}

object JsonObject {
  def before(names: Seq[String]): Array[Array[Byte]] = names.zipWithIndex.map { case (name, n) =>
    (if (n == 0) "{" else ",").getBytes(UTF_8) ++ JsonWriter.quoted(name) ++ ":".getBytes(UTF_8)
  }.toArray
}

final class JsonArray(item: JsonValue) extends Serializable {
  def write(array: ArrayData, to: JsonWriter): Unit = {
    to.writeByte('[')
    var n = 0
    while (n < array.numElements()) {
      if (n > 0) to.writeByte(',')
      item.writeOrNull(array, n, to)
      n += 1
    }
    to.writeByte(']')
  }
}

/** How values of a type are written. `penstock.spark.line_encoder` says the same types. */
final case class JsonFormat(unixMillis: Boolean) {
  def accepts(kind: DataType): Boolean = kind match {
    case NullType | BooleanType | ByteType | ShortType | IntegerType | LongType | FloatType | DoubleType | DateType |
        TimestampType | TimestampNTZType | BinaryType => true
    case _: StringType | _: DecimalType | _: TimeType => true
    case struct: StructType => struct.forall(field => accepts(field.dataType))
    case array: ArrayType => accepts(array.elementType)
    case _ => false
  }

  def of(kind: DataType): JsonValue = kind match {
    case NullType => (_, _, to) => to.writeNull()
    case BooleanType => (from, n, to) => to.writeBoolean(from.getBoolean(n))
    case ByteType => (from, n, to) => to.writeLong(from.getByte(n))
    case ShortType => (from, n, to) => to.writeLong(from.getShort(n))
    case IntegerType => (from, n, to) => to.writeLong(from.getInt(n))
    case LongType => (from, n, to) => to.writeLong(from.getLong(n))
    case FloatType => (from, n, to) => to.writeFloat(from.getFloat(n))
    case DoubleType => (from, n, to) => to.writeDouble(from.getDouble(n))
    case _: StringType => (from, n, to) => to.writeText(from.getUTF8String(n))
    case BinaryType => (from, n, to) => to.writeBase64(from.getBinary(n))
    case DateType => (from, n, to) => to.writeDate(from.getInt(n))
    case _: TimeType => (from, n, to) => to.writeTime(from.getLong(n))
    case TimestampType | TimestampNTZType if unixMillis => (from, n, to) => to.writeUnixMillis(from.getLong(n))
    case TimestampType => (from, n, to) => to.writeTimestamp(from.getLong(n), true)
    case TimestampNTZType => (from, n, to) => to.writeTimestamp(from.getLong(n), false)
    case DecimalType.Fixed(precision, scale) =>
      (from, n, to) => to.writeDecimal(from.getDecimal(n, precision, scale), precision, scale)
    case struct: StructType =>
      val inner = objectOf(struct)
      (from, n, to) => inner.write(from.getStruct(n, struct.length), to)
    case array: ArrayType =>
      val inner = arrayOf(array)
      (from, n, to) => inner.write(from.getArray(n), to)
    case other => throw new IllegalArgumentException(s"JSON cannot hold ${other.sql}")
  }

  def objectOf(struct: StructType): JsonObject =
    new JsonObject(struct.fieldNames.toSeq, struct.fields.map(field => of(field.dataType)))

  def arrayOf(array: ArrayType): JsonArray = new JsonArray(of(array.elementType))

  /** The statement that does the same in generated code. */
  def statement(kind: DataType, value: String, to: String, reference: AnyRef => String): String = kind match {
    case NullType => s"$to.writeNull();"
    case BooleanType => s"$to.writeBoolean($value);"
    case ByteType | ShortType | IntegerType | LongType => s"$to.writeLong($value);"
    case FloatType => s"$to.writeFloat($value);"
    case DoubleType => s"$to.writeDouble($value);"
    case _: StringType => s"$to.writeText($value);"
    case BinaryType => s"$to.writeBase64($value);"
    case DateType => s"$to.writeDate($value);"
    case _: TimeType => s"$to.writeTime($value);"
    case TimestampType | TimestampNTZType if unixMillis => s"$to.writeUnixMillis($value);"
    case TimestampType => s"$to.writeTimestamp($value, true);"
    case TimestampNTZType => s"$to.writeTimestamp($value, false);"
    case DecimalType.Fixed(precision, scale) => s"$to.writeDecimal($value, $precision, $scale);"
    case struct: StructType => s"${reference(objectOf(struct))}.write($value, $to);"
    case array: ArrayType => s"${reference(arrayOf(array))}.write($value, $to);"
    case other => throw new IllegalArgumentException(s"JSON cannot hold ${other.sql}")
  }
}

object JsonFormat {
  /** Text that is JSON already. */
  val raw: JsonValue = (from, ordinal, to) => to.writeRaw(from.getUTF8String(ordinal))
}
