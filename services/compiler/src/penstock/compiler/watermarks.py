"""Event times as a source's query observes them, row by row and before any filter, for its watermarks."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from penstock.common.program import WATERMARK_COLUMN
from penstock.compiler.functions import call
from penstock.compiler.relations import Relation, aliased, column, select_from_input
from penstock.connectors.base import TIMESTAMP_COLUMN

_OBSERVE: Final = "penstock_observe"
_WATERMARK: Final = "penstock_watermark"
ON_TIME: Final = "penstock_on_time"


def observing(rows: Relation, event_time: exp.Expr, watermark: exp.Expr) -> exp.Select:
    """A query that gives the rows their event time, and observes what the watermark is by each."""
    observed = exp.Alias(
        this=call(_OBSERVE, event_time, watermark), alias=exp.Identifier(this=TIMESTAMP_COLUMN, quoted=True)
    )
    return select_from_input([*_others(rows), observed])


def with_watermark(rows: Relation) -> exp.Select:
    """A query over observed rows that adds the watermark just before each: around the other, so that it comes after."""
    before = aliased(call(_WATERMARK, column(TIMESTAMP_COLUMN)), WATERMARK_COLUMN)
    return select_from_input([*_others(rows), before, column(TIMESTAMP_COLUMN)])


def _others(rows: Relation) -> list[exp.Expr]:
    return [column(found.name) for found in rows.schema if found.name != TIMESTAMP_COLUMN]


def observes(select: exp.Expr) -> bool:
    """Whether a query observes event times."""
    return any(found.name == _OBSERVE for found in select.find_all(exp.Anonymous))


def drops_late_rows(select: exp.Expr) -> bool:
    """Whether a query drops rows by their watermark."""
    return any(found.name == ON_TIME for found in select.find_all(exp.Anonymous))


def without_observation(select: exp.Select) -> exp.Select:
    """The same query for rows whose watermarks nobody waits for."""
    plain = select.copy()
    for found in list(plain.find_all(exp.Anonymous)):
        if found.name == _OBSERVE:
            alias = found.parent
            assert isinstance(alias, exp.Alias)
            alias.replace(aliased(found.expressions[0], alias.alias))
    return plain
