package org.apache.spark.sql.execution.penstock

import java.nio.charset.StandardCharsets

import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

/** A key as it stands in a line, quotes included, and the column that it is of; null for one that nobody wants. */
final class JsonKey(val bytes: Array[Byte], val column: JsonColumn) {
  private val words = Array.tabulate(bytes.length / 8)(n => Platform.getLong(bytes, Platform.BYTE_ARRAY_OFFSET + n * 8))
  private val rest = bytes.length & 7
  private val mask = (1L << rest * 8) - 1
  private val last = Platform.getLong(bytes.drop(words.length * 8).padTo(8, 0.toByte), Platform.BYTE_ARRAY_OFFSET) & mask

  /** The key that came after this one the last time. */
  var next: JsonKey = _

  def isAt(p: Long): Boolean = {
    var n = 0
    while (n < words.length) {
      if (wordAt(p + n * 8) != words(n)) return false
      n += 1
    }
    (wordAt(p + n * 8) & mask) == last
  }
}

/** Reads the members of an object, guessing that its keys come in the order of the last one's. */
final class JsonMembers(columns: Array[JsonColumn], line: JsonLine) {
  private val before = new JsonKey(Array.emptyByteArray, null) // its next is the first
  private val unknown = new JsonKey(Array.emptyByteArray, null)
  private val table = new Array[JsonKey](Integer.highestOneBit((columns.length + JsonMembers.MostUnwanted) * 4))
  private var unwanted = 0
  private var found: JsonKey = _
  columns.foreach { column =>
    val bytes = s"\"${column.name}\"".getBytes(StandardCharsets.UTF_8)
    table(slotOf(bytes)) = new JsonKey(bytes, column)
  }

  def read(start: Long, row: Int): Long = {
    var p = pastSpace(start)
    var missing = columns.length
    var last = before
    var open = true
    if (byteAt(p) == '}') {
      p += 1
      open = false
    }
    while (open) {
      val guess = last.next
      if (guess != null && guess.isAt(p)) {
        p += guess.bytes.length
        last = guess
      } else {
        p = pastKey(p)
        if (p < 0) return No
        if (found ne unknown) last.next = found
        last = found
      }
      if (byteAt(p) == ':' && byteAt(p + 1) > ' ') p += 1 else p = pastColon(p)
      if (p < 0) return No
      val column = last.column
      if (column == null) p = pastValue(p)
      else if (column.readIn == line.id) return No
      else {
        column.readIn = line.id
        missing -= 1
        p = if (byteAt(p) == 'n') readNull(column, p, row) else column.read(p, row)
      }
      if (p < 0) return No
      if (byteAt(p) <= ' ') p = pastSpace(p)
      byteAt(p) match {
        case ',' => p = if (byteAt(p + 1) == '"') p + 1 else pastSpace(p + 1)
        case '}' =>
          p += 1
          open = false
        case _ => return No
      }
    }
    if (missing == 0 || putMissing(row)) p else No
  }

  private def readNull(column: JsonColumn, p: Long, row: Int): Long = {
    val end = if (column.nullable) pastNull(p) else No
    if (end >= 0) column.putNull(row)
    end
  }

  private def putMissing(row: Int): Boolean = {
    var n = 0
    while (n < columns.length) {
      val column = columns(n)
      if (column.readIn != line.id) {
        if (!column.nullable) return false
        column.putNull(row)
      }
      n += 1
    }
    true
  }

  /** Finds the key at an address. One with a backslash could be written in many ways, and is left to others. */
  private def pastKey(p: Long): Long = {
    if (byteAt(p) != '"') return No
    val end = nextSpecial(p + 1) + 1
    if (byteAt(end - 1) != '"') return No
    val length = (end - p).toInt
    var slot = hash(p, length)
    while (table(slot) != null && !(table(slot).bytes.length == length && table(slot).isAt(p))) slot = after(slot)
    found = table(slot)
    if (found == null) found = learn(p, length, slot)
    end
  }

  private def learn(p: Long, length: Int, slot: Int): JsonKey =
    if (unwanted == JsonMembers.MostUnwanted || length > JsonMembers.LongestUnwanted) unknown
    else {
      val bytes = new Array[Byte](length)
      Platform.copyMemory(null, p, bytes, Platform.BYTE_ARRAY_OFFSET, length)
      table(slot) = new JsonKey(bytes, null)
      unwanted += 1
      table(slot)
    }

  private def after(slot: Int): Int = slot + 1 & table.length - 1

  private def slotOf(bytes: Array[Byte]): Int = {
    var hash = 0
    bytes.foreach(byte => hash = hash * 31 + byte)
    var slot = spread(hash)
    while (table(slot) != null) slot = after(slot)
    slot
  }

  private def hash(p: Long, length: Int): Int = {
    var hash = 0
    var n = 0
    while (n < length) {
      hash = hash * 31 + byteAt(p + n)
      n += 1
    }
    spread(hash)
  }

  private def spread(hash: Int): Int = (hash ^ hash >>> 15) & table.length - 1
}

object JsonMembers {
  private val MostUnwanted = 256
  private val LongestUnwanted = 256
}
