package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute}
import org.apache.spark.sql.execution.{ProjectExec, SparkPlan}
import org.apache.spark.sql.types.DataType

/** One physical plan over another, before it is prepared: generated code then runs through both. */
object Composed {
  def apply(upper: SparkPlan, lower: SparkPlan): SparkPlan = {
    val scans = upper.collectLeaves().count { case ArrowScanExec(_, source) => source == PlanSource; case _ => false }
    if (scans > 1 && !isRepeatable(lower)) throw new Refused(
      "rows that differ from one reading to the next are read more than once", "read `input` once")
    upper.transformDown { case ArrowScanExec(output, PlanSource) => renamed(lower, output) }
  }

  private def isRepeatable(plan: SparkPlan): Boolean = !plan.exists(_.expressions.exists(!_.deterministic))

  private def renamed(plan: SparkPlan, output: Seq[Attribute]): SparkPlan =
    if (plan.output.map(_.exprId) == output.map(_.exprId)) plan
    else ProjectExec(plan.output.zip(output).map { case (column, name) => Alias(column, name.name)(name.exprId) }, plan)

  /** What is planned for some columns must not be given others, nor nulls where it counts on there being none. */
  def refuseUnlike(plan: SparkPlan, expected: Seq[Attribute]): Unit = {
    def text(columns: Seq[Attribute]): String =
      columns.map(c => s"${c.name} ${c.dataType.sql}${if (c.nullable) "" else " NOT NULL"}").mkString(", ")
    val fits = plan.output.length == expected.length && plan.output.zip(expected).forall { case (column, wanted) =>
      column.name == wanted.name && (wanted.nullable || !column.nullable) &&
      DataType.equalsIgnoreCompatibleNullability(column.dataType, wanted.dataType)
    }
    if (!fits) throw new Refused(
      s"the aggregation is of other rows than the query gives: of (${text(expected)}), but it gives (${text(plan.output)})",
      "name the same columns in the same order and types")
  }
}
