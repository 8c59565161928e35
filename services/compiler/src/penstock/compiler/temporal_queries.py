"""SQL over versions: which of them are valid from which time on, and which one a row meets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import LAST_COLUMN, LEFT, OP_COLUMN, RIGHT, JoinKind
from penstock.compiler.functions import call
from penstock.compiler.plan import nested
from penstock.compiler.relations import aliased, column, identifier, select_from_input
from penstock.compiler.types import spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN

_ASKS: Final = "_asks"
_FOUND: Final = "_found"
_NEXT: Final = "_next"
_PLACE: Final = "_place"
_ROW: Final = "_row"
_VERSION: Final = "_version"


def unreplaced(names: Sequence[str], keys: Sequence[str], changes: exp.Select) -> exp.Select:
    """Changes without those that take back what a later version replaces, which comes with them.

    What is taken back has the time of the row that it was, and not of its end: the version after it says when that is.
    What stays takes back for good, or has a time of its own."""
    later = exp.Case(ifs=[exp.If(this=_is_valid(), true=column(TIMESTAMP_COLUMN))])
    newest = _over(call("max", later), keys, ())
    with_next = nested(select_from_input([*_columns(names), aliased(newest, _NEXT)]), changes)
    is_last = exp.LTE(this=column(_NEXT), expression=column(TIMESTAMP_COLUMN))
    is_alone = exp.Is(this=column(_NEXT), expression=exp.Null())
    condition = exp.or_(_is_valid(), is_alone, is_last)
    return nested(select_from_input([*_columns(names)], where=condition), with_next)


def versions_query(
    keys: Sequence[str], own: Sequence[str], schema: pa.Schema, order: Sequence[exp.Ordered], *, is_changing: bool
) -> exp.Select:
    """One version for each key and time, and whether it is the last of its key.

    A row that came and was taken back at one time never was. Of what else is of one time, a row that came counts before
    one that was taken back; of several that came, the first in their order, or the greatest."""
    names = schema.names
    others = [name for name in names if name not in (OP_COLUMN, TIMESTAMP_COLUMN)]
    rows = _settled([*others, TIMESTAMP_COLUMN], names) if is_changing else select_from_input([*_columns(names)])
    greatest = [_descending(name) for name in own if _has_order(schema.field(name).type)]
    ties = [_descending(OP_COLUMN), *(ordered.copy() for ordered in order), *greatest]
    place = _over(call("row_number"), [*keys, TIMESTAMP_COLUMN], ties)
    placed = nested(select_from_input([*_columns(names), aliased(place, _PLACE)]), rows)
    first = exp.EQ(this=column(_PLACE), expression=exp.Literal.number(1))
    one_each = nested(select_from_input([*_columns(names)], where=first), placed)
    number = _over(call("row_number"), keys, [_descending(TIMESTAMP_COLUMN)])
    is_last = exp.EQ(this=number, expression=exp.Literal.number(1))
    return nested(select_from_input([*_columns(names), aliased(is_last, LAST_COLUMN)]), one_each)


def as_of_query(
    keys: Sequence[str], left: Sequence[str], right: Sequence[str], kind: JoinKind, conditions: Sequence[exp.Expr]
) -> exp.Select:
    """Rows of `left`, each with the last version of `right` that is not after it, of which conditions are asked.

    Both are put in one order, in which a row sees the version before it: the cost is that of sorting, however many
    versions a key has."""
    rows = _marked(keys, _struct([TIMESTAMP_COLUMN, *left]), exp.Null(), exp.true(), LEFT)
    versions = _marked(keys, exp.Null(), _struct([OP_COLUMN, *right]), exp.false(), RIGHT)
    both = exp.Subquery(
        this=exp.Union(this=rows, expression=versions, distinct=False),
        alias=exp.TableAlias(this=identifier("both")),
    )
    order = [exp.Ordered(this=column(name), desc=False, nulls_first=True) for name in (TIMESTAMP_COLUMN, _ASKS)]
    seen = _over(call("last", column(_VERSION), exp.true()), keys, order)
    frame = {"kind": "ROWS", "start": "UNBOUNDED", "start_side": "PRECEDING", "end": "CURRENT ROW"}
    seen.set("spec", exp.WindowSpec(**frame))
    paired = exp.Select(
        expressions=[column(_ROW), column(_ASKS), aliased(seen, _VERSION), column(TIMESTAMP_COLUMN)],
        from_=exp.From(this=both),
    )
    return _met(paired, left, right, kind, conditions)


def _met(
    paired: exp.Select, left: Sequence[str], right: Sequence[str], kind: JoinKind, conditions: Sequence[exp.Expr]
) -> exp.Select:
    """The rows, without a version or without themselves where there is none."""
    is_valid = exp.GT(this=_field(_VERSION, OP_COLUMN), expression=exp.Literal.number(0))
    values = [
        *(aliased(_field(_ROW, name), name) for name in left),
        *(aliased(_field(_VERSION, name), name) for name in right),
        aliased(call("coalesce", is_valid, exp.false()), _FOUND),
        column(TIMESTAMP_COLUMN),
    ]
    apart = exp.Select(
        expressions=values,
        from_=exp.From(this=exp.Subquery(this=paired, alias=exp.TableAlias(this=identifier("paired")))),
        where=exp.Where(this=column(_ASKS)),
    )
    met = exp.and_(column(_FOUND), *(exp.Paren(this=part.copy()) for part in conditions), copy=False)
    given = [aliased(call("if", met.copy(), column(name), exp.Null()), name) for name in right]
    is_outer = kind is JoinKind.LEFT
    return exp.Select(
        expressions=[*_columns(left), *(given if is_outer else _columns(right)), column(TIMESTAMP_COLUMN)],
        from_=exp.From(this=exp.Subquery(this=apart, alias=exp.TableAlias(this=identifier("apart")))),
        where=None if is_outer else exp.Where(this=met),
    )


def _settled(identity: Sequence[str], names: Sequence[str]) -> exp.Select:
    """Each row of a time once, as what came of it in the end; none if that is nothing."""
    total = call("sum", column(OP_COLUMN))
    operation = aliased(spark_sql_cast(call("signum", total), "TINYINT"), OP_COLUMN)
    select = select_from_input([operation if name == OP_COLUMN else column(name) for name in names])
    select.set("group", exp.Group(expressions=[*_columns(identity)]))
    select.set("having", exp.Having(this=exp.NEQ(this=total.copy(), expression=exp.Literal.number(0))))
    return select


def _marked(keys: Sequence[str], row: exp.Expr, version: exp.Expr, asks: exp.Expr, side: str) -> exp.Select:
    values = [exp.Alias(this=value, alias=identifier(name))
              for name, value in ((_ROW, row), (_VERSION, version), (_ASKS, asks))]  # fmt: skip
    return exp.Select(
        expressions=[*_columns(keys), *values, column(TIMESTAMP_COLUMN)],
        from_=exp.From(this=exp.Table(this=identifier(side))),
    )


def _struct(names: Sequence[str]) -> exp.Expr:
    return call("named_struct", *(part for name in names for part in (exp.Literal.string(name), column(name))))


def _field(struct: str, name: str) -> exp.Expr:
    return exp.Dot(this=column(struct), expression=identifier(name))


def _over(function: exp.Expr, keys: Sequence[str], order: Sequence[exp.Expr]) -> exp.Window:
    ordered = exp.Order(expressions=list(order)) if order else None
    return exp.Window(this=function, partition_by=[*_columns(keys)], order=ordered)


def _columns(names: Sequence[str]) -> Iterator[exp.Column]:
    return (column(name) for name in names)


def _descending(name: str) -> exp.Ordered:
    return exp.Ordered(this=column(name), desc=True, nulls_first=False)


def _is_valid() -> exp.Expr:
    return exp.GT(this=column(OP_COLUMN), expression=exp.Literal.number(0))


def _has_order(kind: pa.DataType) -> bool:
    """Whether values of a type can be put in order; maps cannot."""
    if arrow.is_map(kind):
        return False
    return all(_has_order(kind.field(place).type) for place in range(kind.num_fields))
