"""From the tree of a query to relations, SELECT by SELECT."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.common.program import OP_COLUMN, WATERMARK_COLUMN, ProgramSettings
from penstock.compiler.aggregates import Aggregates, Grouped
from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.async_calls import AsyncCalls, Selected
from penstock.compiler.catalog import ConnectorTable, refuse_reserved
from penstock.compiler.checks import Clause, check_clauses, check_expressions
from penstock.compiler.diagnostics import Known, Problems, refusal
from penstock.compiler.grouped_windows import windowed_table, with_grouped_window
from penstock.compiler.grouping import WINDOW_MARK, Grouping, Named, distinct, group, is_grouped, with_window
from penstock.compiler.joined_tables import JoinedTables, has_joins
from penstock.compiler.joins import Joins
from penstock.compiler.lookups import Lookups, columns_of
from penstock.compiler.names import FromTable, implied_name
from penstock.compiler.overs import Overs, Ranked, has_over, windows_of, with_named_windows
from penstock.compiler.positions import Text
from penstock.compiler.relations import (
    OP,
    TIMESTAMP,
    WATERMARK,
    Relation,
    Steps,
    Versions,
    Windows,
    aliased,
    all_of,
    cast_column,
    column,
    select_from_input,
)
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource, select_source
from penstock.compiler.temporal_joins import TemporalJoins
from penstock.compiler.types import JSON_METADATA, is_json, is_unitable, spark_sql_cast, user_name
from penstock.compiler.udfs import BuiltUdf
from penstock.compiler.unnests import Unnests
from penstock.compiler.versions import Selection, renamed_versions
from penstock.compiler.window_tables import WindowTables
from penstock.compiler.windows import is_window
from penstock.spark import FunctionKind

_LONGEST_DESCRIPTION: Final = 60
_FIRST: Final = "_first"
"""A query in FROM that has no name, where others are joined with it."""

Lookup = Callable[[exp.Table], Awaitable[Relation]]


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that a query can read: its CTEs, then the catalog; None for a CTE that is wrong."""

    lookup: Lookup
    named: Mapping[str, Relation | None]

    async def relation(self, table: exp.Table) -> Relation:
        if not table.args.get("db") and table.name in self.named:
            relation = self.named[table.name]
            if relation is None:
                raise Known
            return relation
        return await self.lookup(table)


