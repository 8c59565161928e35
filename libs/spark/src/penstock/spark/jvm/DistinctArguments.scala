package org.apache.spark.sql.execution.penstock

import java.util.UUID

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, AggregateFunction}
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
import org.apache.spark.sql.catalyst.plans.logical.{Aggregate, LogicalPlan, Project}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Columns whose ids are the same in every JVM and at every planning. Spark orders the columns of several DISTINCTs by
 * hashes that come of ids, and where a stage is planned must not decide what its columns mean. */
object PinnedColumns {
  private val jvm = new UUID(0, 0)

  /** Beyond the numbers that the engine gives: Spark drops a projection as redundant when the numbers of its columns are
   * those of the columns below it, whichever JVM they are of. */
  private val First = 1L << 48

  def apply(schema: Schema): Seq[AttributeReference] = apply(ArrowUtils.fromArrowSchema(schema), 0)

  def apply(columns: StructType, first: Int): Seq[AttributeReference] = columns.zipWithIndex.map { case (column, place) =>
    AttributeReference(column.name, column.dataType, column.nullable)(ExprId(First + first + place, jvm))
  }
}

/** Makes columns of what DISTINCT is of: an expression's hash may differ from JVM to JVM, a pinned column's does not. */
final class DistinctArguments(input: ArrowInput, analysed: LogicalPlan) {
  private val replaced = ReplaceExpressions(analysed)

  private val computed: Seq[Expression] = {
    val calls = replaced.collect { case aggregate: Aggregate => aggregate.expressions }.flatten.flatMap(_.collect {
      case call: AggregateExpression if call.isDistinct => call.aggregateFunction
    })
    calls.flatMap(_.children.map(value)).filterNot(isSettled).foldLeft(Vector.empty[Expression]) { (found, argument) =>
      if (found.exists(_.semanticEquals(argument))) found else found :+ argument
    }
  }
  computed.filterNot(_.references.subsetOf(input.outputSet)).foreach { argument =>
    throw new Refused(s"DISTINCT is of `${argument.sql}`, which is not the same each time", "leave out random functions")
  }

  private val columns = PinnedColumns(
    computed.zipWithIndex.foldLeft(new StructType) { case (schema, (argument, place)) =>
      schema.add(s"_d$place", argument.dataType, argument.nullable)
    },
    input.output.length)

  /** The input's rows with these columns. */
  val rows: LogicalPlan = Project(
    input.output ++ computed.zip(columns).map { case (argument, column) => Alias(argument, column.name)(column.exprId) },
    input)

  /** The aggregation of these rows. */
  val aggregation: LogicalPlan = replaced.transformUp {
    case ArrowInput(output, PlanSource) => ArrowInput(output ++ columns, PlanSource)
    case aggregate: Aggregate => aggregate.transformExpressionsUp {
        case call: AggregateExpression if call.isDistinct => call.copy(aggregateFunction = ofColumns(call.aggregateFunction))
      }
  }

  private def ofColumns(function: AggregateFunction): AggregateFunction =
    function.mapChildren {
      case order: SortOrder => order.copy(child = column(order.child))
      case argument => column(argument)
    }.asInstanceOf[AggregateFunction]

  private def column(argument: Expression): Expression =
    columns.lift(computed.indexWhere(_.semanticEquals(argument))).getOrElse(argument)

  private def value(argument: Expression): Expression = argument match {
    case order: SortOrder => order.child
    case other => other
  }

  private def isSettled(argument: Expression): Boolean =
    argument.foldable || input.output.exists(_.semanticEquals(argument))
}
