"""Session windows as SQL: rows, or partial results, that touch become of one session."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.common.program import WINDOW_COLUMN, WINDOW_END_COLUMN
from penstock.compiler.functions import call
from penstock.compiler.plan import nested
from penstock.compiler.relations import aliased, column, select_from_input

_BEGINS = "_begins"
_SESSION = "_session"


def joined_sessions(select: exp.Select, names: Sequence[str], keys: Sequence[str]) -> exp.Select:
    """The rows of a query with their `_window` and `_window_end` widened to those of their session.

    Rows of a key are in one session when the next begins before all so far have ended.
    """
    so_far = exp.WindowSpec(
        kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end=exp.Literal.number(1), end_side="PRECEDING"
    )
    until_now = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
    ended = exp.GTE(this=column(WINDOW_COLUMN), expression=_over(call("max", column(WINDOW_END_COLUMN)), keys, so_far))
    begins = exp.Case(ifs=[exp.If(this=ended, true=exp.Literal.number(1))], default=exp.Literal.number(0))
    marked = select_from_input([*_columns(names), aliased(begins, _BEGINS)])
    number = _over(call("sum", column(_BEGINS)), keys, until_now)
    numbered = select_from_input([*_columns(names), aliased(number, _SESSION)])
    ends = {name: _end(function, name, keys) for function, name in (("min", WINDOW_COLUMN), ("max", WINDOW_END_COLUMN))}
    widened = select_from_input([ends.get(name, column(name)) for name in names])
    return nested(widened, nested(numbered, nested(marked, select)))


def _end(function: str, name: str, keys: Sequence[str]) -> exp.Expr:
    """An end of a session: there is one, which Spark does not know of an aggregate."""
    least = _over(call(function, column(name)), [*keys, _SESSION], None)
    return aliased(call("coalesce", least, column(name)), name)


def _columns(names: Sequence[str]) -> list[exp.Expr]:
    return [column(name) for name in names]


def _over(function: exp.Expr, keys: Sequence[str], frame: exp.WindowSpec | None) -> exp.Window:
    partition = [column(key) for key in keys]
    if frame is None:
        return exp.Window(this=function, partition_by=partition, over="OVER")
    order = exp.Order(expressions=[exp.Ordered(this=column(WINDOW_COLUMN), desc=False, nulls_first=True)])
    return exp.Window(this=function, partition_by=partition, order=order, spec=frame, over="OVER")