@dataclass(frozen=True, slots=True)
class Queries:
    """Plans queries."""

    analyst: Analyst
    steps: Steps
    text: Text
    problems: Problems
    kinds: Mapping[str, FunctionKind]
    settings: Callable[[], ProgramSettings]
    lookup_table: Callable[[str], ConnectorTable | None]
    udfs: Mapping[str, BuiltUdf] = field(default_factory=dict)
    """The async functions that it calls, by their keys."""

    async def relation(self, query: exp.Expr, scope: Scope, *, positional: bool = False) -> Relation:
        """The rows of a query. Where they are used by position, two columns may have one name."""
        if not isinstance(query, exp.Query):
            raise refusal("unsupported", "this is not a query over a table", self.text.span(query))
        scope = await self._with_ctes(query, scope)
        if isinstance(query, exp.SetOperation | exp.Subquery):
            check_clauses(query, self.text)
        match query:
            case exp.Subquery():
                return await self.relation(query.this, scope, positional=positional)
            case exp.SetOperation():
                return await self._union(query, scope, positional)
            case exp.Select():
                return await self._select(query, scope, positional)
            case exp.Values():
                hint = "read rows from a source, such as a single_file"
                raise refusal("unsupported", "VALUES is not supported", self.text.span(query), hint)
        raise refusal("unsupported", "this kind of query is not supported", self.text.span(query))

    async def _with_ctes(self, query: exp.Query, scope: Scope) -> Scope:
        clause = query.args.get("with_")
        if clause is None:
            return scope
        if clause.args.get("recursive"):
            raise refusal("unsupported", "WITH RECURSIVE is not supported", self.text.span(clause))
        named = dict(scope.named)
        for cte in clause.expressions:
            inner = Scope(scope.lookup, dict(named))
            named[cte.alias] = None
            with self.problems.collecting():
                relation = await self.relation(cte.this, inner)
                named[cte.alias] = self.renamed(relation, cte.args["alias"].args.get("columns") or [])
        return Scope(scope.lookup, named)

    def renamed(self, relation: Relation, names: list[exp.Identifier]) -> Relation:
        """The relation with other names for its first columns."""
        if not names:
            return relation
        if len(names) > len(relation.columns):
            message = f"there are {len(names)} names for {len(relation.columns)} columns"
            raise refusal("column_count", message, self.text.span(names[-1]))
        spelled = [name.name for name in names]
        targets = [*spelled, *(field.name for field in relation.columns[len(names) :])]
        fields = [field.with_name(name) for field, name in zip(relation.columns, targets, strict=True)]
        select = select_from_input(
            [
                *(cast_column(field, target) for field, target in zip(relation.columns, fields, strict=True)),
                *(column(field.name) for field in relation.hidden),
            ]
        )
        schema = pa.schema([*fields, *relation.hidden])
        named = self.steps.query(select, relation, schema, f"name {', '.join(spelled)}")
        windows = relation.windows
        told = frozenset(
            target for field, target in zip(relation.columns, targets, strict=True) if field.name in windows.columns
        )
        times = {
            target: relation.times[field.name]
            for field, target in zip(relation.columns, targets, strict=True)
            if field.name in relation.times
        }
        versions = renamed_versions(relation, targets, lambda rows: self.renamed(rows, names))
        return replace(
            named,
            windows=Windows(told, windows.width_us),
            late_letters=relation.late_letters,
            times=times,
            versions=versions,
        )

    # SELECT -----------------------------------------------------------------------------------------------------------

    async def _select(self, select: exp.Select, scope: Scope, positional: bool) -> Relation:
        check_clauses(select, self.text)
        if (table := windowed_table(select)) is not None:
            select = with_grouped_window(select, table, await scope.relation(table), self.kinds)
        select, source = await self._read(select, scope)
        select = with_named_windows(select, self.text)
        self._check(select)
        projections = tuple(self._projections(select, source, positional))
        if self.udfs:
            selected = await self._async_calls.awaited(Selected(select, source, projections))
            select, source, projections = selected.select, selected.source, selected.projections
        values = [value for _, value in projections]
        if is_grouped(select, values, self.kinds):
            relation = await self._grouped(select, source, projections)
        elif has_over(values):
            trees = [(name, to_spark(value, self.text)) for name, value in projections]
            relation = await self._overs.relation(Ranked(source, self._where(select), trees, select))
        else:
            relation = await self._projected(select, source, projections)
        return await self._distinct(select, relation) if select.args.get("distinct") else relation

    async def _read(self, select: exp.Select, scope: Scope) -> tuple[exp.Select, SelectSource]:
        """What a SELECT reads. Beside other tables, the SELECT has other names for its columns."""
        if not has_joins(select):
            return select, await self._source(select, scope)
        for condition in filter(None, (join.args.get("on") for join in select.args.get("joins") or ())):
            check_expressions(condition, Clause.ON, self.kinds, self.text)
        return await self._joined_tables(scope).read(select)

    def _lookup_of(self, table: exp.Expr, scope: Scope) -> ConnectorTable | None:
        is_named = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) and not table.args.get("db")
        return self.lookup_table(table.name) if is_named and table.name not in scope.named else None

    def _check(self, select: exp.Select) -> None:
        for clause, name in ((Clause.WHERE, "where"), (Clause.HAVING, "having"), (Clause.GROUP_BY, "group")):
            if (found := select.args.get(name)) is not None:
                check_expressions(found, clause, self.kinds, self.text)
        for expression in select.expressions:
            check_expressions(expression, Clause.SELECT, self.kinds, self.text)

    def _where(self, select: exp.Select) -> exp.Expr | None:
        where = select.args.get("where")
        return None if where is None else to_spark(where.this, self.text)

    async def _projected(self, select: exp.Select, source: SelectSource, projections: Named) -> Relation:
        """A SELECT of one row each."""
        for _, value in projections:
            for call in value.find_all(exp.Anonymous):
                if is_window(call):
                    hint = "add GROUP BY with the window"
                    raise refusal("window_not_grouped", "a window belongs in GROUP BY", self.text.place(call), hint)
        where = self._where(select)
        versions = self._versions(source, where, projections)
        source = await _limited(source, where)
        step = select_from_input(
            [
                *(aliased(to_spark(value, self.text), name) for name, value in projections),
                *(column(field.name, source.name) for field in source.relation.hidden),
            ],
            alias=source.alias,
            laterals=[to_spark(lateral, self.text) for lateral in source.laterals],
            where=where,
        )
        computed = await self.analyst.schema_of(step, inputs_of(source.relation.schema))
        schema = _with_json(computed, projections, source.relation.schema)
        names = ", ".join(name for name, _ in projections)
        shown = names if len(names) <= _LONGEST_DESCRIPTION else f"{names[:_LONGEST_DESCRIPTION]}…"
        relation = self.steps.query(step, source.relation, schema, f"select {shown}{' where …' if where else ''}")
        return replace(
            relation,
            windows=windows_of(projections, source),
            late_letters=source.relation.late_letters,
            times={
                name: after_us
                for name, value in projections
                if (after_us := source.relation.after_time_us(value, source.name)) is not None
            },
            versions=versions,
        )

    def _versions(self, source: SelectSource, where: exp.Expr | None, projections: Named) -> Versions | None:
        """What is known of the rows of a SELECT as versions."""
        ranking, found = source.relation.ranking, source.relation.versions
        if ranking is not None and where is not None and _limit_of(where, ranking.column, source.name) == 1:
            found = ranking.versions
        elif where is not None and found is not None:
            # Without rows that WHERE leaves out, older ones would stay valid; what changes says that they are gone.
            found = Versions(found.key) if source.relation.is_updating else None
        if found is None:
            return None
        spark = [(name, to_spark(value, self.text)) for name, value in projections]
        return Selection(source, spark, found).versions(self.analyst, self.steps)

    async def _grouped(self, select: exp.Select, source: SelectSource, projections: Named) -> Relation:
        """A SELECT of groups; functions with OVER are then of the groups."""
        grouping = group(select, projections, source, self.kinds, self.text)
        laterals = [to_spark(lateral, self.text) for lateral in source.laterals]
        where = self._where(select)
        if not has_over([value for _, value in grouping.results]):
            return await self._aggregates.relation(Grouped(source, where, laterals, grouping, select))
        groups = await self._aggregates.relation(Grouped(source, where, laterals, _of_groups(grouping), select))
        trees = [(name, with_window(tree, column(_GROUP_WINDOW))) for name, tree in grouping.results]
        return await self._overs.relation(Ranked(SelectSource(groups, None, ()), None, trees, select))

    async def _distinct(self, select: exp.Select, relation: Relation) -> Relation:
        if select.args["distinct"].args.get("on"):
            hint = "number the rows of each key with ROW_NUMBER() OVER (…) in a query in FROM, and keep the first"
            raise refusal("unsupported", "DISTINCT ON is not supported", self.text.span(select), hint)
        source = SelectSource(relation, None, ())
        columns = tuple((field.name, column(field.name)) for field in relation.columns)
        return await self._aggregates.relation(Grouped(source, None, (), distinct(columns, source, self.text), select))

    @property
    def _aggregates(self) -> Aggregates:
        return Aggregates(self.analyst, self.steps, self.text, self.settings)

    @property
    def _joins(self) -> Joins:
        return Joins(self.analyst, self.steps, self.text, self.settings)

    @property
    def _async_calls(self) -> AsyncCalls:
        return AsyncCalls(self.analyst, self.steps, self.text, self.settings, self.kinds, self.udfs)

    @property
    def _overs(self) -> Overs:
        return Overs(self.analyst, self.steps, self.text, self.settings)

    async def _source(self, select: exp.Select, scope: Scope) -> SelectSource:
        clause = select.args.get("from_")
        if clause is None:
            hint = "add FROM and the name of a table"
            raise refusal("unsupported", "a query reads from a table", self.text.span(select), hint)
        source = clause.this
        return select_source(select, source, await self._from(source, scope), self.text)

    async def _from(self, source: exp.Expr, scope: Scope) -> Relation:
        """The rows of a table or query in FROM."""
        match source:
            case exp.Subquery():
                check_clauses(source, self.text)
                relation = await self.relation(source.this, await self._with_ctes(source, scope))
            case exp.Table() if isinstance(source.this, exp.Identifier):
                self._check_table(source)
                relation = await scope.relation(source)
            case exp.Table() if is_window(source.this):
                relation = await self._window_table(source, scope)
            case _:
                raise refusal("unsupported", "only tables and queries can be read in FROM", self.text.span(source))
        alias = source.args.get("alias")
        return self.renamed(relation, (alias.args.get("columns") if alias is not None else None) or [])

    def _joined_tables(self, scope: Scope) -> JoinedTables:
        return JoinedTables(
            self._joins,
            TemporalJoins(self.analyst, self.steps, self.text, self.settings),
            Lookups(self.analyst, self.steps, self.text, self.settings),
            Unnests(self.analyst, self.steps, self.text, self.settings),
            self.text,
            lambda table: self._from_table(table, scope),
            lambda query: self.relation(query, scope),
            lambda select: is_grouped(select, select.expressions, self.kinds),
        )

    async def _from_table(self, source: exp.Expr, scope: Scope) -> FromTable:
        """One of several tables in FROM, under its name."""
        name = source.alias or (source.name if isinstance(source, exp.Table) else "")
        is_first = isinstance(source.parent, exp.From)
        if not is_first and (table := self._lookup_of(source, scope)) is not None:
            return FromTable(name, Relation((), columns_of(table)), looked_up=table)
        relation = await self._from(source, scope)
        if is_first:
            return FromTable(name or _FIRST, relation)
        if not name:
            hint = "write (SELECT …) AS name"
            raise refusal("missing_name", "a query that is joined needs a name", self.text.span(source), hint)
        return FromTable(name, relation)

    async def _window_table(self, source: exp.Table, scope: Scope) -> Relation:
        """`tumble(table, width)` in FROM."""
        call = source.this
        table, *lengths = call.expressions or [None]
        if not isinstance(table, exp.Column) or table.table:
            hint = f"write {call.name.lower()}(clicks, INTERVAL '1 minute')"
            raise refusal("wrong_arguments", "a window in FROM is of a table", self.text.span(table, call), hint)
        named = exp.Table(this=table.this.copy())
        rows = await scope.relation(named)
        tables = WindowTables(self.analyst, self.steps, self.text, self.settings)
        return await tables.relation(call, lengths, rows)

    def _check_table(self, table: exp.Table) -> None:
        if table.args.get("db"):
            hint = "write the name alone, without a dot"
            raise refusal("unknown_table", f"unknown table {table.sql()}", self.text.span(table), hint)
        if (version := table.args.get("version")) is not None:
            message = "FOR SYSTEM_TIME AS OF belongs to a table that other rows are joined with"
            hint = f"write FROM … JOIN {table.name} FOR SYSTEM_TIME AS OF …"
            raise refusal("unsupported", message, self.text.span(version.expression, table), hint)
        extra = [
            name for name, value in table.args.items() if value and name not in ("this", "alias", "joins", "laterals")
        ]
        if extra or table.args.get("joins"):
            what = "a join" if table.args.get("joins") else extra[0].upper()
            raise refusal("unsupported", f"{what} is not supported here", self.text.span(table))

    def _projections(
        self, select: exp.Select, source: SelectSource, positional: bool
    ) -> Iterator[tuple[str, exp.Expr]]:
        """The columns of a SELECT, with stars in full, each under a name of its own."""
        seen: set[str] = set()
        expanded = [column for item in select.expressions for column in source.expanded(item, self.text)]
        for place, item in enumerate(expanded, start=1):
            value = item.this if isinstance(item, exp.Alias) else item
            explicit = item.alias if isinstance(item, exp.Alias) else None
            if isinstance(item, exp.Aliases):
                raise refusal("unsupported", "one value has one name", self.text.span(item))
            name = explicit or implied_name(value) or f"column{place}"
            refuse_reserved(name, self.text.span(item))
            if name in seen:
                is_implied = explicit is None and not isinstance(value, exp.Column | exp.Dot)
                if not positional and not is_implied:
                    hint = "give one of them another name with AS"
                    raise refusal("duplicate", f"column {name} is there twice", self.text.span(item), hint)
                number = 2
                while f"{name}_{number}" in seen:
                    number += 1
                name = f"{name}_{number}"
            seen.add(name)
            yield name, value

    # UNION ALL --------------------------------------------------------------------------------------------------------

    async def _union(self, query: exp.SetOperation, scope: Scope, positional: bool) -> Relation:
        if not isinstance(query, exp.Union) or query.args.get("distinct") or query.args.get("by_name"):
            what = "UNION without ALL" if isinstance(query, exp.Union) else type(query).__name__.upper()
            hint = "write UNION ALL" if isinstance(query, exp.Union) else None
            raise refusal("unsupported", f"{what} is not supported", self.text.span(query.expression), hint)
        sides = list(_sides(query))
        relations: list[Relation | None] = []
        for side in sides:
            relations.append(None)
            with self.problems.collecting():
                relations[-1] = await self.relation(side, scope, positional=positional)
        found = [relation for relation in relations if relation is not None]
        if len(found) < len(sides):
            raise Known
        target = await self._common(sides, found)
        branches = [self._branch(relation, target) for relation in found]
        return Relation(tuple(part for branch in branches for part in branch.inputs), target, _common_windows(found))

    async def _common(self, sides: list[exp.Expr], relations: list[Relation]) -> pa.Schema:
        """The schema that all sides can be cast to, with the names of the first."""
        common = relations[0]
        fields = list(common.columns)
        for side, other in zip(sides[1:], relations[1:], strict=True):
            self._check_sides(side, fields, other.columns)
            inputs = {"one": pa.schema(fields), "other": pa.schema(other.columns)}
            both = exp.Union(this=all_of("one", fields), expression=all_of("other", other.columns), distinct=False)
            schema = await self.analyst.schema_of(both, inputs)
            fields = [
                pa.field(field.name, found.type, found.nullable, field.metadata)
                for field, found in zip(fields, schema, strict=True)
            ]
        is_updating = any(relation.is_updating for relation in relations)
        has_watermark = any(relation.has_watermark for relation in relations)
        return pa.schema([*fields, *[OP] * is_updating, *[WATERMARK] * has_watermark, TIMESTAMP])

    def _check_sides(self, side: exp.Expr, fields: list[pa.Field], others: list[pa.Field]) -> None:
        if len(fields) != len(others):
            message = f"the sides of UNION ALL have {len(fields)} and {len(others)} columns"
            raise refusal("column_count", message, self.text.span(side))
        for place, (one, other) in enumerate(zip(fields, others, strict=True)):
            if not is_unitable(one.type, other.type):
                values = side.expressions if isinstance(side, exp.Select) else []
                value = values[place] if place < len(values) else None
                message = f"column {one.name} is {user_name(one.type)} above and {user_name(other.type)} here"
                hint = f"write CAST(… AS {user_name(one.type)})"
                raise refusal("type_mismatch", message, self.text.span(value, side), hint)

    def _branch(self, relation: Relation, target: pa.Schema) -> Relation:
        """A side of a union; a step of its own, because what reads it reads the other sides too."""
        values = [
            cast_column(source, field) for source, field in zip(relation.columns, target, strict=False)
        ]  # fmt: skip
        hidden = [_hidden(relation, field.name) for field in target if field.name in (OP_COLUMN, WATERMARK_COLUMN)]
        select = select_from_input([*values, *hidden, column(TIMESTAMP.name)])
        return self.steps.query(select, relation, target, "side of a union", own="union")


