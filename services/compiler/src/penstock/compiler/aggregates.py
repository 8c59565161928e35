"""A GROUP BY as steps: the rows' keys and arguments, partial results before a shuffle, and an operator with state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import (
    FIRST_WINDOW_COLUMN,
    OP_COLUMN,
    WINDOW_COLUMN,
    WINDOW_END_COLUMN,
    Aggregation,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    Stage,
    StageQuery,
    TumblingWindowAggregate,
    UpdatingAggregate,
)
from penstock.compiler.analysis import inputs_of
from penstock.compiler.changes import counted, hashed, kept_rows, latest, spread
from penstock.compiler.diagnostics import refusal
from penstock.compiler.dialect import spark_sql
from penstock.compiler.grouping import WINDOW_MARK, Grouping, with_window
from penstock.compiler.late_letters import note_late_letters
from penstock.compiler.plan import Key, Stateful, nested
from penstock.compiler.planning import Planning
from penstock.compiler.relations import (
    OP,
    POSITION_COLUMN,
    Relation,
    Windows,
    aliased,
    column,
    identifier,
    select_from_input,
)
from penstock.compiler.sessions import joined_sessions
from penstock.compiler.tables import SelectSource
from penstock.compiler.windows import (
    Hop,
    Inherited,
    Session,
    Tumble,
    Window,
    first_window,
    is_on_time,
    later,
    pane_of,
    struct_of,
    time_of,
)
from penstock.connectors.base import TIMESTAMP_COLUMN

_EVERYTHING: Final = "_k"
"""The key of groups that have none: all rows are of one group, and none is there before the first row."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """A SELECT with GROUP BY: what it reads, which rows of it, and what it computes."""

    source: SelectSource
    where: exp.Expr | None
    laterals: Sequence[exp.Expr]
    grouping: Grouping
    select: exp.Select
    """As the user wrote it, for its place."""


@dataclass(frozen=True, slots=True)
class Aggregates(Planning):
    """Plans aggregates."""

    async def relation(self, grouped: Grouped) -> Relation:
        """The rows of a GROUP BY."""
        rows = await self._rows(grouped)
        grouping = grouped.grouping
        if rows.is_updating:
            relation = await self._over_changes(rows, grouped)
        elif grouping.window is None:
            relation = await self._updating(rows, grouped)
        else:
            relation = await self._windowed(rows, grouped, grouping.window)
        return Relation(relation.inputs, relation.schema, _windows_of(grouping), times=_times_of(grouped))

    async def _rows(self, grouped: Grouped) -> Relation:
        """Keys and arguments of the rows that are read."""
        source, grouping = grouped.source, grouped.grouping
        keys = [*grouping.keys] if _keys_of(grouping) != (_EVERYTHING,) else [(_EVERYTHING, exp.Literal.number(0))]
        values = [aliased(tree.copy(), name) for name, tree in (*keys, *grouping.arguments)]
        hidden = [column(field.name, source.name) for field in source.relation.hidden if field.name != POSITION_COLUMN]
        select = select_from_input(
            [*values, *hidden], alias=source.alias, laterals=grouped.laterals, where=grouped.where
        )
        schema = await self.analyst.schema_of(select, inputs_of(source.relation.schema))
        return self.steps.query(select, source.relation, schema, f"keys of {described(grouping)}", own="group")

    # Windows ----------------------------------------------------------------------------------------------------------

    async def _windowed(self, rows: Relation, grouped: Grouped, window: Window) -> Relation:
        grouping = grouped.grouping
        lateness_us = 0 if isinstance(window, Session) else self.settings().allowed_lateness_ms * 1000
        await note_late_letters(grouped.source, grouped.where, window, lateness_us, self.analyst, self.steps)
        before = _in_windows(rows, grouping, window, lateness_us)
        schema = await self.analyst.schema_of(before, inputs_of(rows.schema))
        keys = _keys_of(grouping)
        ends = _window_columns(window, rows)
        aggregation, groups = await self._aggregation(_aggregate_query([*ends, *keys], grouping.aggregates), schema)
        described_as = described(grouping)
        partial = self.steps.keyed(Key(before, aggregation), rows, aggregation.partial, f"partial {described_as}")
        final, output = await self._final(grouping, aggregation, groups, time_of(window))
        kind = self._window_operator(window, aggregation, keys, final, lateness_us)
        if lateness_us:
            output = with_op(output)
        spread_by = keys or (WINDOW_COLUMN,)
        return self.steps.stateful(kind, partial, spread_by, output, described_as)

    def _window_operator(
        self, window: Window, aggregation: Aggregation, keys: tuple[str, ...], final: StageQuery, lateness_us: int
    ) -> Stateful:
        merge = StageQuery("", aggregation, Stage.MERGE)
        match window:
            case Tumble(width_us):
                return TumblingWindowAggregate(width_us, merge, final, lateness_us)
            case Inherited():
                return TumblingWindowAggregate(1, merge, final, lateness_us)
            case Hop(slide_us, width_us):
                return SlidingWindowAggregate(slide_us, width_us, merge, final, lateness_us)
            case Session(gap_us):
                names = aggregation.partial.names
                joined = spark_sql(joined_sessions(select_from_input([column(name) for name in names]), names, keys))
                merge = StageQuery(joined, aggregation, Stage.MERGE, hashed(keys))
                return SessionWindowAggregate(gap_us, merge, final)
            case _:
                assert_never(window)

    # Without windows --------------------------------------------------------------------------------------------------

    async def _updating(self, rows: Relation, grouped: Grouped) -> Relation:
        """Keyed partial results; every row counts once and for ever."""
        grouping = grouped.grouping
        keys = _keys_of(grouping)
        names = [*keys, *(name for name, _ in grouping.arguments), TIMESTAMP_COLUMN]
        before = select_from_input([column(name) for name in names])
        schema = await self.analyst.schema_of(before, inputs_of(rows.schema))
        query = _aggregate_query(keys, grouping.aggregates, latest())
        aggregation, groups = await self._aggregation(query, schema)
        partial = self.steps.keyed(
            Key(before, aggregation), rows, aggregation.partial, f"partial {described(grouping)}"
        )
        final, output = await self._final(grouping, aggregation, groups, column(TIMESTAMP_COLUMN))
        merge = StageQuery("", aggregation, Stage.MERGE, hashed(keys))
        kind = UpdatingAggregate(merge, final, *self.ttl)
        return self.steps.stateful(kind, partial, keys, with_op(output), described(grouping))

    async def _over_changes(self, rows: Relation, grouped: Grouped) -> Relation:
        """What is aggregated can be taken back: the rows of each key are kept, each with how often it is there."""
        grouping = grouped.grouping
        keys = _keys_of(grouping)
        windows: list[exp.Expr] = []
        match grouping.window:
            case Tumble(width_us):
                windows, keys = [aliased(pane_of(width_us), WINDOW_COLUMN)], (WINDOW_COLUMN, *keys)
            case Hop() | Session():
                message = "only tumbling windows can be of rows that change"
                hint = "the rows come from an aggregate without a window, or from changes of a database"
                raise refusal("unsupported", message, self.text.span(grouped.select), hint)
        arguments = [name for name, _ in grouping.arguments]
        if windows:
            select = select_from_input([*windows, *(column(name) for name in rows.schema.names)])
            schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
            rows = self.steps.query(select, rows, schema, "windows", own="group")
        counts = counted([*keys, *arguments], OP_COLUMN)
        schema = await self.analyst.schema_of(counts, inputs_of(rows.schema))
        changes = self.steps.keyed(Key(counts, None), rows, schema, f"changes of {described(grouping)}")
        aggregate = nested(
            _aggregate_query(keys, grouping.aggregates, latest()), spread([*keys, *arguments, TIMESTAMP_COLUMN])
        )
        result = nested(_result_query(grouping, column(TIMESTAMP_COLUMN)), aggregate)
        output = await self.analyst.schema_of(result, inputs_of(schema))
        merge = StageQuery(spark_sql(kept_rows([*keys, *arguments], keys)))
        kind = UpdatingAggregate(merge, StageQuery(spark_sql(result)), *self.ttl)
        return self.steps.stateful(kind, changes, keys, with_op(output), described(grouping))

    # Both -------------------------------------------------------------------------------------------------------------

    async def _aggregation(self, select: exp.Select, schema: pa.Schema) -> tuple[Aggregation, pa.Schema]:
        """An aggregation, and the schema of its groups."""
        analysis = await self.analyst.analyse_aggregation(select, schema)
        return Aggregation(spark_sql(select), schema, analysis.partial), analysis.output

    async def _final(
        self, grouping: Grouping, aggregation: Aggregation, groups: pa.Schema, event_time: exp.Expr
    ) -> tuple[StageQuery, pa.Schema]:
        result = _result_query(grouping, event_time)
        output = await self.analyst.schema_of(result, inputs_of(groups))
        return StageQuery("", aggregation, Stage.FINAL, spark_sql(result)), output


def _keys_of(grouping: Grouping) -> tuple[str, ...]:
    """The columns that groups are told apart by, besides the window."""
    names = tuple(name for name, _ in grouping.keys)
    return names if names or isinstance(grouping.window, Tumble | Inherited) else (_EVERYTHING,)


def _window_columns(window: Window, rows: Relation) -> tuple[str, ...]:
    """The columns that tell the windows of partial results apart."""
    match window:
        case Session():
            return (WINDOW_COLUMN, WINDOW_END_COLUMN)
        case Hop() if rows.has_watermark:
            return (WINDOW_COLUMN, FIRST_WINDOW_COLUMN)
        case _:
            return (WINDOW_COLUMN,)


def _in_windows(rows: Relation, grouping: Grouping, window: Window, lateness_us: int) -> exp.Select:
    """The rows with the window, pane or session that each is in; what is late is left out, and counted."""
    names = [*_keys_of(grouping), *(name for name, _ in grouping.arguments)]
    conditions = [is_on_time(window, lateness_us)] if rows.has_watermark else []
    columns: list[exp.Expr] = [column(name) for name in names]
    time = column(TIMESTAMP_COLUMN)
    match window:
        case Tumble(width_us):
            columns.append(aliased(pane_of(width_us), WINDOW_COLUMN))
        case Inherited():
            columns.append(aliased(time, WINDOW_COLUMN))
        case Hop(slide_us, width_us):
            columns.append(aliased(pane_of(window.pane_us), WINDOW_COLUMN))
            if rows.has_watermark:
                columns.append(aliased(first_window(window), FIRST_WINDOW_COLUMN))
            if slide_us > width_us:  # between two windows a row is in none, and not late
                conditions.insert(0, exp.LT(this=time.copy(), expression=later(pane_of(slide_us), width_us)))
        case Session(gap_us):
            columns.append(aliased(time, WINDOW_COLUMN))
            columns.append(aliased(later(time.copy(), gap_us), WINDOW_END_COLUMN))
        case _:
            assert_never(window)
    select = select_from_input(columns, where=exp.and_(*conditions) if conditions else None)
    if not isinstance(window, Session):
        return select
    return joined_sessions(select, [*names, WINDOW_COLUMN, WINDOW_END_COLUMN], _keys_of(grouping))


def _aggregate_query(keys: Sequence[str], aggregates: Sequence[tuple[str, exp.Expr]], *others: exp.Expr) -> exp.Select:
    select = select_from_input(
        [*(column(key) for key in keys), *others, *(aliased(tree.copy(), name) for name, tree in aggregates)]
    )
    select.set("group", exp.Group(expressions=[column(key) for key in keys]))
    return select


def _result_query(grouping: Grouping, event_time: exp.Expr) -> exp.Select:
    """What the user selects, of keys and aggregates."""
    results = [aliased(_with_window(tree, grouping.window), name) for name, tree in grouping.results]
    having = None if grouping.having is None else _with_window(grouping.having, grouping.window)
    time = exp.Alias(this=event_time.copy(), alias=identifier(TIMESTAMP_COLUMN))
    return select_from_input([*results, time], where=having)


def _with_window(tree: exp.Expr, window: Window | None) -> exp.Expr:
    return tree.copy() if window is None else with_window(tree, struct_of(window))


def _windows_of(grouping: Grouping) -> Windows:
    """Which results tell the windows of rows apart."""
    window = grouping.window
    if window is None:
        return Windows()
    telling = Windows(grouping.window_keys | {WINDOW_MARK})
    columns = frozenset(name for name, tree in grouping.results if telling.told_by(tree))
    return Windows(columns, None if isinstance(window, Session) else window.width_us)


def _times_of(grouped: Grouped) -> Mapping[str, int]:
    """Which results are event times, or always so long after them: the ends of windows, and what the rows have of these
    where groups are of the windows that the rows are of already."""
    grouping, source = grouped.grouping, grouped.source
    match grouping.window:
        case Tumble(width_us) | Hop(_, width_us):
            ends = {"start": 1 - width_us, "end": 1}
            found = ((name, _end_of_window(tree)) for name, tree in grouping.results)
            return {name: ends[end] for name, end in found if end in ends}
        case Inherited():
            known = {
                name: after_us
                for name, tree in grouping.keys
                if (after_us := source.relation.after_time_us(tree, source.name)) is not None
            }
            results = ((name, tree.name) for name, tree in grouping.results if isinstance(tree, exp.Column))
            return {name: known[key] for name, key in results if key in known}
        case _:
            return {}


def _end_of_window(tree: exp.Expr) -> str | None:
    """Which end of the window a result is, if it is one."""
    is_end = isinstance(tree, exp.Dot) and isinstance(tree.this, exp.Column) and tree.this.name == WINDOW_MARK
    return str(tree.expression.name) if is_end else None


def with_op(schema: pa.Schema) -> pa.Schema:
    """The schema of changes of such rows."""
    return pa.schema(
        [*(field for field in schema if field.name != TIMESTAMP_COLUMN), OP, schema.field(TIMESTAMP_COLUMN)]
    )


def described(grouping: Grouping) -> str:
    """A grouping in a few words."""
    names = ", ".join(name for name, _ in grouping.results)
    match grouping.window:
        case None:
            kind = "group"
        case Inherited():
            kind = "windows"
        case window:
            kind = f"{type(window).__name__.lower()} windows"
    return f"{kind}: {names}" if len(names) <= 60 else f"{kind}: {names[:60]}…"
