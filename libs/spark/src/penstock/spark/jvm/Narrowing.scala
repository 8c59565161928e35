package org.apache.spark.sql.execution.penstock

import java.util.regex.Pattern

import scala.util.control.NonFatal

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionWithRandomSeed}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Sample}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.internal.SQLConf

/** How little of a query's inputs gives the same rows. */
final class Narrowing(session: SparkSession, query: Query) extends Logging {
  private val planner = new Planner(session)
  private val inputs = query.inputs.zipWithIndex.map { case ((_, schema), slot) => ArrowInput(schema, RunSource(slot)) }
  private val analysed = planner.analyse(query, inputs)
  private val schema: Schema = planner.schemaOf(analysed.output)

  /** What of each input the query must be given. The SQL may still name a column that the optimiser drops, or count
   * columns by position (`ORDER BY 2`), so inputs are narrowed only if the query is seen to stay the same. */
  def used: Seq[Fields] = {
    val found = Reads.of(planner.optimise(analysed))
    val least = inputs.indices.map(slot => found.getOrElse(slot, Fields.none).of(inputs(slot).schema))
    val read = least.map(_.whole)
    val readOrNamed = read.zip(named).map { case (some, others) => some and others }
    val columns = Seq(read, readOrNamed).find(isSame).getOrElse(everything)
    val pruned = columns.zip(least).map { case (whole, fields) => Fields(whole.fields ++ fields.fields) }
    if (isSameButForTypes(columns, pruned)) pruned else columns
  }

  private val everything: Seq[Fields] = inputs.map(input => Fields.whole(input.output.indices))

  /** The columns whose names are words of the SQL. */
  private def named: Seq[Fields] = inputs.map { input =>
    Fields.whole(input.output.indices.filter { ordinal =>
      s"(?U)(?<!\\w)${Pattern.quote(input.output(ordinal).name)}(?!\\w)".r.findFirstIn(query.sql).nonEmpty
    })
  }

  /** Whether the query over these columns is optimised to what the query over all columns is. */
  private def isSame(columns: Seq[Fields]): Boolean = columns == everything || holds {
    val narrowed = analyse(columns)
    val expected = comparable.transformWithSubqueries { case input: ArrowInput => narrow(input, columns) }
    // Optimised once more, because a projection may now be of all that there is.
    planner.schemaOf(narrowed.output) == schema &&
    optimise(expected).canonicalized == optimise(optimise(narrowed)).canonicalized
  }

  /** Whether narrower structs change nothing but types; a `struct.*` would have fewer columns. */
  private def isSameButForTypes(columns: Seq[Fields], pruned: Seq[Fields]): Boolean = columns == pruned || holds {
    val narrowed = analyse(pruned)
    planner.schemaOf(narrowed.output) == schema && shape(narrowed) == shape(analyse(columns))
  }

  private def holds(same: => Boolean): Boolean =
    try same
    catch {
      case NonFatal(error) =>
        logDebug("the query needs more of its inputs", error)
        false
    }

  private def analyse(reads: Seq[Fields]): LogicalPlan = planner.analyse(query, inputs.map(narrow(_, reads)))

  private def narrow(input: ArrowInput, reads: Seq[Fields]): ArrowInput = input.source match {
    case RunSource(slot) => input.copy(output = reads(slot).sorted.map { case (ordinal, inner) =>
        val column = input.output(ordinal)
        column.withDataType(inner.narrow(column.dataType))
      })
    case _ => input
  }

  private lazy val comparable = optimise(analysed)

  /** Optimises without what differs from one analysis to the next: seeds drawn at random, and rules that order
   * columns by hashed ids (for several DISTINCT aggregates, and for fields taken out of structs). */
  private def optimise(plan: LogicalPlan): LogicalPlan = SQLConf.withExistingConf(withoutNestedRules) {
    planner.optimise(plan.transformWithSubqueries {
      case sample: Sample => settled(sample.copy(seed = Some(0L)))
      case node => settled(node)
    })
  }

  private def settled(node: LogicalPlan): LogicalPlan = node.transformExpressions {
    case random: ExpressionWithRandomSeed => random.withNewSeed(0L)
    case aggregate: AggregateExpression => aggregate.copy(isDistinct = false)
  }

  private lazy val withoutNestedRules: SQLConf = {
    val conf = session.sessionState.conf.clone()
    conf.setConf(SQLConf.NESTED_SCHEMA_PRUNING_ENABLED, false)
    conf.setConf(SQLConf.NESTED_PRUNING_ON_EXPRESSIONS, false)
    conf
  }

  private def shape(plan: LogicalPlan): Seq[Class[_]] = plan.collectWithSubqueries { case node =>
    node.getClass +: node.expressions.flatMap(_.collect { case expression: Expression => expression.getClass })
  }.flatten
}
