package org.apache.spark.sql.execution.penstock

import java.lang.management.ManagementFactory
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.file.Path
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicInteger

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.arrow.memory.BufferAllocator
import org.apache.spark.api.python.Py4JServer
import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.util.ArrowUtils

/** Listens on a Unix socket: one connection is one fragment (or one decoder, or one question), served by one thread,
 * and both end together. So nothing is registered, and a caller that dies leaves nothing behind. */
final class Server(session: SparkSession, path: Path, memoryLimit: Long) extends Logging {
  private val listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("penstock", 0, memoryLimit)
  private val count = new AtomicInteger
  private val connections = new ConcurrentHashMap[Int, Connection]
  private lazy val gateway = {
    val server = new Py4JServer(session.sparkContext.getConf)
    server.start()
    server
  }

  def start(): Unit = {
    listener.bind(UnixDomainSocketAddress.of(path), 1024)
    daemon("penstock-accept") {
      while (true) {
        val number = count.incrementAndGet()
        val connection = new Connection(listener.accept(), number)
        connections.put(number, connection)
        daemon(s"penstock-fragment-$number")(connection.serve())
      }
    }
  }

  private def daemon(name: String)(body: => Unit): Unit = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    thread.start()
  }

  private def status(): Map[String, Any] = {
    val memory = ManagementFactory.getMemoryMXBean
    Map(
      "connections" -> connections.size,
      "threads" -> ManagementFactory.getThreadMXBean.getThreadCount,
      "heap_used" -> memory.getHeapMemoryUsage.getUsed,
      "heap_committed" -> memory.getHeapMemoryUsage.getCommitted,
      "arrow_allocated" -> allocator.getAllocatedMemory,
      "arrow_limit" -> allocator.getLimit,
      "direct_reserved" -> io.netty.util.internal.PlatformDependent.usedDirectMemory(),
      "spark_execution" -> org.apache.spark.SparkEnv.get.memoryManager.executionMemoryUsed)
  }

  private final class Connection(channel: SocketChannel, number: Int) {
    private val wire = new Wire(channel)
    private val memory: BufferAllocator = allocator.newChildAllocator(s"fragment $number", 0, memoryLimit)
    @volatile private var runner: Option[Runner] = None
    private var lines: Option[JsonLines] = None

    def serve(): Unit =
      try while (true) answer()
      catch {
        case _: Disconnected => // the caller closed the fragment, or is gone
        case error: Throwable => logError(s"fragment $number failed", error)
      } finally {
        connections.remove(number)
        channel.close()
        wire.discard()
        runner.foreach(_.close())
        lines.foreach(_.close())
        memory.close()
      }

    def interrupt(): Unit = runner.foreach(_.interrupt())

    private def answer(): Unit = wire.readHeader() match {
      case Header(Kind.Plan, _, length) =>
        val request = wire.readJson(length)
        val query = readQuery(request)
        reporting {
          val planned = request.get("mode").asText match {
            case "direct" => new DirectRunner(session, query, memory)
            case "job" => new JobRunner(session, query)
          }
          runner = Some(planned)
          wire.writeSchema(number, planned.schema)
        }
      case Header(Kind.Analyse, _, length) =>
        val query = readQuery(wire.readJson(length))
        reporting {
          val analysis = new Analysis(session, query)
          val used = analysis.used.map(_.toJson)
          wire.writeJson(Kind.Info, Map("schema" -> Wire.message(analysis.schema), "used" -> used))
        }
      case Header(Kind.Explain, _, length) =>
        val query = readQuery(wire.readJson(length))
        reporting {
          val planner = new Planner(session)
          val plan = planner.physical(planner.project(planner.analyse(query, RunSource(_)), query))
          wire.writeJson(Kind.Info, Map("plan" -> plan.treeString))
        }
      case Header(Kind.Attach, _, _) =>
        reporting(wire.writeJson(Kind.Info, Map[String, Any]("port" -> gateway.getListeningPort, "secret" -> gateway.secret)))
      case Header(Kind.Status, collect, _) =>
        if (collect == 1) System.gc()
        wire.writeJson(Kind.Info, status())
      case Header(Kind.Functions, _, _) => reporting(wire.writeJson(Kind.Info, Functions.of(session)))
      case Header(Kind.Decode, longestLine, length) =>
        val schema = wire.readSchema(length)
        reporting {
          lines = Some(new JsonLines(schema, longestLine, memory))
          wire.writeDone()
        }
      case Header(Kind.Lines, _, length) if lines.isDefined => reporting(lines.get.answer(length, wire))
      case Header(Kind.FileLines, _, length) if lines.isDefined =>
        val range = wire.readJson(length)
        reporting(lines.get.answerFile(range.get("path").asText, range.get("offset").asLong, range.get("length").asLong, wire))
      case Header(Kind.Cancel, other, _) => Option(connections.get(other)).foreach(_.interrupt())
      case header => runner match {
          case Some(planned) => run(planned, header)
          case None => throw new IllegalStateException(s"unexpected $header before a plan")
        }
    }

    private def readQuery(request: JsonNode): Query = {
      val names = request.get("inputs").elements.asScala.map(_.asText).toSeq
      val inputs = names.map { name =>
        val header = wire.readHeader()
        require(header.kind == Kind.Input, s"expected an input's schema, not $header")
        name -> wire.readSchema(header.length)
      }
      val keys = request.get("partition_by").elements.asScala.map(_.asText).toSeq
      Query(request.get("sql").asText, inputs, keys, request.get("partitions").asInt)
    }

    private def reporting(body: => Unit): Unit =
      try body
      catch {
        case gone: Disconnected => throw gone
        case error: Throwable =>
          wire.discard()
          wire.writeJson(Kind.Failed, Failure.report(error))
      }

    private def run(planned: Runner, first: Header): Unit = {
      val inputs = new Inputs(planned.query.inputs.map(_._2), first, wire, memory)
      reporting {
        try planned.run(inputs, wire)
        finally {
          inputs.drain()
          inputs.close()
        }
        wire.writeDone()
      }
      planned.release()
    }
  }
}
