package org.apache.spark.sql.execution.penstock

import org.apache.spark.sql.catalyst.{FunctionIdentifier, InternalRow}
import org.apache.spark.sql.catalyst.analysis.{FunctionRegistry, TypeCheckResult}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.expressions.codegen.{CodegenContext, ExprCode, FalseLiteral}
import org.apache.spark.sql.catalyst.expressions.codegen.Block._
import org.apache.spark.sql.types.{DataType, StringType}
import org.apache.spark.unsafe.types.UTF8String

/** `penstock_json_line(format of timestamps, name, value, name, value, …)`: a row as a line of JSON with its newline. A
 * column of them in Arrow is what a file of JSON lines holds. */
final case class ToJsonLine(timestamps: String, names: Seq[String], children: Seq[Expression]) extends Expression {
  override def dataType: DataType = StringType
  override def nullable: Boolean = false
  override def prettyName: String = ToJsonLine.Name
  private def format: JsonFormat = JsonFormat(unixMillis = timestamps == ToJsonLine.UnixMillis)

  override def checkInputDataTypes(): TypeCheckResult = children.map(_.dataType).find(!format.accepts(_)) match {
    case Some(kind) => TypeCheckResult.TypeCheckFailure(s"JSON cannot hold ${kind.sql}")
    case None => TypeCheckResult.TypeCheckSuccess
  }

  @transient private lazy val line = new JsonObject(names, children.map {
    case _: RawJson => JsonFormat.raw
    case value => format.of(value.dataType)
  }.toArray)

  override def eval(input: InternalRow): Any = {
    val writer = new JsonWriter
    line.write(new GenericInternalRow(children.map(_.eval(input)).toArray), writer)
    writer.writeByte('\n')
    writer.text
  }

  /** The line is in the writer's memory until the next one: the projection that this stands in copies it before. */
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = {
    val writerClass = classOf[JsonWriter].getName
    val writer = ctx.addMutableState(writerClass, "line", name => s"$name = new $writerClass();")
    val before = ctx.addReferenceObj("before", JsonObject.before(names), "byte[][]")
    val open = if (children.isEmpty) s"$writer.writeByte('{');" else "" // the first member has it before its name
    val members = ctx.splitExpressionsWithCurrentInputs(children.zipWithIndex.map { case (child, n) =>
      val value = child.genCode(ctx)
      val write = child match {
        case _: RawJson => s"$writer.writeRaw(${value.value});"
        case _ => format.statement(child.dataType, value.value.toString, writer, reference(ctx, _))
      }
      s"""${value.code}
         |$writer.writeBytes($before[$n]);
         |if (${value.isNull}) $writer.writeNull(); else $write""".stripMargin
    }, "writeMembers")
    ev.copy(
      code = code"""
        $writer.clear();
        $open
        $members
        $writer.writeByte('}');
        $writer.writeByte('\\n');
        UTF8String ${ev.value} = $writer.text();""",
      isNull = FalseLiteral)
  }

  private def reference(ctx: CodegenContext, held: AnyRef): String = ctx.addReferenceObj("nested", held)

  override protected def withNewChildrenInternal(changed: IndexedSeq[Expression]): ToJsonLine = copy(children = changed)
}

object ToJsonLine {
  val Name = "penstock_json_line"
  private val UnixMillis = "unix_millis"

  def register(): Unit = {
    FunctionRegistry.builtin.registerFunction(
      FunctionIdentifier(Name), new ExpressionInfo(classOf[ToJsonLine].getName, Name), {
        case Text(timestamps) +: members if members.length % 2 == 0 =>
          val (names, values) = members.grouped(2).map { case Seq(Text(name), value) => name -> value }.toSeq.unzip
          ToJsonLine(timestamps, names, values)
      })
    RawJson.register()
  }

  private object Text {
    def unapply(expression: Expression): Option[String] = expression match {
      case Literal(text: UTF8String, _: StringType) => Some(text.toString)
      case _ => throw new IllegalArgumentException(s"$Name takes texts for its names")
    }
  }
}

/** `penstock_raw_json(text)`: text that is JSON already, for `penstock_json_line`. */
final case class RawJson(child: Expression) extends UnaryExpression {
  override def dataType: DataType = child.dataType
  override def nullable: Boolean = child.nullable
  override def prettyName: String = RawJson.Name
  override def eval(input: InternalRow): Any = child.eval(input)
  override protected def doGenCode(ctx: CodegenContext, ev: ExprCode): ExprCode = child.genCode(ctx)
  override protected def withNewChildInternal(changed: Expression): RawJson = copy(child = changed)
}

object RawJson {
  val Name = "penstock_raw_json"

  def register(): Unit = FunctionRegistry.builtin.registerFunction(
    FunctionIdentifier(Name), new ExpressionInfo(classOf[RawJson].getName, Name), {
      case Seq(text) => RawJson(text)
    })
}
