package org.apache.spark.sql.execution.penstock

import java.io.File
import java.nio.file.Path

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.util.ShutdownHookManager

/** The JVM of an engine. Its first line of standard input is the set-up as JSON (settings may hold secrets, so they are
 * no arguments); the end of standard input, or another parent than the one that started it, ends it. */
object Main {
  // Read by PySpark when it attaches.
  @volatile private var current: SparkSession = _
  def session: SparkSession = current
  @volatile private var exitMillis = 0L

  def main(arguments: Array[String]): Unit = {
    val setup = Wire.mapper.readTree(readLine())
    exitMillis = setup.get("exit_ms").asLong
    watchParent(setup.get("parent").asLong)
    ShutdownHookManager.registerShutdownDeleteDir(new File(setup.get("work").asText))
    SqlDivide.register()
    ToJsonLine.register()
    EventTime.register()
    val builder = SparkSession.builder().withExtensions(ResolveDivide.inject(_))
    setup.get("conf").properties.asScala.foreach(entry => builder.config(entry.getKey, entry.getValue.asText))
    val session = builder.getOrCreate().asInstanceOf[SparkSession]
    session.experimental.extraStrategies = Seq(ArrowStrategy)
    current = session
    new Server(session, Path.of(setup.get("socket").asText), setup.get("memory_limit").asLong).start()
    println(Ready)
    while (System.in.read() >= 0) {}
    end()
  }

  private val Ready = "penstock: ready"

  private def readLine(): Array[Byte] =
    Iterator.continually(System.in.read()).takeWhile(byte => byte >= 0 && byte != '\n').map(_.toByte).toArray

  /** A forked child of the parent may hold our standard input open, so its end alone is not trusted. */
  private def watchParent(expected: Long): Unit = {
    def parent: Long = ProcessHandle.current().parent().map[Long](_.pid).orElse(-1L)
    val thread = new Thread(() => {
      while (parent == expected) Thread.sleep(500)
      end()
    }, "penstock-parent")
    thread.setDaemon(true)
    thread.start()
  }

  /** Exits through Spark's shutdown hooks (they delete its folders), but soon for certain. */
  private def end(): Unit = {
    val thread = new Thread(() => { Thread.sleep(exitMillis); Runtime.getRuntime.halt(1) }, "penstock-halt")
    thread.setDaemon(true)
    thread.start()
    System.exit(0)
  }
}
