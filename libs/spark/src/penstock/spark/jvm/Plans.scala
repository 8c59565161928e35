package org.apache.spark.sql.execution.penstock

import java.nio.ByteBuffer
import java.util.concurrent.{ExecutionException, Semaphore}

import scala.jdk.CollectionConverters._

import com.google.common.cache.{Cache, CacheBuilder, Weigher}
import com.google.common.util.concurrent.{ExecutionError, UncheckedExecutionException}
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.{Partition, SparkEnv}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.util.Utils

/** What runs: rows, or whole columns, of one partition or several. Only one run at a time may use it. */
final case class Executable(rdd: RDD[_], partitions: Array[Partition], isColumns: Boolean)

/** The columns of a query: what comes of each input, what is written, and what the caller is told of the result. */
final case class Answers(received: Seq[Schema], written: Schema, told: Schema)

object Answers {
  def of(query: Query, planned: Planned): Answers = planned.crossing match {
    case None => Answers(query.inputs.map(_._2), planned.schema, planned.schema)
    case Some(crossing) =>
      val received = query.inputs.map { case (_, schema) => crossing.received(schema) }
      Answers(received, crossing.written(planned.schema), crossing.told(planned.schema))
  }
}

/** A plan as Spark sends one to its executors: a thread that runs it has a copy, since generated code, hash maps and
 * expressions keep what they are at in the objects of their plan. */
final class SharedPlan(val answers: Answers, message: ByteBuffer) {
  def size: Int = message.remaining

  def copied(): Executable =
    SharedPlan.serializer.deserialize[Executable](message.duplicate(), Utils.getContextOrSparkClassLoader)
}

object SharedPlan {
  def of(answers: Answers, executable: Executable): SharedPlan = new SharedPlan(answers, serializer.serialize(executable))

  private def serializer = SparkEnv.get.closureSerializer.newInstance()
}

/** Plans by their queries. Each subtask asks for the plan of its fragment, and so does each job after another: what
 * Spark's optimiser and code generator take their time for, they do once. Those that were not asked for in the longest
 * time make room for others. */
final class Plans(session: SparkSession) {
  private val known: Cache[Query, SharedPlan] = {
    val size: Weigher[Query, SharedPlan] = (_, plan) => plan.size
    CacheBuilder.newBuilder().maximumWeight(Plans.MostBytes).concurrencyLevel(1).weigher(size).build[Query, SharedPlan]()
  }

  /** A job of many tasks asks for hundreds of plans at once: made one for each core, they take no longer, and the heap
   * holds what Spark makes of a few of them. */
  private val makers = new Semaphore(Runtime.getRuntime.availableProcessors)

  def count: Long = known.size

  /** The plan of a query; whoever asks while another has it made waits for that. */
  def of(query: Query): SharedPlan =
    try known.get(query, () => made(query))
    catch {
      case wrapped @ (_: ExecutionException | _: UncheckedExecutionException | _: ExecutionError) => throw wrapped.getCause
    }

  private def made(query: Query): SharedPlan = {
    makers.acquire()
    try shared(query)
    finally makers.release()
  }

  private def shared(query: Query): SharedPlan = {
    val planner = new Planner(session)
    val planned = planner.plan(query)
    val rdd: RDD[_] = planned.physical match {
      case columns: ArrowPlan => planner.executeColumns(columns)
      case rows => planner.execute(rows)
    }
    SharedPlan.of(Answers.of(query, planned), Executable(rdd, rdd.partitions, planned.physical.isInstanceOf[ArrowPlan]))
  }
}

object Plans {
  private val MostBytes = 64L << 20
}
