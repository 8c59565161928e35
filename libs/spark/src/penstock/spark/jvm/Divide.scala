package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.analysis.{FunctionRegistry, UnresolvedException}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.types.{DataType, IntegralType, NullType}

/** `penstock_divide(a, b)`: of integers the quotient without its fraction, in the wider of their types, as Postgres has
 * it; of anything else what Spark's `/` gives. Once the types are known, Spark's own expressions take its place. */
final case class SqlDivide(left: Expression, right: Expression) extends BinaryExpression with Unevaluable {
  override lazy val resolved: Boolean = false
  override def dataType: DataType = throw new UnresolvedException("dataType")
  override def nullable: Boolean = throw new UnresolvedException("nullable")
  override def prettyName: String = SqlDivide.Name
  override protected def withNewChildrenInternal(dividend: Expression, divisor: Expression): SqlDivide =
    SqlDivide(dividend, divisor)
}

object SqlDivide {
  val Name = "penstock_divide"

  /** Before the session starts: a built-in function cannot be hidden by a user's. */
  def register(): Unit = FunctionRegistry.builtin.registerFunction(
    FunctionIdentifier(Name), new ExpressionInfo(classOf[SqlDivide].getName, Name), {
      case Seq(dividend, divisor) => SqlDivide(dividend, divisor)
      case arguments => throw QueryCompilationErrors.wrongNumArgsError(Name, Seq(2), arguments.length)
    })
}

object ResolveDivide extends Rule[LogicalPlan] {
  def inject(extensions: SparkSessionExtensions): Unit = extensions.injectResolutionRule(_ => this)

  override def apply(plan: LogicalPlan): LogicalPlan = plan.resolveExpressionsUp {
    case divide: SqlDivide if divide.childrenResolved => quotient(divide.left, divide.right)
  }

  private def quotient(dividend: Expression, divisor: Expression): Expression =
    (dividend.dataType, divisor.dataType) match {
      case (one: IntegralType, other: IntegralType) =>
        Cast(IntegralDivide(dividend, divisor), if (one.defaultSize < other.defaultSize) other else one)
      case (one: IntegralType, NullType) => Cast(IntegralDivide(dividend, divisor), one)
      case (NullType, other: IntegralType) => Cast(IntegralDivide(dividend, divisor), other)
      case _ => Divide(dividend, divisor)
    }
}
