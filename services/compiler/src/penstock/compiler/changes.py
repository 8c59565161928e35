"""SQL over rows that change: how often each row is there, what is kept of it, and the rows themselves again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from penstock.common.program import COUNT_COLUMN, HASH_COLUMN
from penstock.compiler.dialect import spark_sql
from penstock.compiler.functions import call
from penstock.compiler.plan import nested, projections
from penstock.compiler.relations import aliased, column, select_from_input
from penstock.compiler.types import quoted, spark_sql_cast
from penstock.connectors.base import TIMESTAMP_COLUMN

_PLACE: Final = "_place"


def latest() -> exp.Expr:
    """The event time of a group: its rows' latest. There is one, which Spark does not know of an aggregate."""
    beginning = exp.Var(this="TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    return aliased(call("coalesce", call("max", column(TIMESTAMP_COLUMN)), beginning), TIMESTAMP_COLUMN)


def counted(names: Sequence[str], count: str) -> exp.Select:
    """Each row once, with how often it came and was not taken back."""
    total = call("sum", column(count))
    select = select_from_input([*(column(name) for name in names), aliased(total, COUNT_COLUMN), latest()])
    select.set("group", exp.Group(expressions=[column(name) for name in names]))
    select.set("having", exp.Having(this=exp.NEQ(this=total.copy(), expression=exp.Literal.number(0))))
    return select


def kept_rows(names: Sequence[str], keys: Sequence[str]) -> exp.Select:
    """The rows to keep of those kept so far and new ones, with the hash of their keys."""
    select = counted(names, COUNT_COLUMN)
    select.append("expressions", aliased(hash_of(keys), HASH_COLUMN))
    return select


def first_rows(number: exp.Expr, limit: int, select: exp.Select) -> exp.Select:
    """The rows of a query whose number is not beyond a limit."""
    names = [value.alias_or_name for value in select.expressions]
    columns: list[exp.Expr] = [column(name) for name in names]
    numbered = nested(select_from_input([*columns, aliased(number, _PLACE)]), select)
    near = exp.LTE(this=column(_PLACE), expression=exp.Literal.number(limit))
    return nested(select_from_input([column(name) for name in names], where=near), numbered)


def hashed(keys: Sequence[str]) -> str:
    """Rows with the hash of their keys."""
    return f"SELECT *, {spark_sql(hash_of(keys))} AS {quoted(HASH_COLUMN)} FROM input"


def with_hash(rows: exp.Select, keys: Sequence[str]) -> exp.Select:
    """A query's rows with the hash of their keys, the last column."""
    columns: list[exp.Expr] = [column(name) for name, _ in projections(rows)]
    return nested(select_from_input([*columns, aliased(hash_of(keys), HASH_COLUMN)]), rows)


def spread(names: Sequence[str]) -> exp.Select:
    """Each row as often as it is there; one that was taken back before it came is not there yet."""
    copies = call("array_repeat", exp.Literal.number(0), spark_sql_cast(column(COUNT_COLUMN), "INT"))
    lateral = exp.Lateral(
        this=call("explode", copies),
        view=True,
        alias=exp.TableAlias(
            this=exp.Identifier(this="_copies", quoted=True), columns=[exp.Identifier(this="_copy", quoted=True)]
        ),
    )
    return select_from_input([column(name) for name in names], laterals=[lateral])


def hash_of(keys: Sequence[str]) -> exp.Expr:
    """The hash by which the state of a key is found."""
    return call("xxhash64", *(column(key) for key in keys))


def changes_of_envelope(table: str, name: str) -> exp.Expr:
    """A change as Debezium has it, as rows that are taken back and rows that come, each with its operation."""
    goes, comes = _change("before", -1), _change("after", 1)
    missing = f"a change of {table} has no row before it, so that it cannot be taken back"
    failure = call("raise_error", f"{missing}; let the database log whole rows, as REPLICA IDENTITY FULL does")
    whole = exp.Is(this=column("before"), expression=exp.Null())
    kinds = {
        "c": call("array", comes),
        "r": call("array", comes.copy()),
        "u": call("if", whole, failure, call("array", goes, comes.copy())),
        "d": call("if", whole.copy(), failure.copy(), call("array", goes.copy())),
    }
    unknown = call(
        "raise_error", call("concat", f"a change of {table} is none of c, r, u, d: ", call("nvl", column("op"), "null"))
    )
    case = exp.Case(
        this=column("op"),
        ifs=[exp.If(this=exp.Literal.string(kind), true=rows) for kind, rows in kinds.items()],
        default=unknown,
    )
    alias = exp.TableAlias(
        this=exp.Identifier(this="_changes", quoted=True), columns=[exp.Identifier(this=name, quoted=True)]
    )
    return exp.Lateral(this=call("explode", case), view=True, alias=alias)


def _change(row: str, operation: int) -> exp.Expr:
    number = spark_sql_cast(exp.Literal.number(operation), "TINYINT")
    return call("named_struct", "row", column(row), "op", number)
