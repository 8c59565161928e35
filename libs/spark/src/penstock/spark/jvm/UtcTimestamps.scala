package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.types.{DataType, DayTimeIntervalType, TimestampNTZType, TimestampType}

/** Timestamps as the numbers that they are. Spark adds an interval by a calendar, in case a clock is put forward that
 * day, and makes a local time of an instant by the rules of a zone, which takes longer than all else that is done for a
 * row to find its window. The session's zone is UTC, where local times are instants and no clock is put forward. */
object UtcTimestamps extends Rule[LogicalPlan] {
  override def apply(plan: LogicalPlan): LogicalPlan = plan.transformAllExpressions {
    case TimestampAddInterval(start, interval, _) if isMicros(start) && interval.dataType.isInstanceOf[DayTimeIntervalType] =>
      AddMicros(start, interval)
    case Cast(moment, kind @ (TimestampType | TimestampNTZType), Some("UTC"), _) if isMicros(moment) && moment.dataType != kind =>
      SameMicros(moment, kind)
  }

  private def isMicros(start: Expression): Boolean = start.dataType == TimestampType || start.dataType == TimestampNTZType
}

/** An instant as a local time, or a local time as an instant. */
final case class SameMicros(child: Expression, dataType: DataType) extends UnaryExpression {
  override def nullIntolerant: Boolean = true

  override protected def nullSafeEval(moment: Any): Any = moment

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode = {
    val moment = child.genCode(context)
    result.copy(code = moment.code, isNull = moment.isNull, value = moment.value)
  }

  override protected def withNewChildInternal(moment: Expression): SameMicros = copy(child = moment)
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
