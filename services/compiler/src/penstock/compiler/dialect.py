"""The dialect: PostgreSQL's syntax in, Spark SQL out.

Calls of functions stay calls by the name that the user wrote, so that all of Spark's work as they are; what Postgres
means differently is rewritten on the tree (`rewrite`), not here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.compiler.types import SPARK_TYPE, quoted

# Calls with a syntax of their own inside the parentheses.
_SPECIAL_CALLS: Final = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")


class SyntaxProblem(ParseError):
    """What the parser did not understand, with the offsets of the token that it stopped at."""

    def __init__(self, description: str, token: Token, at_end: bool) -> None:
        super().__init__(description)
        self.description = description
        self.token = token
        self.at_end = at_end


class PenstockParser(PostgresParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: PostgresParser.FUNCTION_PARSERS[name] for name in _SPECIAL_CALLS
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parse for name, parse in PostgresParser.NO_PAREN_FUNCTION_PARSERS.items() if name in ("ANY", "CASE", "IF")
    }
    # As they are written: `rewrite` makes paths of them.
    JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.ARROW: lambda self, this, path: self.expression(exp.JSONExtract(this=this, expression=path)),
        TokenType.DARROW: lambda self, this, path: self.expression(exp.JSONExtractScalar(this=this, expression=path)),
        **{
            token: parse
            for token, parse in PostgresParser.JSON_OPERATORS.items()
            if token not in (TokenType.ARROW, TokenType.DARROW)
        },
    }

    def parse_as(self, into: type[exp.Expr], tokens: list[Token], sql: str) -> exp.Expr | None:
        """One tree of a kind, with this parser's own error."""
        parse = PenstockParser._parse_statement if into is exp.Query else self.EXPRESSION_PARSERS[into]
        trees = self._parse(parse, tokens, sql)
        return trees[0] if trees else None

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        first = self._curr
        tree = super()._parse_interval(require_interval, parse_function_unit)
        if tree is not None and first is not None:
            tree.meta.update(start=first.start, end=self._prev.end)
        return tree

    def raise_error(self, message: str, token: Token | None = None) -> None:
        place = token or self._curr or self._prev or Token.string("")
        raise SyntaxProblem(message, place, at_end=not token and not self._curr)


class PenstockGenerator(SparkGenerator):
    """Spark SQL; with `marks`, a comment before each thing whose place in the user's text is known."""

    TRANSFORMS: ClassVar[dict[type[exp.Expr], Any]] = {
        node: transform
        for node, transform in SparkGenerator.TRANSFORMS.items()
        if node not in (exp.Select, exp.From, exp.With)
    }

    def __init__(self, *, marks: list[exp.Expr] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._marks = marks

    def sql(self, expression: str | exp.Expr | None, key: str | None = None, comment: bool = True) -> str:
        text = super().sql(expression, key, comment)
        if self._marks is None or key is not None or not isinstance(expression, exp.Expr) or not text:
            return text
        meta = expression._meta
        if not meta or "start" not in meta:
            return text
        self._marks.append(expression)
        return f"/*@{len(self._marks) - 1}*/{text}"

    def lateral_sql(self, expression: exp.Lateral) -> str:
        alias = expression.args["alias"]
        outer = " OUTER" if expression.args.get("outer") else ""
        columns = self.expressions(alias, key="columns", flat=True)
        return f" LATERAL VIEW{outer} {self.sql(expression, 'this')} {self.sql(alias, 'this')} AS {columns}"

    def datatype_sql(self, expression: exp.DataType) -> str:
        return str(expression.meta[SPARK_TYPE]) if SPARK_TYPE in expression.meta else super().datatype_sql(expression)

    def identifier_sql(self, expression: exp.Identifier) -> str:
        return quoted(expression.name)


class Penstock(Postgres):
    INDEX_OFFSET = 0
    Parser = PenstockParser

    class Tokenizer(Postgres.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Postgres.Tokenizer.KEYWORDS,
            "FLOAT": TokenType.FLOAT,
            "STRING": TokenType.TEXT,
            "BYTES": TokenType.VARBINARY,
        }
        # A window, and so the name of a function.
        KEYWORDS.pop("SESSION", None)
        # Statements are read word by word.
        KEYWORDS.pop("PRIMARY KEY", None)


class _SparkTarget(Spark):
    Generator = PenstockGenerator  # type: ignore[assignment]


_local = threading.local()


def _dialect() -> Penstock:
    if not hasattr(_local, "dialect"):
        _local.dialect = Penstock()
    dialect: Penstock = _local.dialect
    return dialect


def tokenize(sql: str) -> list[Token]:
    """The tokens of a text; raises sqlglot's TokenError."""
    tokens = _dialect().tokenize(sql)
    return [_as_name(token) if _is_name(token, tokens[place + 1 : place + 4]) else token
            for place, token in enumerate(tokens)]  # fmt: skip


def _is_name(token: Token, following: list[Token]) -> bool:
    """Whether WINDOW is a name, as windows are often called: a clause of it goes on with `name AS (`."""
    if token.token_type is not TokenType.WINDOW:
        return False
    return [after.text.upper() for after in following[1:]] != ["AS", "("]


def _as_name(token: Token) -> Token:
    return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)


def parse(tokens: Sequence[Token], sql: str, into: type[exp.Expr]) -> exp.Expr | None:
    """What the tokens say, as a query (`exp.Query`), an expression (`exp.Expr`) or a type; raises SyntaxProblem."""
    parser = PenstockParser(error_level=ErrorLevel.IMMEDIATE, dialect=_dialect())
    return parser.parse_as(into, list(tokens), sql)


def spark_sql(tree: exp.Expr) -> str:
    """The tree as Spark SQL, in one line."""
    return _generator().generate(tree, copy=False)


def marked_spark_sql(tree: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """The same with numbered marks, and what each mark stands for."""
    marks: list[exp.Expr] = []
    return _generator(marks).generate(tree, copy=False), marks


def _generator(marks: list[exp.Expr] | None = None) -> PenstockGenerator:
    return PenstockGenerator(
        marks=marks,
        dialect=_SparkTarget(),
        identify=True,
        normalize_functions=False,
        comments=False,
        unsupported_level=ErrorLevel.IGNORE,
    )
