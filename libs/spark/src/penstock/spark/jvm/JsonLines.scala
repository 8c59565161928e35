package org.apache.spark.sql.execution.penstock

import java.io.EOFException
import java.nio.channels.FileChannel
import java.nio.file.{Path, StandardOpenOption}

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.execution.penstock.JsonText._
import org.apache.spark.unsafe.Platform

/** Decodes blocks of JSON lines into rows of a schema. It takes a line only when there is no doubt about any byte of
 * it; the others are named by their index in the block, for a reader that is slower and knows all rules. */
final class JsonLines(schema: Schema, longestLine: Int, allocator: BufferAllocator) extends AutoCloseable {
  private val line = new JsonLine(allocator)
  private val columns = JsonColumn.all(schema.getFields.asScala.toSeq, line)
  private val reader = new JsonMembers(columns.toArray, line)
  private val block = new Memory(allocator)
  private var capacity = 0
  private var rows = 0
  private var lines = 0
  private var odd = new Array[Int](64)
  private var oddCount = 0

  /** Answers the block that comes next on the wire with the rows, and with how many lines it has and which are odd. */
  def answer(length: Long, wire: Wire): Unit = {
    try {
      require(length <= JsonLines.MostBytes, s"a block of $length bytes is too large")
      block.reserve(length + Margin)
    } catch {
      case error: Throwable =>
        wire.skip(length)
        throw error
    }
    wire.readInto(block.filled(length + Margin), length)
    respond(length, wire)
  }

  /** Answers a block that is in a file, which is read here: it need not cross the wire. The file is opened for each
   * block, since a path that names a descriptor of another process may be another file the next time. */
  def answerFile(path: String, offset: Long, length: Long, wire: Wire): Unit = {
    require(length <= JsonLines.MostBytes, s"a block of $length bytes is too large")
    block.reserve(length + Margin)
    val content = block.filled(length + Margin).nioBuffer(0, length.toInt)
    val source = FileChannel.open(Path.of(path), StandardOpenOption.READ)
    try {
      while (content.hasRemaining) {
        if (source.read(content, offset + content.position()) < 0) throw new EOFException(s"$path became shorter")
      }
    } finally source.close()
    respond(length, wire)
  }

  private def respond(length: Long, wire: Wire): Unit = {
    decode(block.address, length)
    wire.queueBatch(0, batch())
    wire.writeLines(lines, odd, oddCount)
    release()
  }

  private def decode(start: Long, length: Long): Unit = {
    val end = start + length
    Platform.setMemory(end, '\n'.toByte, Margin)
    rows = 0
    lines = 0
    oddCount = 0
    columns.foreach(_.reset())
    var p = start
    while (p < end) {
      if (rows == capacity) grow()
      line.id += 1
      val isAscii = findEnd(p)
      if (take(p, isAscii)) rows += 1
      else {
        columns.foreach(_.undo(rows))
        addOdd(lines)
      }
      lines += 1
      p = line.end + 1
    }
    if (capacity == 0) grow() // or a column of text would have no first offset
  }

  /** Finds the newline that ends the line, and says whether all before it is ASCII. */
  private def findEnd(start: Long): Boolean = {
    var p = start
    var bits = 0L
    var word = wordAt(p)
    var found = newlines(word)
    while (found == 0) {
      bits |= word
      p += 8
      word = wordAt(p)
      found = newlines(word)
    }
    line.end = p + indexOf(found)
    bits |= word & ((found & -found) - 1)
    (bits & 0x8080808080808080L) == 0
  }

  private def take(start: Long, isAscii: Boolean): Boolean = {
    val end = line.end
    if (end - start > longestLine || !(isAscii || isUtf8(start, end))) return false
    val p = pastSpace(start)
    if (byteAt(p) != '{') return false
    val behind = reader.read(p + 1, rows)
    behind >= 0 && pastSpace(behind) == end
  }

  private def grow(): Unit = {
    val larger = Math.max(capacity * 2, JsonLines.LeastRows)
    columns.foreach(_.grow(larger))
    capacity = larger
  }

  private def addOdd(index: Int): Unit = {
    if (oddCount == odd.length) odd = java.util.Arrays.copyOf(odd, odd.length * 2)
    odd(oddCount) = index
    oddCount += 1
  }

  private def batch(): ArrowRecordBatch = {
    val nodes = ArrayBuffer.empty[ArrowFieldNode]
    val buffers = ArrayBuffer.empty[ArrowBuf]
    columns.foreach(_.collect(rows, nodes, buffers))
    new ArrowRecordBatch(rows, nodes.asJava, buffers.asJava)
  }

  /** A block of very large lines must not leave its memory behind. */
  private def release(): Unit = if (block.capacity + columns.map(_.size).sum > JsonLines.MostKept) close()

  override def close(): Unit = {
    block.release()
    columns.foreach(_.release())
    capacity = 0
    odd = new Array[Int](64)
  }
}

object JsonLines {
  private val LeastRows = 1 << 12
  private val MostBytes = 1L << 30
  private val MostKept = 1L << 26
}
