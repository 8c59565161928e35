"""What is known of the rows of a query as versions: their key, and all of them where only the newest are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.relations import Relation, Steps, Versions, aliased, column, select_from_input
from penstock.compiler.tables import SelectSource

_ORDER: Final = "_o"
"""The columns that say which of several versions of one time comes first, numbered."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A SELECT of one row each over versions, in Spark's terms."""

    source: SelectSource
    projections: Sequence[tuple[str, exp.Expr]]
    found: Versions

    def versions(self, analyst: Analyst, steps: Steps) -> Versions | None:
        """Its rows as versions: they are, if it has the whole key."""
        if self.source.laterals:
            return None
        names = [_name_of(column(key), self.source, self.projections) for key in self.found.key]
        if None in names:
            return None
        key = tuple(name for name in names if name is not None)
        return replace(self.found, key=key, rows=self._rows(self.found, analyst, steps))

    def _rows(self, found: Versions, analyst: Analyst, steps: Steps) -> Callable[[], Awaitable[Relation]] | None:
        inner = found.rows
        if inner is None:
            return None

        async def rows() -> Relation:
            versions = await inner()
            values = [aliased(value.copy(), name) for name, value in self.projections]
            others = [*(ordered.this.copy() for ordered in found.order), *(column(one.name) for one in versions.hidden)]
            select = select_from_input([*values, *others], alias=self.source.alias)
            schema = await analyst.schema_of(select, inputs_of(versions.schema))
            return steps.query(select, versions, schema, "versions")

        return rows


def renamed_versions(
    relation: Relation, names: Sequence[str], renamed: Callable[[Relation], Relation]
) -> Versions | None:
    """The versions of a relation whose columns get other names."""
    found = relation.versions
    if found is None:
        return None
    targets = {field.name: name for field, name in zip(relation.columns, names, strict=True)}
    inner = found.rows

    async def rows() -> Relation:
        assert inner is not None
        return renamed(await inner())

    return replace(found, key=tuple(targets[name] for name in found.key), rows=None if inner is None else rows)


def newest(
    source: SelectSource,
    where: exp.Expr | None,
    projections: Sequence[tuple[str, exp.Expr]],
    number: str,
    analyst: Analyst,
    steps: Steps,
) -> Versions | None:
    """The rows that a ROW_NUMBER calls the first, as versions; None unless it counts back from the newest."""
    over = dict(projections)[number]
    order = over.args["order"].expressions if over.args.get("order") is not None else []
    if not order or not order[0].args.get("desc") or source.relation.after_time_us(order[0].this, source.name) is None:
        return None
    keys = over.args.get("partition_by") or []
    names = [_name_of(key, source, projections) for key in keys]
    if not names or None in names:
        return None

    async def rows() -> Relation:
        values = [
            aliased(exp.Literal.number(1) if name == number else value.copy(), name) for name, value in projections
        ]
        ties = [aliased(ordered.this.copy(), f"{_ORDER}{place}") for place, ordered in enumerate(order[1:])]
        hidden = [column(field.name, source.name) for field in source.relation.hidden]
        select = select_from_input([*values, *ties, *hidden], alias=source.alias, where=where)
        schema = await analyst.schema_of(select, inputs_of(source.relation.schema))
        return steps.query(select, source.relation, schema, "versions")

    ties = []
    for place, ordered in enumerate(order[1:]):
        tie = ordered.copy()
        tie.set("this", column(f"{_ORDER}{place}"))
        ties.append(tie)
    return Versions(tuple(name for name in names if name is not None), rows, tuple(ties))


def _name_of(key: exp.Expr, source: SelectSource, projections: Sequence[tuple[str, exp.Expr]]) -> str | None:
    """What a SELECT calls a column of what it reads."""
    wanted = source.own_name(key)
    return next((name for name, value in projections if wanted and source.own_name(value) == wanted), None)
