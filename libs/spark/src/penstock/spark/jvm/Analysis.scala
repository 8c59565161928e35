package org.apache.spark.sql.execution.penstock

import scala.util.control.NonFatal

import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionWithRandomSeed}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Sample}
import org.apache.spark.sql.classic.SparkSession

/** A query's schema, and how little of its inputs gives the same rows. */
final class Analysis(session: SparkSession, query: Query) extends Logging {
  private val planner = new Planner(session)
  private val inputs = query.inputs.zipWithIndex.map { case ((_, schema), slot) => ArrowInput(schema, RunSource(slot)) }
  private val analysed = planner.analyse(query, inputs)
  private lazy val optimised = planner.optimise(analysed)

  val schema: Schema = planner.schemaOf(analysed)

  /** What of each input the query must be given. The SQL may still name a column that the optimiser drops, or count
   * columns by position (`ORDER BY 2`), so inputs are narrowed only if the query is seen to stay the same. */
  def used: Seq[Fields] = {
    val read = Reads.of(optimised)
    val least = inputs.indices.map(slot => read.getOrElse(slot, Fields.none).of(inputs(slot).schema))
    val columns = Iterator(least.map(_.whole), least.map(_.whole).zip(named).map { case (some, others) => some and others })
      .find(isSame).getOrElse(everything)
    val pruned = columns.zip(least).map { case (whole, fields) => Fields(whole.fields ++ fields.fields) }
    if (isSameButForTypes(columns, pruned)) pruned else columns
  }

  private val everything: Seq[Fields] = inputs.map(input => Fields.whole(input.output.indices))

  /** The columns whose names are in the SQL. */
  private def named: Seq[Fields] =
    inputs.map(input => Fields.whole(input.output.indices.filter(ordinal => query.sql.contains(input.output(ordinal).name))))

  /** Whether the query over these columns is optimised to what the query over all columns is. */
  private def isSame(columns: Seq[Fields]): Boolean = columns == everything || holds {
    val narrowed = analyse(columns)
    val expected = optimised.transformWithSubqueries { case input: ArrowInput => narrow(input, columns) }
    planner.schemaOf(narrowed) == schema && settled(expected) == settled(planner.optimise(narrowed))
  }

  /** Whether narrower structs change nothing but types; a `struct.*` would have fewer columns. */
  private def isSameButForTypes(columns: Seq[Fields], pruned: Seq[Fields]): Boolean = columns == pruned || holds {
    val narrowed = analyse(pruned)
    planner.schemaOf(narrowed) == schema && shape(narrowed) == shape(analyse(columns))
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

  /** Optimised once more, for projections that came to nothing, and without what each analysis draws at random. */
  private def settled(plan: LogicalPlan): LogicalPlan = planner.optimise(plan.transformWithSubqueries {
    case sample: Sample => unseeded(sample.copy(seed = Some(0L)))
    case node => unseeded(node)
  }).canonicalized

  private def unseeded(node: LogicalPlan): LogicalPlan = node.transformExpressions {
    case random: ExpressionWithRandomSeed => random.withNewSeed(0L)
  }

  private def shape(plan: LogicalPlan): Seq[Class[_]] = plan.collectWithSubqueries { case node =>
    node.getClass +: node.expressions.flatMap(_.collect { case expression: Expression => expression.getClass })
  }.flatten
}
