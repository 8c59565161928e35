package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.types.{DataType, DayTimeIntervalType, TimestampNTZType, TimestampType}

/** Adds an interval to a timestamp as numbers. Spark goes through a calendar, in case a clock is put forward that day,
 * which takes longer than all else that is done for a row to find its window. The session's zone is UTC, where none is. */
object UtcIntervals extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformAllExpressions {
    case TimestampAddInterval(start, interval, _) if isMicros(start) && interval.dataType.isInstanceOf[DayTimeIntervalType] =>
      AddMicros(start, interval)
  }

  private def isMicros(start: Expression): Boolean = start.dataType == TimestampType || start.dataType == TimestampNTZType
}

final case class AddMicros(left: Expression, right: Expression) extends BinaryExpression {
  override def nullIntolerant: Boolean = true
  override def dataType: DataType = left.dataType

  override protected def nullSafeEval(start: Any, interval: Any): Any =
    Math.addExact(start.asInstanceOf[Long], interval.asInstanceOf[Long])

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode =
    defineCodeGen(context, result, (start, interval) => s"Math.addExact($start, $interval)")

  override protected def withNewChildrenInternal(start: Expression, interval: Expression): AddMicros =
    AddMicros(start, interval)
}
