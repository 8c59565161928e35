package org.apache.spark.sql.execution.penstock

import scala.jdk.CollectionConverters._

import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.{CollapseProject, ColumnPruning, RemoveNoopOperators}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.rules.RuleExecutor
import org.apache.spark.sql.types.IntegerType

/** What of a query's only input comes here, and what the caller makes of the answer: columns that a query passes on stay
 * with the caller, who has them already.
 *
 * @param places for each column of the result its place in the input, and in that column, where it is a field of one; or
 *   nothing, where the query computes it
 * @param sent the places of the columns that the query reads
 * @param isNumbered whether rows have a number, after those columns and after the computed ones of the answer: it says
 *   which row of the input one of the result is. Else they are the same rows
 * @param isInOrder whether rows of the result follow each other as those of the input do */
final case class Crossing(places: Seq[Seq[Int]], sent: Seq[Int], isNumbered: Boolean, isInOrder: Boolean) {
  def isComputed(column: Int): Boolean = places(column).isEmpty

  /** The columns that come, of the input's. */
  def received(input: Schema): Schema = numbered(sent.map(input.getFields.get))

  /** The columns that are written, of the result's. */
  def written(result: Schema): Schema = numbered(places.indices.filter(isComputed).map(result.getFields.get))

  /** The result's schema, which says the rest to the caller. */
  def told(result: Schema): Schema = {
    val numbers = Seq(places.map(_.mkString(".")), sent).map(_.mkString(","))
    val said = numbers ++ Seq(isNumbered, isInOrder).map(flag => if (flag) "1" else "0")
    new Schema(result.getFields, Map(Crossing.Key -> said.mkString(";")).asJava)
  }

  private def numbered(fields: Seq[Field]): Schema =
    new Schema((fields ++ Option.when(isNumbered)(Crossing.NumberField)).asJava)
}

object Crossing {
  private val Key = "penstock.crossing"
  private val Number = "_row"
  private val NumberField = new Field(Number, FieldType.notNullable(new ArrowType.Int(32, true)), null)

  /** The optimised plan of a query over fewer columns, if it passes some on: one that is made of nothing but choices
   * among rows and columns of one input, and functions of them. With more than one partition, each row's is the last
   * column. */
  def of(optimised: LogicalPlan, partitions: Int): Option[(LogicalPlan, Crossing)] = {
    val returned = if (partitions > 1) optimised.output.init else optimised.output
    inputOf(optimised).map(input => (input, returned.map(placeIn(input, optimised, _)))).collect {
      case (input, places) if places.exists(_.nonEmpty) =>
        val computed = returned.zip(places).collect { case (column, Nil) => column }
        val destination = optimised.output.drop(returned.size)
        val isRowByRow = partitions == 1 && !optimised.exists(node => !node.isInstanceOf[Project] && node != input)
        val reads = reading(computed, optimised)
        // Rows of no columns are not counted.
        val isNumbered = !isRowByRow || computed.nonEmpty && readIn(reads).output.isEmpty
        val plan = if (isNumbered) numbered(computed, destination, optimised) else reads
        val sent = readIn(plan).output.map(column => input.output.indexWhere(_.exprId == column.exprId)).filter(_ >= 0)
        val isInOrder = !optimised.exists { case _: Window | _: WindowGroupLimit => true; case _ => false }
        (plan, Crossing(places, sent, isNumbered, isInOrder))
    }
  }

  /** Where a column of a plan is in its input, and where in that column; nothing if the plan computes it. */
  private def placeIn(input: ArrowInput, plan: LogicalPlan, column: Attribute): Seq[Int] = {
    val (origin, path) = originOf(plan, column.exprId, Nil)
    input.output.indexWhere(_.exprId == origin) match {
      case -1 => Nil
      case place => place +: path
    }
  }

  /** The only input of a plan whose rows are all rows of it, each at most once. */
  private def inputOf(plan: LogicalPlan): Option[ArrowInput] = plan match {
    case input @ ArrowInput(_, _: RunSource) => Some(input)
    case _: Project | _: Filter | _: Window | _: WindowGroupLimit if !plan.expressions.exists(_.exists(isElsewhere)) =>
      inputOf(plan.children.head)
    case _ => None
  }

  /** What is not computed from the row alone where it stands. */
  private def isElsewhere(expression: Expression): Boolean = expression match {
    case _: PlanExpression[_] | _: PythonFuncExpression | _: Generator => true
    case _ => false
  }

  /** The column that another is, or is a field of, as far down as it is passed on; and where that field is in it. */
  @scala.annotation.tailrec
  private def originOf(plan: LogicalPlan, column: ExprId, path: List[Int]): (ExprId, List[Int]) = plan match {
    case Project(columns, child) => columns.find(_.exprId == column).flatMap(fieldOf) match {
        case Some((passed, field)) => originOf(child, passed, field ::: path)
        case None => (column, path)
      }
    case _: ArrowInput => (column, path)
    case other => originOf(other.children.head, column, path)
  }

  private def fieldOf(expression: Expression): Option[(ExprId, List[Int])] = expression match {
    case Alias(value, _) => fieldOf(value)
    case column: Attribute => Some((column.exprId, Nil))
    case GetStructField(value, place, _) => fieldOf(value).map { case (column, path) => (column, path :+ place) }
    case _ => None
  }

  /** The plan with these columns, the number of each row, and its partition. */
  private def numbered(computed: Seq[Attribute], destination: Seq[Attribute], plan: LogicalPlan): LogicalPlan = {
    val number = AttributeReference(Number, IntegerType, nullable = false)()
    val numbered = plan.transformUp {
      case input: ArrowInput => input.copy(output = input.output :+ number)
      case Project(columns, child) => Project(columns :+ number, child)
    }
    reading((computed :+ number) ++ destination, numbered)
  }

  /** The plan with these columns, over what is read for them. */
  private def reading(columns: Seq[Attribute], plan: LogicalPlan): LogicalPlan = {
    val pruned = Pruning.execute(Project(columns, plan))
    val above = pruned.collect { case node if !node.isInstanceOf[ArrowInput] => node.references }
    val read = AttributeSet(pruned.output ++ above.flatten)
    Pruning.execute(pruned.transformUp {
      case input: ArrowInput => input.copy(output = input.output.filter(read.contains))
    })
  }

  private def readIn(plan: LogicalPlan): ArrowInput = inputOf(plan).get

  private object Pruning extends RuleExecutor[LogicalPlan] {
    override protected val batches: Seq[Batch] =
      Seq(Batch("columns that nobody reads", FixedPoint(20), ColumnPruning, CollapseProject, RemoveNoopOperators))
  }
}