async def _limited(source: SelectSource, where: exp.Expr | None) -> SelectSource:
    """The source with only the first rows of each key, if the query asks for no others."""
    ranking = source.relation.ranking
    if ranking is None or where is None:
        return source
    parts = where.flatten() if isinstance(where, exp.And) else (where,)
    limits = [limit for part in parts if (limit := _limit_of(part, ranking.column, source.name)) is not None]
    return replace(source, relation=await ranking.limited(min(limits))) if limits else source


def _limit_of(condition: exp.Expr, name: str, table: str | None) -> int | None:
    """The greatest number that a condition on a column lets through."""
    if not isinstance(condition, exp.LTE | exp.LT | exp.EQ):
        return None
    value, bound = condition.this, condition.expression
    if not isinstance(value, exp.Column) or value.name != name or value.table not in ("", table) or not bound.is_int:
        return None
    return max(0, int(bound.name) - isinstance(condition, exp.LT))


def _hidden(relation: Relation, name: str) -> exp.Expr:
    """A hidden column, which a side of a union may lack: its rows then come for good, and are never late."""
    if name in relation.schema.names:
        return column(name)
    if name == OP_COLUMN:
        return aliased(spark_sql_cast(exp.Literal.number(1), "TINYINT"), name)
    return aliased(spark_sql_cast(exp.Null(), "TIMESTAMP_NTZ"), name)


