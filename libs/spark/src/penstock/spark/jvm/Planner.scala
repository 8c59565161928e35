package org.apache.spark.sql.execution.penstock

import scala.collection.mutable

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.ShuffleDependency
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys
import org.apache.spark.sql.catalyst.plans.RightOuter
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{CoalesceExec, ExecSubqueryExpression, QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, ENSURE_REQUIREMENTS, EnsureRequirements, Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.ColumnarBatch

/** A fragment's query, as Python sent it. */
final case class Query(
    sql: String, // empty: the only input as it is
    inputs: Seq[(String, Schema)],
    partitionBy: Seq[String],
    partitions: Int,
    stage: Option[AggregationStage],
    after: String, // SQL over the rows so far, as `input`; empty: as they are
    registrations: Int) { // of functions, before it: the same SQL may mean something else after another one

  /** Whether it is more than one plan. */
  def isComposed: Boolean = stage.nonEmpty || after.nonEmpty
}

/** What a fragment gives, and how; and what of its input it is not given, because it passes it on. */
final case class Planned(schema: Schema, physical: SparkPlan, crossing: Option[Crossing])

/** The plan needs what direct mode does not have: another task, a broadcast, or a subquery's result. */
final class Refused(val reason: String, val hint: String) extends Exception(reason)

final class Planner(session: SparkSession) {

  /** Names resolve as if the query began with WITH: an inner CTE of the same name wins, and nothing is registered. */
  def analyse(query: Query, source: Int => BatchSource): LogicalPlan =
    analyse(query, query.inputs.zipWithIndex.map { case ((_, schema), slot) => ArrowInput(schema, source(slot)) })

  def analyse(query: Query, inputs: Seq[ArrowInput]): LogicalPlan =
    if (query.sql.isEmpty) inputs.head
    else {
      val relations = query.inputs.zip(inputs).map { case ((name, _), input) => (name, SubqueryAlias(name, input), None) }
      analysed(UnresolvedWith(parse(query.sql), relations))
    }

  /** SQL over the one relation `input`, with nothing between the two in the plan. */
  def analyse(sql: String, input: ArrowInput): LogicalPlan =
    if (sql.isEmpty) input
    else analysed(parse(sql).transformUp {
      case UnresolvedRelation(Seq("input"), _, false) => SubqueryAlias("input", input)
    })

  private def parse(sql: String): LogicalPlan = session.withActive(session.sessionState.sqlParser.parseQuery(sql))

  private def analysed(plan: LogicalPlan): LogicalPlan = session.withActive {
    val execution = session.sessionState.executePlan(plan)
    execution.assertAnalyzed()
    execution.analyzed
  }

  /** Whether only direct mode can run it. A job has neither one order of rows, which event time needs, nor one plan for
   * all its runs, which partial results need: Spark plans it anew each time, as it sees fit then. */
  def isDirect(query: Query): Boolean = query.isComposed || Observation.isOf(analyse(query, RunSource(_)))

  /** A fragment's whole plan, for direct mode. */
  def plan(query: Query): Planned = {
    val rows = analyse(query, RunSource(_))
    if (!query.isComposed) {
      val optimised = optimise(project(rows, query))
      val crossing =
        if (query.inputs.size == 1) session.withActive(Crossing.of(optimised, query.partitions)) else None
      Planned(schemaOf(rows.output), prepared(operators(crossing.fold(optimised)(_._1))), crossing.map(_._2))
    } else {
      val (lower, output) = query.stage match {
        case None => (chosen(rows), rows.output)
        case Some(AggregationStage(sql, schema, stage)) =>
          val stages = new Stages(this, sql, schema)
          (stages.over(chosen(rows), stage), stages.output(stage))
      }
      val upper = analyse(query.after, ArrowInput(output.map(_.newInstance()), PlanSource))
      Planned(schemaOf(upper.output), prepared(Composed(chosen(project(upper, query)), lower)), None)
    }
  }

  /** The Arrow schema of rows with these columns. */
  def schemaOf(output: Seq[Attribute]): Schema = ArrowUtils.toArrowSchema(
    StructType(columnsOf(output).map(c => StructField(c.name, c.dataType, c.nullable))), "UTC", true, false)

  /** The columns to return: year-month intervals become calendar ones, which every Arrow library can read. */
  private def columnsOf(output: Seq[Attribute]): Seq[NamedExpression] = output.map { column =>
    column.dataType match {
      case _: YearMonthIntervalType =>
        val months = Cast(Cast(column, YearMonthIntervalType(YearMonthIntervalType.MONTH)), IntegerType)
        val zero = Literal(0)
        val zeroSeconds = Literal(Decimal(0L, 18, 6), DecimalType(18, 6))
        Alias(MakeInterval(zero, months, zero, zero, zero, zero, zeroSeconds, failOnError = true), column.name)()
      case nested if nested.existsRecursively(_.isInstanceOf[YearMonthIntervalType]) => throw new Refused(
          s"column `${column.name}` holds a year-month interval inside a nested type, which Arrow libraries cannot read",
          "cast it to an integer number of months")
      case _ => column
    }
  }

  /** The rows to return, with their partition as a last column when there are several. */
  def project(plan: LogicalPlan, query: Query): LogicalPlan = {
    val columns = columnsOf(plan.output)
    val destination =
      if (query.partitions < 2) Nil
      else Seq(Alias(partitionOf(query.partitionBy.map(columnNamed(plan, _)), query.partitions), "_partition")())
    if (destination.isEmpty && columns == plan.output) plan else Project(columns ++ destination, plan)
  }

  private def columnNamed(plan: LogicalPlan, name: String): Attribute =
    plan.output.filter(_.name == name) match {
      case Seq(column) => column
      case found => throw new Refused(
          s"partition column `$name` is ${if (found.isEmpty) "not" else "more than once"} among the output columns",
          s"the columns are ${plan.output.map(_.name).mkString(", ")}")
    }

  /** Spark's hash as an unsigned number, cut into equal contiguous ranges. */
  private def partitionOf(keys: Seq[Expression], partitions: Int): Expression = {
    val hash = new Murmur3Hash(keys)
    hash.checkInputDataTypes() match {
      case mismatch if mismatch.isFailure =>
        throw new Refused("the partition columns have a type that cannot be hashed", "maps have no hash")
      case _ =>
    }
    val unsigned = BitwiseAnd(Cast(hash, LongType), Literal(0xFFFFFFFFL))
    Cast(ShiftRight(Multiply(unsigned, Literal(partitions.toLong)), Literal(32)), IntegerType)
  }

  /** What Spark's optimiser makes of a plan that will run again and again. */
  def optimise(plan: LogicalPlan): LogicalPlan =
    session.withActive(session.sessionState.executePlan(PerRun(plan)).optimizedPlan)

  /** The operators that Spark chooses for a plan. */
  def chosen(plan: LogicalPlan): SparkPlan = operators(optimise(plan))

  private def operators(optimised: LogicalPlan): SparkPlan = session.withActive {
    QueryExecution.createSparkPlan(session.sessionState.planner, PreferHashJoins(UtcTimestamps(optimised)))
  }

  /** A physical plan ready to run, with no exchange: every row is in the one partition already. */
  private def prepared(chosen: SparkPlan): SparkPlan = session.withActive {
    val rules = QueryExecution.preparations(session, None, subquery = false).flatMap {
      case rule: EnsureRequirements => Seq(rule, DropOnePartitionExchanges, CheckInterruption, KeepColumns)
      case rule => Seq(rule)
    }
    Observation.check(chosen)
    val physical = QueryExecution.prepareForExecution(rules, chosen)
    refuseJobs(physical)
    KeepColumns.atTheEnd(physical)
  }

  def execute(physical: SparkPlan): RDD[InternalRow] = checked(physical.execute())

  def executeColumns(physical: ArrowPlan): RDD[ColumnarBatch] = checked(physical.executeColumnar())

  private def checked[T](execute: => RDD[T]): RDD[T] = session.withActive {
    val rdd = execute
    refuseShuffles(rdd)
    rdd
  }

  private def refuseJobs(plan: SparkPlan): Unit = plan.foreach { node =>
    node match {
      case _: BroadcastExchangeLike => throw new Refused(
          "the query needs a broadcast, which a fragment cannot do for every batch",
          "join on an equality, or use an inner join")
      case exchange: Exchange => throw new Refused(
          s"the query needs an exchange (${exchange.outputPartitioning}), which a fragment does not have",
          "leave out REPARTITION, DISTRIBUTE BY, and CTEs with random functions that are read twice")
      case _: InMemoryTableScanExec => throw new Refused("the query reads a cached table", "read the fragment's inputs only")
      case _ =>
    }
    if (node.expressions.exists(_.exists(_.isInstanceOf[ExecSubqueryExpression]))) throw new Refused(
      "the query needs a subquery's result before it can start, which a fragment cannot compute for every batch",
      "write it as a join with the aggregated input")
  }

  private def refuseShuffles(rdd: RDD[_]): Unit = {
    val seen = mutable.Set.empty[Int]
    def visit(rdd: RDD[_]): Unit = if (seen.add(rdd.id)) rdd.dependencies.foreach {
      case _: ShuffleDependency[_, _, _] =>
        throw new Refused("the query needs a shuffle, which a fragment does not have", "take LIMIT from one input only")
      case dependency => visit(dependency.rdd)
    }
    visit(rdd)
  }
}

/** Joins build a hash table of their right side, where Spark would sort both: it knows no sizes, and a fragment's input
 * is a batch, not a table. A hint of the user's own stands. */
object PreferHashJoins extends Rule[LogicalPlan] {
  private val byHash = Some(HintInfo(strategy = Some(SHUFFLE_HASH)))

  override def apply(plan: LogicalPlan): LogicalPlan = plan.transform {
    case join @ ExtractEquiJoinKeys(kind, _, _, _, _, _, _, JoinHint.NONE) =>
      val hint = if (kind == RightOuter) JoinHint(byHash, None) else JoinHint(None, byHash)
      join.asInstanceOf[Join].copy(hint = hint)
  }
}

/** Spark asks for exchanges to one partition (joins get them); with one partition there is nothing to exchange. An
 * exchange of another origin is somebody's wish, or keeps a random CTE the same for all its readers. */
object DropOnePartitionExchanges extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case ShuffleExchangeExec(partitioning, child, ENSURE_REQUIREMENTS, _, _) if partitioning.numPartitions == 1 =>
      if (child.outputPartitioning == SinglePartition) child else CoalesceExec(1, child)
  }
}
