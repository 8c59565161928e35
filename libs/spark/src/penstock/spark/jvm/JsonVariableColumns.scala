package org.apache.spark.sql.execution.penstock

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.ArrowBuf
import org.apache.arrow.vector.ipc.message.ArrowFieldNode
import org.apache.arrow.vector.types.pojo.Field
import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

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
