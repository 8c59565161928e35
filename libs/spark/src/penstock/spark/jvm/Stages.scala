package org.apache.spark.sql.execution.penstock

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{Partial, PartialMerge}
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan}
import org.apache.spark.sql.execution.{ExpandExec, FilterExec, GenerateExec, ProjectExec, SparkPlan}
import org.apache.spark.sql.execution.aggregate.{BaseAggregateExec, HashAggregateExec, ObjectHashAggregateExec, SortAggregateExec}
import org.apache.spark.sql.execution.python.EvalPythonExec
import org.apache.spark.sql.types.{DataType, IntegerType, StringType, VariantType, YearMonthIntervalType}

/** The part of an aggregation that a fragment runs. */
final case class AggregationStage(sql: String, input: Schema, name: String)

/** The stages of `SELECT keys…, aggregates… FROM input GROUP BY keys…`: Spark's own physical plan, cut above its lowest
 * partial aggregate. A stage goes over the plan of whatever gives its rows. They are joined as physical plans: in one
 * logical plan the optimiser would drop a key that it sees to be constant, and partial results would lose a column. */
final class Stages(planner: Planner, sql: String, schema: Schema) {
  import Stages._

  private val input = ArrowInput(PinnedColumns(schema), PlanSource)
  private val aggregation = planner.analyse(sql, input)
  private val keys = keysOf(aggregation, input)
  private val distinct = new DistinctArguments(input, aggregation)
  private val plan = planner.chosen(distinct.aggregation)
  private val lowest = lowestPartial(plan)

  /** What partial results hold, in types that every Arrow library can read: the keys, then everything else. */
  private val partial: Seq[Alias] = lowest.output.zipWithIndex.map { case (column, place) =>
    Alias(crossing(column), if (place < keys.length) keys(place) else s"_b${place - keys.length}")()
  }

  /** The columns that a stage gives. */
  def output(stage: String): Seq[Attribute] = if (stage == "final") aggregation.output else partial.map(_.toAttribute)

  /** A stage over the plan that gives its rows. */
  def over(rows: SparkPlan, stage: String): SparkPlan = stage match {
    case "partial" =>
      Composed.refuseUnlike(rows, input.output)
      ProjectExec(partial, Composed(lowest, Composed(planner.chosen(distinct.rows), rows)))
    case "merge" => ProjectExec(partial, merging(partialRows(rows)))
    case "final" => plan.transformDown { case node if node eq lowest => partialRows(rows) }
  }

  /** Partial results under the ids and in the types that Spark's plan has them. */
  private def partialRows(rows: SparkPlan): SparkPlan = {
    Composed.refuseUnlike(rows, partial.map(_.toAttribute))
    ProjectExec(rows.output.zip(lowest.output).map { case (column, expected) =>
      Alias(crossed(column, expected.dataType), expected.name)(expected.exprId)
    }, rows)
  }

  private def merging(rows: SparkPlan): SparkPlan = {
    val groups = lowest.groupingExpressions.map(_.toAttribute)
    val functions = lowest.aggregateExpressions.map(_.copy(mode = PartialMerge, filter = None))
    val offset = groups.length
    lowest match {
      case hash: HashAggregateExec => hash.copy(
          groupingExpressions = groups, aggregateExpressions = functions, initialInputBufferOffset = offset, child = rows)
      case objects: ObjectHashAggregateExec => objects.copy(
          groupingExpressions = groups, aggregateExpressions = functions, initialInputBufferOffset = offset, child = rows)
      case sorted: SortAggregateExec => sorted.copy(
          groupingExpressions = groups, aggregateExpressions = functions, initialInputBufferOffset = offset, child = rows)
    }
  }

  /** Keys come first in every partial aggregate of Spark's; if that changes, nothing may be computed wrongly. */
  require(lowest.output.take(keys.length).map(_.name) == keys, s"${lowest.output} does not begin with $keys")
}

object Stages {
  private val Months = YearMonthIntervalType(YearMonthIntervalType.MONTH)

  /** A value in a type that Arrow has: of intervals the months, of texts all but what they are compared by. */
  private def crossing(column: Attribute): Expression = column.dataType match {
    case _: YearMonthIntervalType => Cast(Cast(column, Months), IntegerType)
    case kind if kind.existsRecursively(_.isInstanceOf[VariantType]) => throw new Refused(
        "the aggregation holds values of type VARIANT, which Arrow libraries cannot read", "cast them to another type")
    case kind =>
      val plain = kind.transformRecursively { case _: StringType => StringType }
      if (plain == kind) column else Cast(column, plain)
  }

  /** The same value in Spark's type again. */
  private def crossed(column: Attribute, kind: DataType): Expression = kind match {
    case _: YearMonthIntervalType => Cast(Cast(column, Months), kind)
    case _ if DataType.equalsIgnoreCompatibleNullability(column.dataType, kind) => column
    case _ => Cast(column, kind)
  }

  private val shape = "write SELECT keys…, aggregates… FROM input GROUP BY keys…, where a key is a column of the input"

  private def keysOf(plan: LogicalPlan, input: ArrowInput): Seq[String] =
    plan.collect { case aggregate: Aggregate => aggregate } match {
      case Seq(aggregate) => aggregate.groupingExpressions.map {
          case key: AttributeReference if input.outputSet.contains(key) => key.name
          case other => throw new Refused(s"the aggregation groups by `${other.sql}`, which is no column", shape)
        }
      case found => throw new Refused(s"an aggregation has one GROUP BY, not ${found.length}", shape)
    }

  private def lowestPartial(plan: SparkPlan): BaseAggregateExec = {
    val nodes = plan.collect { case node => node } // the top first
    if (nodes.exists(_.children.length > 1)) throw new Refused("the aggregation reads more than one input", shape)
    val lowest = nodes.reverseIterator.collectFirst { case node: BaseAggregateExec if isPartial(node) => node }
    lowest.foreach(_.child.foreach {
      case _: ProjectExec | _: FilterExec | _: ExpandExec | _: GenerateExec | _: EvalPythonExec | _: ArrowScanExec =>
      case other => throw new Refused(s"${other.nodeName} comes before the aggregation's GROUP BY", shape)
    })
    lowest.getOrElse(throw new Refused(
      "the aggregation has a function that is not computed in parts",
      "a Python aggregate function needs all rows of a group at once"))
  }

  private def isPartial(node: BaseAggregateExec): Boolean =
    node.requiredChildDistributionExpressions.isEmpty && node.aggregateExpressions.forall(_.mode == Partial)
}
