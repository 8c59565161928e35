package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.types.{ArrayType, DataType, StructType}

/** What is read of a value. */
sealed trait Reads {

  /** Both what this and another read. */
  def and(other: Reads): Reads = (this, other) match {
    case (some: Fields, others: Fields) => some and others
    case _ => Everything
  }

  /** The same for a value of a given type, in which a struct has at least one field. */
  def of(kind: DataType): Reads = (this, kind) match {
    case (some: Fields, struct: StructType) => some.of(struct)
    case (_, array: ArrayType) => of(array.elementType)
    case _ => Everything
  }

  /** The part of a type that is read. */
  def narrow(kind: DataType): DataType = (this, kind) match {
    case (some: Fields, struct: StructType) => StructType(some.sorted.map { case (ordinal, reads) =>
        struct(ordinal).copy(dataType = reads.narrow(struct(ordinal).dataType))
      })
    case (_, array: ArrayType) => array.copy(elementType = narrow(array.elementType))
    case _ => kind
  }

  /** As Python reads it: null for everything, else pairs of an ordinal and what is read there. */
  def toJson: Any = this match {
    case Everything => null
    case some: Fields => some.sorted.map { case (ordinal, reads) => Seq(ordinal, reads.toJson) }
  }
}

case object Everything extends Reads

/** Some fields of a struct, or of the structs in an array; with none, only whether the value is there. */
final case class Fields(fields: Map[Int, Reads]) extends Reads {
  def sorted: Seq[(Int, Reads)] = fields.toSeq.sortBy(_._1)

  def whole: Fields = Fields.whole(fields.keys)

  def and(other: Fields): Fields = Fields((fields.keySet ++ other.fields.keySet).iterator.map { ordinal =>
    ordinal -> (fields.get(ordinal) ++ other.fields.get(ordinal)).reduce(_ and _)
  }.toMap)

  /** Of a struct that nothing is read of, its smallest field stays: a batch of no columns has no rows in Arrow. */
  def of(struct: StructType): Fields = {
    val smallest = struct.indices.minByOption(struct(_).dataType.defaultSize)
    val read = if (fields.isEmpty) smallest.map(_ -> Fields.none).toMap else fields
    Fields(read.map { case (ordinal, reads) => ordinal -> reads.of(struct(ordinal).dataType) })
  }
}

object Fields {
  val none: Fields = Fields(Map.empty)
  def whole(ordinals: Iterable[Int]): Fields = Fields(ordinals.map(_ -> Everything).toMap)
}

object Reads {
  private type Found = Seq[(ExprId, Reads)]

  /** What an optimised plan reads of each input, by its slot; an input that nothing is read of is left out. */
  def of(plan: LogicalPlan): Map[Int, Fields] = {
    val columns = plan.collectWithSubqueries { case ArrowInput(output, RunSource(slot)) =>
      output.zipWithIndex.map { case (column, ordinal) => column.exprId -> (slot, ordinal) }
    }.flatten.toMap
    inPlan(plan).flatMap { case (id, reads) =>
      columns.get(id).map { case (slot, ordinal) => slot -> Fields(Map(ordinal -> reads)) }
    }.groupMapReduce(_._1)(_._2)(_ and _)
  }

  private def inPlan(plan: LogicalPlan): Found = plan.output.flatMap(in) ++ plan.collectWithSubqueries {
    case node if !node.isInstanceOf[ArrowInput] =>
      val byPosition = if (isByName(node)) Nil else node.children.flatMap(_.output)
      (readIn(node) ++ byPosition).flatMap(in)
  }.flatten

  /** What a node computes with. A projection that passes a column on reads nothing of it: who takes it does. */
  private def readIn(node: LogicalPlan): Seq[Expression] = node match {
    case Project(columns, _) => columns.filterNot(_.isInstanceOf[Attribute])
    case other => other.expressions
  }

  /** Whether a node reads no columns of its children but those in its expressions. */
  private def isByName(node: LogicalPlan): Boolean = node match {
    case _: Project | _: Filter | _: Aggregate | _: Join | _: Sort | _: Window | _: WindowGroupLimit | _: Expand |
        _: Generate | _: GlobalLimit | _: LocalLimit | _: Offset | _: Sample | _: BaseEvalPython |
        _: RepartitionOperation => true
    case _ => false
  }

  private def in(expression: Expression): Found = expression match {
    case IsNull(Path(column, steps, others)) => (column -> reading(steps, Fields.none)) +: others.flatMap(in)
    case IsNotNull(Path(column, steps, others)) => (column -> reading(steps, Fields.none)) +: others.flatMap(in)
    case Path(column, steps, others) => (column -> reading(steps, Everything)) +: others.flatMap(in)
    case leaf if leaf.children.isEmpty => leaf.references.toSeq.map(_.exprId -> Everything)
    case other => other.children.flatMap(in)
  }

  private def reading(steps: Seq[Int], last: Reads): Reads =
    steps.foldRight(last)((ordinal, reads) => Fields(Map(ordinal -> reads)))

  /** A column, the fields taken out of it one after the other, and what else is computed on the way. */
  private object Path {
    def unapply(expression: Expression): Option[(ExprId, Seq[Int], Seq[Expression])] = expression match {
      case column: Attribute => Some((column.exprId, Nil, Nil))
      case GetStructField(Path(column, steps, others), ordinal, _) => Some((column, steps :+ ordinal, others))
      case GetArrayStructFields(Path(column, steps, others), _, ordinal, _, _) => Some((column, steps :+ ordinal, others))
      case GetArrayItem(Path(column, steps, others), index, _) => Some((column, steps, others :+ index))
      case _ => None
    }
  }
}