def _common_windows(relations: list[Relation]) -> Windows:
    """The windows of rows of all sides, by the columns of the first; none unless all have the same."""
    first = relations[0]
    places = [
        place
        for place, field in enumerate(first.columns)
        if all(other.columns[place].name in other.windows.columns for other in relations)
        and field.name in first.windows.columns
    ]
    widths = {relation.windows.width_us for relation in relations}
    if not places or len(widths) > 1:
        return Windows()
    return Windows(frozenset(first.columns[place].name for place in places), first.windows.width_us)


_GROUP_WINDOW: Final = "_w"


def _of_groups(grouping: Grouping) -> Grouping:
    """The same groups with their keys, aggregates and window as results."""
    parts = [*grouping.keys, *grouping.aggregates]
    results = tuple((name, column(name)) for name, _ in parts)
    window = ((_GROUP_WINDOW, column(WINDOW_MARK)),) if _has_mark(grouping) else ()
    return replace(grouping, results=(*results, *window))


def _has_mark(grouping: Grouping) -> bool:
    return any(found.name == WINDOW_MARK for _, tree in grouping.results for found in tree.find_all(exp.Column))


def _sides(query: exp.SetOperation) -> Iterator[exp.Expr]:
    """The sides of a chain of UNION ALL."""
    pending: list[exp.Expr] = [query.expression, query.this]
    while pending:
        side = pending.pop()
        given = {name for name, value in side.args.items() if value}
        if isinstance(side, exp.Union) and given <= {"this", "expression"}:
            pending.extend([side.expression, side.this])
        else:
            yield side


def _with_json(schema: pa.Schema, projections: Named, source: pa.Schema) -> pa.Schema:
    """The schema with JSON where a column holds it: Spark knows only text."""
    holding = {name for name, value in projections if _is_json(value, source)}
    return pa.schema(
        [
            field.with_metadata(dict(JSON_METADATA)) if field.name in holding and arrow.is_string(field.type) else field
            for field in schema
        ]
    )


def _is_json(value: exp.Expr, source: pa.Schema) -> bool:
    match value:
        case exp.Paren():
            return _is_json(value.this, source)
        case exp.Column():
            return value.name in source.names and is_json(source.field(value.name))
        case exp.Cast():
            return value.to.this in (exp.DType.JSON, exp.DType.JSONB)
        case exp.JSONExtract():
            return True
    return False
