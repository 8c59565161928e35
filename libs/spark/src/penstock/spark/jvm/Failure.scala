package org.apache.spark.sql.execution.penstock

import scala.annotation.tailrec
import org.apache.arrow.memory.OutOfMemoryException
import org.apache.spark.{QueryContext, SparkThrowable, TaskKilledException}
import org.apache.spark.api.python.PythonException
import org.apache.spark.memory.SparkOutOfMemoryError
import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.catalyst.expressions.SortOrder
import org.apache.spark.sql.catalyst.parser.ParseException
import org.apache.spark.sql.catalyst.trees.SQLQueryContext

/** A failure as Python reads it. `kind` says whose it is: sql, refused, data, udf, memory or internal. */
object Failure {
  type Report = Map[String, Any]

  def report(error: Throwable): Report = {
    val causes = chain(error)
    causes.collectFirst {
      case refused: Refused => Map("kind" -> "refused", "message" -> refused.reason, "hint" -> refused.hint)
      case out: OutOfMemoryException => Map("kind" -> "memory", "message" -> message(out))
      case out: SparkOutOfMemoryError => Map("kind" -> "memory", "message" -> message(out))
      case python: PythonException => Map("kind" -> "udf", "message" -> usersTraceback(python))
      case mixed: AssertionError if message(mixed).contains("must have the same eval type") => Map(
          "kind" -> "refused", "message" -> "one aggregation calls Python functions of different kinds",
          "hint" -> "make them all Arrow functions or all pandas functions")
      case confused: ClassCastException if message(confused).contains("cannot be cast to class " + classOf[SortOrder].getName) =>
        Map(
          "kind" -> "refused", "message" -> "Spark cannot order values within a group beside several DISTINCT aggregates",
          "hint" -> "leave out WITHIN GROUP (ORDER BY …), or compute the DISTINCT aggregates in a query of their own")
      case spark: SparkThrowable if isUsers(spark) => fromSpark(spark)
    }.getOrElse(Map("kind" -> "internal", "message" -> internal(causes.last), "trace" -> trace(error)))
  }

  private def isUsers(error: SparkThrowable): Boolean =
    error.getCondition != null && !error.isInternalError && !error.isInstanceOf[TaskKilledException] &&
      !wrappers(error.getCondition) && !systems(Option(error.getSqlState).getOrElse("").take(2))

  // Conditions that only carry another error as their cause.
  private val wrappers = Set("FAILED_EXECUTE_UDF", "TASK_WRITE_FAILED", "STAGE_FAILURE")

  // SQLSTATE classes that no query or row causes: connections, rollbacks, resources, operators, input and output.
  private val systems = Set("08", "40", "53", "57", "58", "XX")

  private def fromSpark(error: SparkThrowable): Report = {
    val throwable = error.asInstanceOf[Throwable]
    val kind = error match {
      case _: AnalysisException => "sql"
      case _ => "data"
    }
    Map[String, Any](
      "kind" -> kind,
      "message" -> message(throwable),
      "condition" -> error.getCondition) ++ position(error)
  }

  /** An offset into the SQL text where Spark knows it, else a line and column. */
  private def position(error: SparkThrowable): Report = {
    val contexts = Option(error.getQueryContext).toSeq.flatten.filter(_.fragment.nonEmpty)
    (contexts.headOption, error) match {
      case (Some(context), _) => Map("start" -> context.startIndex) ++ text(context)
      case (None, parse: ParseException) => Map(
          "line" -> parse.start.line.getOrElse(1), "column" -> (parse.start.startPosition.getOrElse(0) + 1)) ++
          parse.command.map("sql" -> _)
      case (None, analysis: AnalysisException) if analysis.line.nonEmpty => Map(
          "line" -> analysis.line.get, "column" -> (analysis.startPosition.getOrElse(0) + 1))
      case _ => Map.empty
    }
  }

  /** Which SQL the position is in: a fragment may be of several. */
  private def text(context: QueryContext): Report = context match {
    case of: SQLQueryContext => of.sqlText.map("sql" -> _).toMap
    case _ => Map.empty
  }

  private def message(error: Throwable): String = error match {
    case parse: ParseException => firstParagraph(parse.getMessage)
    case analysis: AnalysisException => analysis.getSimpleMessage
    case other => firstParagraph(String.valueOf(other.getMessage))
  }

  /** Spark appends the query's text and its own internals; the position says the first better. */
  private def firstParagraph(text: String): String = text.trim.split("\n\n|\n== SQL").head.trim

  private val pysparks = "/(pyspark\\.zip|site-packages|python)/pyspark/".r

  /** A Python traceback without the frames of PySpark's worker, through which every call goes. */
  private def usersTraceback(error: PythonException): String = {
    val traceback = error.getMessageParameters.getOrDefault("traceback", String.valueOf(error.getMessage)).trim
    var skipping = false
    val lines = traceback.linesIterator.filter { line =>
      if (line.startsWith("  File ")) skipping = pysparks.findFirstIn(line).nonEmpty
      else if (!line.startsWith(" ")) skipping = false
      !skipping
    }
    s"a Python function failed: ${lines.mkString("\n")}"
  }

  private def internal(error: Throwable): String =
    s"${error.getClass.getName}: ${Option(error.getMessage).getOrElse("no message").linesIterator.nextOption().getOrElse("")}"

  private def trace(error: Throwable): String = {
    val writer = new java.io.StringWriter
    error.printStackTrace(new java.io.PrintWriter(writer))
    writer.toString
  }

  private def chain(error: Throwable): Seq[Throwable] = {
    @tailrec def add(next: Throwable, seen: Vector[Throwable]): Vector[Throwable] =
      if (next == null || seen.contains(next)) seen else add(next.getCause, seen :+ next)
    add(error, Vector.empty)
  }
}
