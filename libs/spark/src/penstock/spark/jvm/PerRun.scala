package org.apache.spark.sql.execution.penstock

import java.util.concurrent.TimeUnit.{DAYS, SECONDS}

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, LeafExpression, Nondeterministic, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE
import org.apache.spark.sql.types.{DataType, DateType, TimeType, TimestampNTZType, TimestampType}

/** A plan is made once and run often, but Spark fixes the clock and the seeds of random functions when it plans.
 * These make them differ from run to run: `now()` is the time of the run, `uuid()` never comes twice. */
object PerRun {
  def apply(plan: LogicalPlan): LogicalPlan = plan.transformUpWithSubqueries { case node =>
    node.transformExpressionsUp {
      case clock if isClock(clock) => RunTime(clock.dataType)
      case ofRun: OfEventTime => ofRun
      case random: Nondeterministic => RunSeeded(random)
    }
  }

  private def isClock(expression: Expression): Boolean =
    expression.containsPattern(CURRENT_LIKE) && !expression.children.exists(_.containsPattern(CURRENT_LIKE)) &&
      (expression.dataType match {
        case DateType | TimestampType | TimestampNTZType | _: TimeType => true
        case _ => false
      })
}

/** The run's start, in the type that was asked for. The session's zone is UTC, so there is one local time. */
final case class RunTime(dataType: DataType) extends LeafExpression with CodegenFallback {
  override def nullable: Boolean = false
  override def foldable: Boolean = false
  override def eval(input: InternalRow): Any = {
    val micros = TaskContext.get().asInstanceOf[RunContext].startedAtMicros
    dataType match {
      case DateType => Math.floorDiv(micros, DAYS.toMicros(1)).toInt
      case TimestampType | TimestampNTZType => micros
      case _ => Math.floorMod(micros, DAYS.toMicros(1)) * (SECONDS.toNanos(1) / SECONDS.toMicros(1))
    }
  }
}

/** Starts a random function's sequence anew from the run's own number, where Spark would use the partition's. */
final case class RunSeeded(child: Expression) extends UnaryExpression with Nondeterministic with CodegenFallback {
  private def random: Nondeterministic = child.asInstanceOf[Nondeterministic]
  @transient private var fresh = true
  override def dataType: DataType = child.dataType
  override def nullable: Boolean = child.nullable
  override protected def initializeInternal(partition: Int): Unit = fresh = true
  override protected def evalInternal(input: InternalRow): Any = {
    if (fresh) { // only now: generated code initialises the child after its parent
      random.initialize(TaskContext.get().asInstanceOf[RunContext].number)
      fresh = false
    }
    random.eval(input)
  }
  override protected def withNewChildInternal(changed: Expression): RunSeeded = copy(child = changed)
}
