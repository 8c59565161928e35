"""From the tree of a query to relations, SELECT by SELECT."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.catalog import refuse_reserved
from penstock.compiler.checks import check_clauses, check_expressions
from penstock.compiler.diagnostics import Known, Problems, refusal
from penstock.compiler.positions import Text
from penstock.compiler.relations import Relation, Steps, aliased, cast_column, column, identifier, select_from_input
from penstock.compiler.rewrite import to_spark
from penstock.compiler.tables import SelectSource, select_source
from penstock.compiler.types import JSON_METADATA, is_json, is_unitable, user_name
from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.spark import FunctionKind

_LONGEST_DESCRIPTION: Final = 60

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
                column(TIMESTAMP_COLUMN),
            ]
        )
        schema = pa.schema([*fields, relation.schema.field(TIMESTAMP_COLUMN)])
        return self.steps.query(select, relation, schema, f"name {', '.join(spelled)}")

    # SELECT -----------------------------------------------------------------------------------------------------------

    async def _select(self, select: exp.Select, scope: Scope, positional: bool) -> Relation:
        check_clauses(select, self.text)
        source = await self._source(select, scope)
        for expression in [*select.expressions, *filter(None, [select.args.get("where")])]:
            check_expressions(expression, self.kinds, self.text)
        projections = list(self._projections(select, source, positional))
        where = select.args.get("where")
        step = select_from_input(
            [
                *(aliased(to_spark(value, self.text), name) for name, value in projections),
                column(TIMESTAMP_COLUMN, source.name),
            ],
            alias=source.alias,
            laterals=[to_spark(lateral, self.text) for lateral in source.laterals],
            where=to_spark(where.this, self.text) if where is not None else None,
        )
        analysis = await self.analyst.analyse(step, inputs_of(source.relation.schema))
        schema = _with_json(analysis.schema, projections, source.relation.schema)
        names = ", ".join(name for name, _ in projections)
        shown = names if len(names) <= _LONGEST_DESCRIPTION else f"{names[:_LONGEST_DESCRIPTION]}…"
        return self.steps.query(step, source.relation, schema, f"select {shown}{' where …' if where else ''}")

    async def _source(self, select: exp.Select, scope: Scope) -> SelectSource:
        clause = select.args.get("from_")
        if clause is None:
            hint = "add FROM and the name of a table"
            raise refusal("unsupported", "a query reads from a table", self.text.span(select), hint)
        source = clause.this
        match source:
            case exp.Subquery():
                check_clauses(source, self.text)
                relation = await self.relation(source.this, await self._with_ctes(source, scope))
            case exp.Table() if isinstance(source.this, exp.Identifier):
                self._check_table(source)
                relation = await scope.relation(source)
            case _:
                raise refusal("unsupported", "only tables and queries can be read in FROM", self.text.span(source))
        alias = source.args.get("alias")
        relation = self.renamed(relation, (alias.args.get("columns") if alias is not None else None) or [])
        return select_source(select, source, relation, self.text)

    def _check_table(self, table: exp.Table) -> None:
        if table.args.get("db"):
            hint = "write the name alone, without a dot"
            raise refusal("unknown_table", f"unknown table {table.sql()}", self.text.span(table), hint)
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
            name = explicit or _implied_name(value) or f"column{place}"
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
        return Relation(tuple(part for branch in branches for part in branch.inputs), target)

    async def _common(self, sides: list[exp.Expr], relations: list[Relation]) -> pa.Schema:
        """The schema that all sides can be cast to, with the names of the first."""
        common = relations[0]
        fields = list(common.columns)
        for side, other in zip(sides[1:], relations[1:], strict=True):
            self._check_sides(side, fields, other.columns)
            inputs = {"one": pa.schema(fields), "other": pa.schema(other.columns)}
            both = exp.Union(this=_all_of("one", fields), expression=_all_of("other", other.columns), distinct=False)
            schema = (await self.analyst.analyse(both, inputs)).schema
            fields = [
                pa.field(field.name, found.type, found.nullable, field.metadata)
                for field, found in zip(fields, schema, strict=True)
            ]
        return pa.schema([*fields, common.schema.field(TIMESTAMP_COLUMN)])

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
        select = select_from_input([*values, column(TIMESTAMP_COLUMN)])
        return self.steps.query(select, relation, target, "side of a union", own="union")


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


def _all_of(table: str, fields: list[pa.Field]) -> exp.Select:
    return exp.Select(
        expressions=[column(field.name) for field in fields], from_=exp.From(this=exp.Table(this=identifier(table)))
    )


def _implied_name(value: exp.Expr) -> str | None:
    """The name of a column that has none, as Postgres has it."""
    match value:
        case exp.Column():
            return value.name
        case exp.Dot():
            return str(value.expression.name)
        case exp.Cast() | exp.Paren():
            return _implied_name(value.this)
        case exp.Anonymous():
            return value.name.lower()
        case exp.Case() | exp.If():
            return "case"
        case exp.Bracket():
            return _implied_name(value.this)
        case exp.Func() if not isinstance(value, exp.Binary):
            return str(value.sql_name()).lower()
    return None


def _with_json(schema: pa.Schema, projections: list[tuple[str, exp.Expr]], source: pa.Schema) -> pa.Schema:
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
