package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.execution.{FilterExec, ProjectExec, SparkPlan}

/** Where a plan may observe event time: in one place, and with nothing that holds rows back between observing a row and
 * asking for the watermark before it. */
object Observation {
  def isOf(plan: LogicalPlan): Boolean = plan.exists(_.expressions.exists(has[OfEventTime]))

  def check(plan: SparkPlan): Unit = {
    if (plan.collect { case node if holds[Observe](node) => node }.length > 1) throw new Refused(
      "event time is observed more than once", "call penstock_observe once and read its rows once")
    plan.foreach { node =>
      if (holds[WatermarkBefore](node) && !node.children.forall(isObserved)) throw new Refused(
        "the watermark before a row is asked for when the row may have passed",
        "call penstock_watermark right above penstock_observe")
    }
  }

  private def isObserved(plan: SparkPlan): Boolean = plan match {
    case project: ProjectExec => holds[Observe](project) || isObserved(project.child)
    case filter: FilterExec => isObserved(filter.child)
    case _ => false
  }

  private def holds[T <: Expression: reflect.ClassTag](node: SparkPlan): Boolean = node.expressions.exists(has[T])

  private def has[T: reflect.ClassTag](expression: Expression): Boolean = expression.exists {
    case _: T => true
    case _ => false
  }
}
