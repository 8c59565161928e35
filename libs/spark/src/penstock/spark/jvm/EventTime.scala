package org.apache.spark.sql.execution.penstock

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.FunctionIdentifier
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen._
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.types._

/** The watermark of the partition whose rows a run is of, in microseconds, as the run's rows move it in their order;
 * and how many rows were late. It lives as long as the run: what lasts longer is the caller's. */
final class EventTime(private var current: Long) {
  private var previous = EventTime.Never
  private var late = 0L

  def observe(watermark: Long): Unit = {
    previous = current
    current = Math.max(current, watermark)
  }

  /** The watermark before the last row that was observed. */
  def before: Long = previous

  def countLate(): Unit = late += 1

  def watermark: Long = current
  def lateRows: Long = late
}

object EventTime {

  /** No watermark yet: it is before every other. */
  val Never: Long = Long.MinValue

  /** That of the run on this thread. */
  def ofRun: EventTime = TaskContext.get().asInstanceOf[RunContext].inputs.eventTime

  /** Before the session starts: a built-in function cannot be hidden by a user's. */
  def register(): Unit = {
    register("penstock_observe", classOf[Observe], 2)(arguments => Observe(arguments.head, arguments(1)))
    register("penstock_watermark", classOf[WatermarkBefore], 1)(arguments => WatermarkBefore(arguments.head))
    register("penstock_on_time", classOf[IsOnTime], 2)(arguments => IsOnTime(arguments.head, arguments(1)))
    register("penstock_pane", classOf[Pane], 2)(arguments => Pane(arguments.head, arguments(1)))
  }

  private def register(name: String, made: Class[_], count: Int)(make: Seq[Expression] => Expression): Unit =
    FunctionRegistry.builtin.registerFunction(
      FunctionIdentifier(name), new ExpressionInfo(made.getName, name), {
        case arguments if arguments.length == count => make(arguments)
        case arguments => throw QueryCompilationErrors.wrongNumArgsError(name, Seq(count), arguments.length)
      })
}

/** Reads or moves the run's event time. Being nondeterministic, it is evaluated once for each row where it stands: Spark
 * neither moves a filter below it nor copies it into the expressions that read it. */
sealed trait OfEventTime extends Nondeterministic {
  @transient protected var eventTime: EventTime = _
  override protected def initializeInternal(partition: Int): Unit = eventTime = EventTime.ofRun
  override def stateful: Boolean = true

  /** The name of a generated class's field that holds it. */
  protected def field(context: CodegenContext): String = {
    val kind = classOf[EventTime].getName
    val name = context.addMutableState(kind, "eventTime")
    context.addPartitionInitializationStatement(s"$name = $kind.ofRun();")
    name
  }

  protected def orNever(moment: ExprCode): String = s"(${moment.isNull} ? ${EventTime.Never}L : ${moment.value})"

  protected def orNever(moment: Any): Long = if (moment == null) EventTime.Never else moment.asInstanceOf[Long]
}

/** `penstock_observe(ts, wm)`: the row's event time, and what it raises the watermark to. */
final case class Observe(left: Expression, right: Expression)
    extends BinaryExpression with OfEventTime with ImplicitCastInputTypes {
  override def inputTypes: Seq[AbstractDataType] = Seq(TimestampNTZType, TimestampNTZType)
  override def dataType: DataType = TimestampNTZType
  override def nullable: Boolean = left.nullable
  override def prettyName: String = "penstock_observe"

  override protected def evalInternal(row: InternalRow): Any = {
    eventTime.observe(orNever(right.eval(row)))
    left.eval(row)
  }

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode = {
    val (timestamp, watermark) = (left.genCode(context), right.genCode(context))
    val observed = s"${field(context)}.observe(${orNever(watermark)});"
    timestamp.copy(code = code"${timestamp.code}\n${watermark.code}\n$observed")
  }

  override protected def withNewChildrenInternal(timestamp: Expression, watermark: Expression): Observe =
    Observe(timestamp, watermark)
}

/** `penstock_watermark(ts)`: the watermark just before the row whose observed event time this is. */
final case class WatermarkBefore(child: Expression)
    extends UnaryExpression with OfEventTime with ImplicitCastInputTypes {
  override def inputTypes: Seq[AbstractDataType] = Seq(TimestampNTZType)
  override def dataType: DataType = TimestampNTZType
  override def nullable: Boolean = true
  override def prettyName: String = "penstock_watermark"

  override protected def evalInternal(row: InternalRow): Any = {
    val before = eventTime.before
    if (before == EventTime.Never) null else before
  }

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode = result.copy(code = code"""
    long ${result.value} = ${field(context)}.before();
    boolean ${result.isNull} = ${result.value} == ${EventTime.Never}L;""")

  override protected def withNewChildInternal(timestamp: Expression): WatermarkBefore = WatermarkBefore(timestamp)
}

/** `penstock_on_time(moment, watermark)`: whether the watermark had not come to a moment yet. Each time that it had is
 * counted; a row without the moment is as late as can be. */
final case class IsOnTime(left: Expression, right: Expression)
    extends BinaryExpression with OfEventTime with Predicate with ImplicitCastInputTypes {
  override def inputTypes: Seq[AbstractDataType] = Seq(TimestampNTZType, TimestampNTZType)
  override def nullable: Boolean = false
  override def prettyName: String = "penstock_on_time"

  override protected def evalInternal(row: InternalRow): Any = {
    val watermark = orNever(right.eval(row))
    val onTime = watermark == EventTime.Never || orNever(left.eval(row)) > watermark
    if (!onTime) eventTime.countLate()
    onTime
  }

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode = {
    val (moment, watermark) = (left.genCode(context), right.genCode(context))
    val never = s"${orNever(watermark)} == ${EventTime.Never}L"
    result.copy(
      code = code"""${moment.code}
        ${watermark.code}
        boolean ${result.value} = $never || ${orNever(moment)} > ${watermark.value};
        if (!${result.value}) ${field(context)}.countLate();""",
      isNull = FalseLiteral)
  }

  override protected def withNewChildrenInternal(moment: Expression, watermark: Expression): IsOnTime =
    IsOnTime(moment, watermark)
}

/** `penstock_pane(ts, width)`: where the pane begins that a moment is in, panes of some microseconds following each
 * other since and before 1970. */
final case class Pane(left: Expression, right: Expression)
    extends BinaryExpression with ImplicitCastInputTypes {
  override def nullIntolerant: Boolean = true
  override def inputTypes: Seq[AbstractDataType] = Seq(TimestampNTZType, LongType)
  override def dataType: DataType = TimestampNTZType
  override def prettyName: String = "penstock_pane"

  override protected def nullSafeEval(timestamp: Any, width: Any): Any = {
    val (moment, size) = (timestamp.asInstanceOf[Long], width.asInstanceOf[Long])
    moment - Math.floorMod(moment, size)
  }

  override protected def doGenCode(context: CodegenContext, result: ExprCode): ExprCode =
    defineCodeGen(context, result, (moment, size) => s"$moment - Math.floorMod($moment, $size)")

  override protected def withNewChildrenInternal(timestamp: Expression, width: Expression): Pane = Pane(timestamp, width)
}
