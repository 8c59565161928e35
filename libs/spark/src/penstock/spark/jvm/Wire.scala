package org.apache.spark.sql.execution.penstock

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.SocketChannel

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.arrow.flatbuf.{Message, RecordBatch}
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}
import org.apache.arrow.vector.VectorUnloader
import org.apache.arrow.vector.ipc.message.{ArrowRecordBatch, IpcOption, MessageSerializer}
import org.apache.arrow.vector.types.pojo.Schema

/** What a frame is. `wire.py` holds the same table. */
object Kind {
  // From Python.
  val Plan = 1 // JSON; then one Input frame per input, and one for what an aggregation is of
  val Input = 2 // an input's Arrow schema
  val Batch = 3 // one record batch; its slot is the input (to the JVM) or the partition (from it)
  val Run = 4 // all inputs are complete
  val SchemaOf = 5 // like Plan, but only the schema is wanted
  val Attach = 6 // start a Py4J gateway
  val Status = 7 // memory and threads; a slot of 1 collects garbage first
  val Cancel = 8 // end the run of the connection that the slot numbers; no answer
  val Explain = 9 // like Plan, but the physical plan's text is wanted
  val Functions = 10 // what SQL can call
  val Decode = 11 // the Arrow schema of rows to make of JSON lines; its slot is the longest line's length; answer: Done
  val Lines = 12 // a block of complete lines; the answer is a Batch and an Odd
  val FileLines = 13 // JSON: path, offset and length of a block in a file; the same answer
  val AnalyseAggregation = 14 // JSON; then one Input frame
  val Observe = 15 // an integer of 64 bits: the watermark before the run that follows, in microseconds
  val Used = 21 // like Plan, but only what is read of the inputs is wanted
  // To Python.
  val OutputSchema = 16 // the answer to Plan and SchemaOf; its slot is the connection's number
  val Done = 17 // the run is complete; after Observe, two integers of 64 bits: the watermark now, and the late rows
  val Failed = 18 // JSON
  val Info = 19 // JSON, the answer to Used, AnalyseAggregation, Attach, Status, Explain and Functions
  val Odd = 20 // integers of 32 bits: how many lines a block has, and the indexes of those that are not in its Batch
}

/** The other side is gone. */
final class Disconnected(cause: IOException) extends Exception(cause)

/** A frame's header; its payload follows on the channel. */
final case class Header(kind: Int, slot: Int, length: Long)

/** Frames on one socket: a 16-byte little-endian header (kind, slot, length), then the payload. */
final class Wire(channel: SocketChannel) {
  private val header = ByteBuffer.allocateDirect(16).order(ByteOrder.LITTLE_ENDIAN)
  private val padding = ByteBuffer.allocateDirect(8)
  private val pending = ArrayBuffer.empty[ByteBuffer]
  private val held = ArrayBuffer.empty[ArrowRecordBatch] // what pending points into

  def readHeader(): Header = {
    header.clear()
    fill(header)
    header.flip()
    Header(header.getInt(), header.getInt(), header.getLong())
  }

  def readBytes(length: Long): Array[Byte] = {
    val bytes = new Array[Byte](Math.toIntExact(length))
    fill(ByteBuffer.wrap(bytes))
    bytes
  }

  def readLong(): Long = ByteBuffer.wrap(readBytes(8)).order(ByteOrder.LITTLE_ENDIAN).getLong()

  def readJson(length: Long): JsonNode = Wire.mapper.readTree(readBytes(length))

  def readSchema(length: Long): Schema =
    MessageSerializer.deserializeSchema(Message.getRootAsMessage(Wire.metadata(ByteBuffer.wrap(readBytes(length)))))

  /** Reads a batch's message straight into the memory that its vectors will use. */
  def readBatch(length: Long, allocator: BufferAllocator): ArrowRecordBatch = {
    val buffer = allocator.buffer(length)
    try {
      readInto(buffer, length)
      Wire.toBatch(buffer, length)
    } finally buffer.close()
  }

  def readInto(buffer: ArrowBuf, length: Long): Unit = {
    var offset = 0L
    while (offset < length) { // a ByteBuffer ends at 2 GiB, a message need not
      val chunk = buffer.nioBuffer(offset, Math.min(length - offset, 1 << 30).toInt)
      fill(chunk)
      offset += chunk.position()
    }
  }

  def skip(length: Long): Unit = {
    val scratch = ByteBuffer.allocateDirect(Math.min(length, 1 << 16).toInt)
    var left = length
    while (left > 0) {
      scratch.clear().limit(Math.min(left, scratch.capacity).toInt)
      fill(scratch)
      left -= scratch.limit()
    }
  }

