package org.apache.spark.sql.execution.penstock

import scala.util.Try

import org.apache.spark.sql.catalyst.analysis.FunctionRegistry.FunctionBuilder
import org.apache.spark.sql.catalyst.expressions.{ExpressionInfo, Generator, WindowFunction}
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction
import org.apache.spark.sql.classic.SparkSession

/** The functions that SQL can call. */
object Functions {

  /** Each name with its kind: scalar, aggregate, window, generator, or table for what stands only in FROM. */
  def of(session: SparkSession): Map[String, String] = {
    val (functions, tables) = (session.sessionState.functionRegistry, session.sessionState.tableFunctionRegistry)
    val called = for {
      name <- functions.listFunction()
      (info, builder) <- functions.lookupFunctionEntry(name)
    } yield name.funcName -> kindOf(info, builder)
    (tables.listFunction().map(_.funcName -> "table") ++ called).filter { case (name, _) => name.matches("\\w+") }.toMap
  }

  private def kindOf(info: ExpressionInfo, builder: FunctionBuilder): String = {
    // Python functions have no class of their own, but take any number of arguments.
    val made = Try[Class[_]](Class.forName(info.getClassName, false, getClass.getClassLoader))
      .orElse(Try[Class[_]](builder(Nil).getClass))
    def is(kind: Class[_]): Boolean = made.toOption.exists(kind.isAssignableFrom)
    info.getGroup match {
      case "window_funcs" => "window"
      case "generator_funcs" => "generator"
      case "agg_funcs" => "aggregate"
      case _ if is(classOf[WindowFunction]) => "window"
      case _ if is(classOf[Generator]) => "generator"
      case _ if is(classOf[AggregateFunction]) => "aggregate"
      case _ => "scalar"
    }
  }
}
