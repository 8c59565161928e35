"""From statements to the logical plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import ProgramSettings, TtlTime
from penstock.compiler.analysis import Analyst
from penstock.compiler.catalog import (
    ConnectorTable,
    Faulty,
    MemoryTable,
    Table,
    declared_schema,
    define_table,
    milliseconds,
)
from penstock.compiler.diagnostics import Known, Problems, did_you_mean, listed, refusal
from penstock.compiler.plan import Plan, Write
from penstock.compiler.positions import Text
from penstock.compiler.queries import Queries, Scope
from penstock.compiler.relations import Relation, Steps, common_schema, dead_letters_of
from penstock.compiler.sinks import Assignment, Assignments, preview_name
from penstock.compiler.sources import Source, Sources
from penstock.compiler.statements import CreateFunction, CreateTable, CreateView, Insert, Name, Select, Set, Statement
from penstock.compiler.udfs import BuiltUdf
from penstock.compiler.written_rows import WrittenRows
from penstock.connectors.base import DEAD_LETTERS, BadData, DecodeOptions, EncodeOptions, Role
from penstock.connectors.registry import CONNECTORS
from penstock.spark import FunctionKind

_PREVIEW: Final = "preview"
_MAX_PARALLELISM: Final = 1024
_DURATIONS: Final = ("checkpoint_interval", "updating_ttl", "allowed_lateness")
_TTL_TIMES: Final = {time.name.lower(): time for time in TtlTime}
_SETTINGS: Final = ("parallelism", *_DURATIONS, "updating_ttl_time")


class Planner:
    """Plans the statements of one query, in their order."""

    def __init__(
        self,
        analyst: Analyst,
        text: Text,
        problems: Problems,
        kinds: Mapping[str, FunctionKind],
        *,
        preview: bool,
        udfs: Mapping[str, BuiltUdf] | None = None,
    ) -> None:
        self._text = text
        self._problems = problems
        self._preview = preview
        self._steps = Steps()
        self._sources = Sources(analyst, self._steps, text, problems)
        self._queries = Queries(
            analyst, self._steps, text, problems, kinds, lambda: self._settings, self._lookup_table, udfs or {}
        )
        self._assignments = Assignments(analyst, self._steps, text)
        self._written_rows = WrittenRows(analyst, self._steps)
        self._settings = ProgramSettings()
        self._tables: dict[str, Table | Relation] = {}
        self._names: dict[str, Name] = {}
        self._used: set[str] = set()
        self._read: dict[str, Source | None] = {}
        self._memory: dict[str, list[Relation]] = {}
        self._closed_memory: dict[str, Relation] = {}
        self._written: dict[str, list[Relation]] = {}
        self._sinks: dict[str, Write] = {}
        self._outputs = 0

    async def plan(self, statements: Sequence[Statement]) -> Plan:
        """The plan of all statements; what is wrong goes to the problems."""
        for statement in sorted(statements, key=lambda found: not isinstance(found, Set)):  # they count for all others
            with self._problems.collecting():
                await self._statement(statement)
        await self._connect_dead_letters()
        if not self._outputs and not self._problems.has_errors:
            hint = "add INSERT INTO … SELECT …, or a SELECT to see rows"
            self._problems.error("no_output", "the query has no INSERT and no SELECT, so it does nothing", None, hint)
        if not self._problems.has_errors:
            self._warn_of_unused()
            for table, relations in self._written.items():
                self._steps.write(self._sinks[table], relations)
        return Plan(self._steps.all(), self._settings)

    async def _statement(self, statement: Statement) -> None:
        match statement:
            case CreateTable():
                await self._create_table(statement)
            case CreateView():
                await self._create_view(statement)
            case Insert():
                await self._insert(statement)
            case Select():
                await self._select(statement)
            case Set():
                self._set(statement)
            case CreateFunction():
                pass  # functions are there before the statements that call them
            case _:
                assert_never(statement)

    # CREATE -----------------------------------------------------------------------------------------------------------

    async def _create_table(self, statement: CreateTable) -> None:
        self._name(statement.name)
        self._tables[statement.name.text] = Faulty()
        table = define_table(statement, self._problems)
        if statement.query is None or isinstance(table, Faulty):
            self._tables[statement.name.text] = table
            return
        relation = await self._relation(statement.query)
        if isinstance(table, ConnectorTable):
            self._tables[statement.name.text] = table
            await self._write(table, statement.name, (), statement.query, relation)
            return
        if statement.columns:
            assignment = Assignment(statement.name, declared_schema(statement), (), statement.query)
            relation = await self._assignments.relation(assignment, relation)
        self._tables[statement.name.text] = relation

    async def _create_view(self, statement: CreateView) -> None:
        self._name(statement.name)
        self._tables[statement.name.text] = Faulty()
        if statement.query is None:
            return
        relation = await self._relation(statement.query)
        names = [exp.Identifier(this=name.text, quoted=True) for name in statement.columns]
        self._tables[statement.name.text] = self._queries.renamed(relation, names)

    def _name(self, name: Name) -> None:
        if name.text in self._tables:
            first = self._names[name.text].span
            raise refusal("duplicate", f"{name.text} is created twice; first in line {first.line}", name.span)
        self._names[name.text] = name

    # Reading ----------------------------------------------------------------------------------------------------------

    async def _relation(self, query: exp.Expr, *, positional: bool = False) -> Relation:
        return await self._queries.relation(query, Scope(self._lookup, {}), positional=positional)

    async def _lookup(self, reference: exp.Table) -> Relation:
        """The rows of a table or view that a query names."""
        table = self._tables.get(reference.name)
        span = self._text.span(reference.this)
        self._used.add(reference.name)
        match table:
            case None:
                hint = did_you_mean(reference.name, self._tables) or (
                    f"there are {listed(self._tables)}" if self._tables else "create it with CREATE TABLE"
                )
                raise refusal("unknown_table", f"unknown table {reference.name}", span, hint)
            case Relation():
                return table
            case MemoryTable():
                return self._memory_rows(table, reference)
            case ConnectorTable(role=Role.LOOKUP):
                message = f"{reference.name} is a lookup table, which is not read by itself"
                hint = f"join it by its key: FROM … JOIN {reference.name} ON … = {reference.name}.{table.key_name}"
                raise refusal("not_a_source", message, span, hint)
            case ConnectorTable():
                if self._role_of(table, Role.SOURCE) is not Role.SOURCE:
                    message = f"{reference.name} is a sink, which cannot be read"
                    hint = "read what is written to it: make that query a view"
                    raise refusal("not_a_source", message, span, hint)
                return (await self._source(table)).rows
            case Faulty():
                raise Known

    def _lookup_table(self, name: str) -> ConnectorTable | None:
        """A lookup table by its name."""
        table = self._tables.get(name)
        if not isinstance(table, ConnectorTable) or table.role is not Role.LOOKUP:
            return None
        self._used.add(name)
        return table

    def _memory_rows(self, table: MemoryTable, reference: exp.Table) -> Relation:
        if (closed := self._closed_memory.get(table.name)) is not None:
            return closed
        relations = self._memory.get(table.name, [])
        if not relations:
            hint = f"put INSERT INTO {table.name} before the statement that reads it"
            raise refusal(
                "empty_table", f"nothing is inserted into {table.name}", self._text.span(reference.this), hint
            )
        schema = common_schema([relation.schema for relation in relations])
        inputs = tuple(part for relation in relations for part in relation.inputs)
        self._closed_memory[table.name] = self._steps.unify(inputs, schema)
        return self._closed_memory[table.name]

    async def _source(self, table: ConnectorTable) -> Source:
        if table.name not in self._read:
            self._read[table.name] = None
            self._read[table.name] = await self._sources.relation(table)
        source = self._read[table.name]
        if source is None:
            raise Known
        return source

    def _role_of(self, table: ConnectorTable, wanted: Role) -> Role:
        """What a table is; where nothing says so, its first use does."""
        if table.role is None:
            table = replace(table, role=wanted)
            self._tables[table.name] = table
        assert table.role is not None
        return table.role

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _insert(self, statement: Insert) -> None:
        self._outputs += 1
        name = statement.table
        table = self._tables.get(name.text)
        self._used.add(name.text)
        match table:
            case None:
                hint = did_you_mean(name.text, self._tables) or "create it with CREATE TABLE"
                self._problems.error("unknown_table", f"unknown table {name.text}", name.span, hint)
            case Relation():
                self._problems.error("not_a_sink", f"{name.text} is a view, which cannot be written", name.span)
        relation = await self._relation(statement.query, positional=True)
        match table:
            case MemoryTable():
                await self._remember(table, statement, relation)
            case ConnectorTable():
                await self._write(table, name, statement.columns, statement.query, relation)

    async def _remember(self, table: MemoryTable, statement: Insert, relation: Relation) -> None:
        if table.name in self._closed_memory:
            message = f"{table.name} has been read before this INSERT"
            hint = "put all INSERTs into it before the first statement that reads it"
            raise refusal("read_before_written", message, statement.table.span, hint)
        schema = declared_schema(table.statement)
        assignment = Assignment(statement.table, schema, statement.columns, statement.query)
        self._memory.setdefault(table.name, []).append(await self._assignments.relation(assignment, relation))

    async def _write(
        self, table: ConnectorTable, name: Name, columns: tuple[Name, ...], query: exp.Expr, relation: Relation
    ) -> None:
        self._outputs += 1
        self._open_sink(table, name)
        if _writes_json(self._sinks[table.name]):
            self._assignments.refuse_unwritable(query, relation.columns)
        assignment = Assignment(name, self._sink_columns(table), columns, query)
        rows = await self._assignments.relation(assignment, relation)
        rows = await self._written_rows.relation(self._sinks[table.name], name, rows)
        self._written.setdefault(table.name, []).append(rows)

    def _open_sink(self, table: ConnectorTable, name: Name) -> None:
        if table.role is Role.LOOKUP:
            message = f"{table.name} is a lookup table, which cannot be written"
            raise refusal("not_a_sink", message, name.span, "create another table for the rows, of type 'sink'")
        if self._role_of(table, Role.SINK) is not Role.SINK:
            hint = None if table.connector.sink is None else "leave out type = 'source', and do not read it"
            raise refusal("not_a_sink", f"{table.name} is a source, which cannot be written", name.span, hint)
        special = [found.name for found in table.statement.columns if found.computed is not None or found.metadata_key]
        if special:
            message = f"column {special[0].text} is computed or metadata, which a sink cannot have"
            raise refusal("invalid_column", message, special[0].span)
        options = table.check(Role.SINK, self._problems)
        self._used.add(table.name)
        limit = table.connector.max_parallelism(Role.SINK, options)
        if self._preview:
            self._sinks[table.name] = _preview_sink(table.name)
        else:
            self._sinks[table.name] = Write(table.connector.name, table.name, table.connector_options(), limit)

    def _sink_columns(self, table: ConnectorTable) -> pa.Schema | None:
        declared = declared_schema(table.statement)
        if declared is None and (earlier := self._written.get(table.name)):
            return pa.schema([field.with_nullable(True) for field in earlier[0].columns])
        return declared

    async def _select(self, statement: Select) -> None:
        self._outputs += 1
        relation = await self._relation(statement.query)
        self._assignments.refuse_unwritable(statement.query, relation.columns)
        table = preview_name({*self._tables, *self._sinks})
        assignment = Assignment(Name(table, statement.span), None, (), statement.query)
        self._sinks[table] = _preview_sink(table)
        rows = await self._assignments.relation(assignment, relation)
        self._written[table] = [await self._written_rows.relation(self._sinks[table], assignment.table, rows)]

    # Dead letters -----------------------------------------------------------------------------------------------------

    async def _connect_dead_letters(self) -> None:
        for table in list(self._tables.values()):
            if isinstance(table, ConnectorTable) and self._read.get(table.name) is not None:
                with self._problems.collecting():
                    await self._connect_dead_letter(table)
        for name, rows in self._steps.udf_letters:
            with self._problems.collecting():
                await self._connect_udf_letters(name, rows)

    async def _connect_udf_letters(self, name: str, rows: Relation) -> None:
        """Rows for which a Python function failed go to the table that it names."""
        found = self._tables.get(name)
        if isinstance(found, Faulty):
            raise Known
        if not isinstance(found, ConnectorTable):
            hint = did_you_mean(name, self._tables) or "create it with CREATE TABLE and the connector of a sink"
            raise refusal("unknown_table", f"there is no sink table {name}, which a function names", None, hint)
        self._open_sink(found, found.statement.name)
        columns = self._sink_columns(found)
        written = await self._assignments.dead_letters(found.statement.name, columns, rows)
        self._written.setdefault(found.name, []).append(written)

    async def _connect_dead_letter(self, table: ConnectorTable) -> None:
        options = table.check(Role.SOURCE, self._problems)
        source = self._read[table.name]
        letters = [rows for name, rows in self._steps.late_letters if name == table.name]
        if source is not None and isinstance(options, DecodeOptions) and options.bad_data is BadData.DEAD_LETTER:
            letters.append(dead_letters_of(source.scan, DEAD_LETTERS))
        target = self._dead_letter_table(table)
        if target is None or not letters:
            return
        self._open_sink(target, target.statement.name)
        for rows in letters:
            columns = self._sink_columns(target)
            written = await self._assignments.dead_letters(target.statement.name, columns, rows)
            self._written.setdefault(target.name, []).append(written)

    def _dead_letter_table(self, table: ConnectorTable) -> ConnectorTable | None:
        option = table.options.get("dead_letter")
        if option is None:
            return None
        found = self._tables.get(option.value)
        if isinstance(found, Faulty):
            raise Known
        if not isinstance(found, ConnectorTable):
            sinks = [name for name, other in self._tables.items() if isinstance(other, ConnectorTable)]
            hint = did_you_mean(option.value, sinks) or "create it with CREATE TABLE and the connector of a sink"
            raise refusal("unknown_table", f"there is no sink table {option.value}", option.value_span, hint)
        return found

    # The rest ---------------------------------------------------------------------------------------------------------

    def _set(self, statement: Set) -> None:
        name, value = statement.name.text, statement.value
        if name not in _SETTINGS:
            hint = did_you_mean(name, _SETTINGS) or f"the settings are {listed(_SETTINGS)}"
            raise refusal("unknown_setting", f"there is no setting {name}", statement.name.span, hint)
        if name in _DURATIONS:
            found: dict[str, Any] = {f"{name}_ms": milliseconds(value, statement.value_span, f"setting {name}")}
            self._settings = replace(self._settings, **found)
            return
        if name == "updating_ttl_time":
            self._settings = replace(self._settings, updating_ttl_time=self._ttl_time(statement))
            return
        if not value.isdecimal() or not 1 <= int(value[:9]) <= _MAX_PARALLELISM:
            message = f"setting {name}: {value!r} is not a number from 1 to {_MAX_PARALLELISM}"
            raise refusal("invalid_option", message, statement.value_span)
        self._settings = replace(self._settings, parallelism=int(value))

    def _ttl_time(self, statement: Set) -> TtlTime:
        value = statement.value.lower()
        if value not in _TTL_TIMES:
            message = f"setting updating_ttl_time: {statement.value!r} is neither 'event' nor 'processing'"
            raise refusal("invalid_option", message, statement.value_span, did_you_mean(value, _TTL_TIMES))
        return _TTL_TIMES[value]

    def _warn_of_unused(self) -> None:
        for name, place in self._names.items():
            table = self._tables.get(name)
            if name not in self._used and not isinstance(table, Faulty):
                what = "view" if isinstance(table, Relation) else "table"
                self._problems.warning("unused", f"{what} {name} is not used", place.span)


def _preview_sink(table: str) -> Write:
    connector = CONNECTORS[_PREVIEW]
    assert connector.sink is not None
    limit = connector.max_parallelism(Role.SINK, connector.sink.options())
    return Write(_PREVIEW, table, {}, limit)


def _writes_json(write: Write) -> bool:
    sink = CONNECTORS[write.connector].sink
    return write.connector == _PREVIEW or (sink is not None and issubclass(sink.options, EncodeOptions))
