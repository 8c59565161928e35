package org.apache.spark.sql.execution.penstock

import org.apache.spark.{InterruptibleIterator, TaskContext}
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{And, Attribute, LeafExpression, Predicate, SortOrder}
import org.apache.spark.sql.catalyst.expressions.codegen._
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.catalyst.plans.physical.Partitioning
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.execution.{CodegenSupport, GenerateExec, SparkPlan, UnaryExecNode}
import org.apache.spark.sql.execution.joins.BaseJoinExec

/** Puts a check behind every operator that can make many rows of few, and into every join's condition: Spark's
 * generated loops never look whether anybody still waits, and a skewed join of two batches can go on for hours. */
object CheckInterruption extends Rule[SparkPlan] {
  override def apply(plan: SparkPlan): SparkPlan = plan.transformUp {
    case join: BaseJoinExec => InterruptibleExec(join.mapExpressions { expression =>
        if (join.condition.exists(_ eq expression)) And(IsStillWanted(), expression) else expression
      })
    case explode: GenerateExec => InterruptibleExec(explode)
  }

  /** Java code that throws when the run was interrupted, looking once in 65,536 times. */
  def code(context: CodegenContext): String = {
    val count = context.addMutableState(CodeGenerator.JAVA_INT, "sinceCheck")
    s"if ((++$count & 0xFFFF) == 0) ${classOf[TaskContext].getName}.get().killTaskIfInterrupted();"
  }
}

/** Always true, or the run ends here. */
final case class IsStillWanted() extends LeafExpression with Predicate {
  override def nullable: Boolean = false
  override def foldable: Boolean = false
  override def eval(input: InternalRow): Any = {
    TaskContext.get().killTaskIfInterrupted()
    true
  }
  override protected def doGenCode(context: CodegenContext, code: ExprCode): ExprCode =
    ExprCode(code"${CheckInterruption.code(context)}", FalseLiteral, TrueLiteral)
}

final case class InterruptibleExec(child: SparkPlan) extends UnaryExecNode with CodegenSupport {
  override def output: Seq[Attribute] = child.output
  override def outputPartitioning: Partitioning = child.outputPartitioning
  override def outputOrdering: Seq[SortOrder] = child.outputOrdering
  override def inputRDDs(): Seq[RDD[InternalRow]] = child.asInstanceOf[CodegenSupport].inputRDDs()

  override protected def doProduce(context: CodegenContext): String =
    child.asInstanceOf[CodegenSupport].produce(context, this)

  override def doConsume(context: CodegenContext, input: Seq[ExprCode], row: ExprCode): String =
    s"${CheckInterruption.code(context)}\n${consume(context, input)}"

  override protected def doExecute(): RDD[InternalRow] =
    child.execute().mapPartitionsInternal(rows => new InterruptibleIterator(TaskContext.get(), rows))

  override protected def withNewChildInternal(changed: SparkPlan): InterruptibleExec = copy(child = changed)
}
