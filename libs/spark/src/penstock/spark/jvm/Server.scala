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
import org.apache.arrow.vector.types.pojo.Schema
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
  private val plans = new Plans(session)
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
      "plans" -> plans.count,
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
            case "job" if !new Planner(session).isDirect(query) => new JobRunner(session, query)
            case _ => new DirectRunner(session, query, plans.of(query), memory)
          }
          runner = Some(planned)
          wire.writeSchema(number, planned.schema)
        }
      case Header(Kind.SchemaOf, _, length) =>
        val query = readQuery(wire.readJson(length))
        reporting {
          val planner = new Planner(session)
          val rows = planner.analyse(query, RunSource(_))
          planner.optimise(rows) // which computes what is constant, and finds what is wrong with it
          wire.writeSchema(number, planner.schemaOf(rows.output))
        }
      case Header(Kind.Used, _, length) =>
        val query = readQuery(wire.readJson(length))
        reporting(wire.writeJson(Kind.Info, new Narrowing(session, query).used.map(_.toJson)))
      case Header(Kind.AnalyseAggregation, _, length) =>
        val sql = wire.readJson(length).get("sql").asText
        val input = readInput()
        reporting {
          val planner = new Planner(session)
          val stages = new Stages(planner, sql, input)
          def schema(stage: String) = Wire.message(planner.schemaOf(stages.output(stage)))
          wire.writeJson(Kind.Info, Map("partial" -> schema("partial"), "output" -> schema("final")))
        }
      case Header(Kind.Explain, _, length) =>
        val query = readQuery(wire.readJson(length))
        reporting {
          val plan = new Planner(session).plan(query).physical
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
      case Header(Kind.Observe, _, _) =>
        val eventTime = new EventTime(wire.readLong())
        run(wire.readHeader(), eventTime, () => wire.writeObserved(eventTime))
      case header => run(header, new EventTime(EventTime.Never), () => wire.writeDone())
    }

    private def readQuery(request: JsonNode): Query = {
      val names = request.get("inputs").elements.asScala.map(_.asText).toSeq
      val inputs = names.map(_ -> readInput())
      val keys = request.get("partition_by").elements.asScala.map(_.asText).toSeq
      val stage = Option(request.get("aggregation")).map { aggregation =>
        AggregationStage(aggregation.get("sql").asText, readInput(), aggregation.get("stage").asText)
      }
      Query(
        request.get("sql").asText, inputs, keys, request.get("partitions").asInt, stage, request.get("after").asText,
        request.get("registrations").asInt)
    }

    private def readInput(): Schema = {
      val header = wire.readHeader()
      require(header.kind == Kind.Input, s"expected an input's schema, not $header")
      wire.readSchema(header.length)
    }

    private def reporting(body: => Unit): Unit =
      try body
      catch {
        case gone: Disconnected => throw gone
        case error: Throwable =>
          wire.discard()
          wire.writeJson(Kind.Failed, Failure.report(error))
      }

    private def run(first: Header, eventTime: EventTime, finish: () => Unit): Unit = {
      val planned = runner.getOrElse(throw new IllegalStateException(s"unexpected $first before a plan"))
      val inputs = new Inputs(planned.received, first, wire, memory, eventTime)
      reporting {
        try planned.run(inputs, wire)
        finally {
          inputs.drain()
          inputs.close()
        }
        finish()
      }
      planned.release()
    }
  }
}