  private def fill(buffer: ByteBuffer): Unit =
    try while (buffer.hasRemaining) if (channel.read(buffer) < 0) throw new java.io.EOFException
    catch { case error: IOException => throw new Disconnected(error) }

  def writeJson(kind: Int, value: Any): Unit = write(kind, 0, ByteBuffer.wrap(Wire.mapper.writeValueAsBytes(value)))

  def writeSchema(slot: Int, schema: Schema): Unit =
    write(Kind.OutputSchema, slot, Wire.message(schema))

  def writeDone(): Unit = write(Kind.Done, 0)

  def writeObserved(eventTime: EventTime): Unit = {
    val payload = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN)
    write(Kind.Done, 0, payload.putLong(eventTime.watermark).putLong(eventTime.lateRows).flip())
  }

  /** A batch that is a message already. */
  def writeMessage(slot: Int, message: Array[Byte]): Unit = write(Kind.Batch, slot, ByteBuffer.wrap(message))

  def writeLines(count: Int, odd: Array[Int], oddCount: Int): Unit = {
    val payload = ByteBuffer.allocate(4 + oddCount * 4).order(ByteOrder.LITTLE_ENDIAN)
    payload.putInt(count).asIntBuffer.put(odd, 0, oddCount)
    write(Kind.Odd, 0, payload.rewind())
  }

  def queueBatch(slot: Int, unloader: VectorUnloader): Unit = queueBatch(slot, unloader.getRecordBatch)

  /** Adds a batch to what the next write gathers: the vectors' own memory, which nothing copies before the kernel. */
  def queueBatch(slot: Int, batch: ArrowRecordBatch): Unit = {
    held += batch
    val metadata = Wire.framed(MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT))
    queue(Kind.Batch, slot, metadata.remaining() + batch.computeBodyLength())
    pending += metadata
    batch.getBuffers.asScala.foreach { buffer =>
      val size = buffer.readableBytes()
      var offset = 0L
      while (offset < size) {
        val chunk = Math.min(size - offset, 1 << 30).toInt
        pending += buffer.nioBuffer(offset, chunk)
        offset += chunk
      }
      val odd = (size & 7).toInt
      if (odd != 0) pending += padding.duplicate().limit(8 - odd)
    }
  }

  /** Drops what was queued and not written. */
  def discard(): Unit = {
    pending.clear()
    held.foreach(_.close())
    held.clear()
  }

  private def write(kind: Int, slot: Int, payload: ByteBuffer*): Unit = {
    queue(kind, slot, payload.iterator.map(_.remaining().toLong).sum)
    pending ++= payload
    flush()
  }

  private def queue(kind: Int, slot: Int, length: Long): Unit = {
    val bytes = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN)
    pending += bytes.putInt(kind).putInt(slot).putLong(length).flip()
  }

  def flush(): Unit = {
    val buffers = pending.toArray
    var first = 0
    try while (first < buffers.length) {
      channel.write(buffers, first, buffers.length - first)
      while (first < buffers.length && !buffers(first).hasRemaining) first += 1
    } catch { case error: IOException => throw new Disconnected(error) }
    finally discard()
  }
}

object Wire {
  val mapper = new ObjectMapper().registerModule(com.fasterxml.jackson.module.scala.DefaultScalaModule)

  /** An encapsulated message's metadata, past the continuation marker and the length. */
  private def metadata(message: ByteBuffer): ByteBuffer = {
    message.order(ByteOrder.LITTLE_ENDIAN).position(8)
    message.slice().order(ByteOrder.LITTLE_ENDIAN)
  }

  /** Takes over what it needs of `buffer`; the caller still closes its own reference. */
  def toBatch(buffer: ArrowBuf, length: Long): ArrowRecordBatch = {
    val metadataLength = buffer.getInt(4)
    val message = Message.getRootAsMessage(buffer.nioBuffer(8, metadataLength).order(ByteOrder.LITTLE_ENDIAN))
    val start = 8L + metadataLength
    val body = buffer.slice(start, length - start)
    body.getReferenceManager.retain() // deserializeRecordBatch releases the body that it is given
    MessageSerializer.deserializeRecordBatch(message.header(new RecordBatch).asInstanceOf[RecordBatch], body)
  }

  def message(schema: Schema): ByteBuffer = framed(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT))

  /** Metadata as an encapsulated message: marker, length, flatbuffer padded to 8 bytes. */
  def framed(metadata: ByteBuffer): ByteBuffer = {
    val size = metadata.remaining()
    val padded = (size + 7) & ~7
    val out = ByteBuffer.allocate(8 + padded).order(ByteOrder.LITTLE_ENDIAN)
    out.putInt(-1).putInt(padded).put(metadata).position(8 + padded)
    out.flip()
  }
}
