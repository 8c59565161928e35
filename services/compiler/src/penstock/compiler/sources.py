"""Source tables as relations: what the connector reads, then computed columns, then the event time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from penstock.compiler.analysis import Analyst, inputs_of
from penstock.compiler.catalog import ConnectorTable, unknown_column
from penstock.compiler.changes import changes_of_envelope
from penstock.compiler.diagnostics import Known, Problems, listed, refusal
from penstock.compiler.functions import call
from penstock.compiler.plan import Scan
from penstock.compiler.positions import Text
from penstock.compiler.relations import (
    OP,
    POSITION_COLUMN,
    TIMESTAMP,
    WATERMARK,
    Relation,
    Steps,
    aliased,
    cast_column,
    column,
    identifier,
    needs_cast,
    select_from_input,
    with_metadata,
)
from penstock.compiler.rewrite import to_spark
from penstock.compiler.statements import Column, Name
from penstock.compiler.types import is_assignable, spark_name, spark_sql_cast, user_name
from penstock.compiler.watermarks import observing, with_watermark
from penstock.compiler.windows import later
from penstock.compiler.written_rows import DEBEZIUM
from penstock.connectors.base import TIMESTAMP_COLUMN, TIMESTAMP_TYPE, Options, Role

_PLACES: Final = ("topic", "partition", "file", "line")
_CHANGE: Final = "_change"
_DEFAULT_DELAY_US: Final = 1_000_000
"""How far rows can be behind the latest one where the table does not say."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source table: what the connector gives, and the rows as queries see them."""

    scan: Relation
    rows: Relation


@dataclass(frozen=True, slots=True)
class Sources:
    """Makes relations of source tables."""

    analyst: Analyst
    steps: Steps
    text: Text
    problems: Problems

    async def relation(self, table: ConnectorTable) -> Source:
        """The rows of a table; its faults are reported."""
        options = table.check(Role.SOURCE, self.problems)
        is_changes = getattr(options, "format", None) == DEBEZIUM
        physical = self._physical(table, options)
        if is_changes:
            physical = self._enveloped(table, physical)
        metadata = {found.name.text: found.metadata_key.text for found in table.statement.columns if found.metadata_key}
        places = _places(table) if table.has_late_letters else []
        metadata |= {field.name: field.name.removeprefix("_") for field in places}
        physical = pa.schema([*physical, *places])
        limit = table.connector.max_parallelism(Role.SOURCE, options)
        kind = Scan(
            table.connector.name,
            table.name,
            table.connector_options(),
            MappingProxyType(metadata),
            limit,
            table.idle_ms,
        )
        scan = self.steps.scan(kind, physical)
        rows = await self._with_position(table, scan, places) if places else scan
        rows = await self._changes(table, rows) if is_changes else rows
        rows = await self._with_event_time(table, await self._with_columns(table, rows))
        return Source(scan, replace(rows, late_letters=table.name if table.has_late_letters else None))

    async def _with_position(self, table: ConnectorTable, scan: Relation, places: list[pa.Field]) -> Relation:
        """The rows with where they were, for letters about those that are late."""
        names = [field.name for field in places]
        position = aliased(call("concat_ws", ":", *(column(name) for name in names)), POSITION_COLUMN)
        others = [column(field.name) for field in scan.columns if field.name not in names]
        select = select_from_input([*others, position, column(TIMESTAMP_COLUMN)])
        schema = await self.analyst.schema_of(select, inputs_of(scan.schema))
        return self.steps.query(select, scan, with_metadata(schema, scan.columns), f"positions of {table.name}")

    def _enveloped(self, table: ConnectorTable, columns: pa.Schema) -> pa.Schema:
        """What is read of a stream of changes: Debezium's envelope around the columns."""
        if not table.statement.primary_key:
            message = f"table {table.name} is read as changes, and has no PRIMARY KEY"
            hint = "say which columns tell its rows apart: PRIMARY KEY (id)"
            raise refusal("missing_key", message, table.statement.name.span, hint)
        metadata = {found.name.text for found in table.statement.columns if found.metadata_key}
        row = pa.struct([field.with_nullable(True) for field in columns if field.name not in metadata])
        beside = [field for field in columns if field.name in metadata]
        return pa.schema([pa.field("before", row), pa.field("after", row), pa.field("op", pa.string()), *beside])

    async def _changes(self, table: ConnectorTable, scan: Relation) -> Relation:
        """The rows that an envelope takes back and gives."""
        row = scan.schema.field("after").type
        values = [
            aliased(exp.Dot(this=column("row", _CHANGE), expression=identifier(field.name)), field.name)
            for field in row
        ]
        beside = [column(field.name) for field in scan.columns if field.name not in ("before", "after", "op")]
        operation = exp.Alias(this=column("op", _CHANGE), alias=identifier(OP.name))
        select = select_from_input(
            [*values, *beside, operation, *(column(field.name) for field in scan.hidden)],
            laterals=[changes_of_envelope(table.name, _CHANGE)],
        )
        schema = await self.analyst.schema_of(select, inputs_of(scan.schema))
        schema = with_metadata(schema, [found.field for found in table.statement.columns])
        return self.steps.query(select, scan, schema, f"changes of {table.name}")

    def _physical(self, table: ConnectorTable, options: Options) -> pa.Schema:
        own = table.connector.schema(options)
        declared = [found for found in table.statement.columns if found.computed is None]
        if own is not None and not declared:
            return own
        if not declared:
            hint = f"{table.connector.name} does not know the columns: write them after the table's name"
            raise refusal("invalid_table", f"table {table.name} has no columns", table.statement.name.span, hint)
        return pa.schema([self._physical_field(table, found, own) for found in declared])

    def _physical_field(self, table: ConnectorTable, declared: Column, own: pa.Schema | None) -> pa.Field:
        """A column as the connector has it; the user's type may be another that it can be cast to."""
        if declared.metadata_key is not None:
            kind = self._metadata_type(table, declared.metadata_key)
            given = pa.field(declared.name.text, kind, declared.field.nullable)
        elif own is None:
            return declared.field
        elif declared.name.text not in own.names:
            raise unknown_column(declared.name, own.names, f"{table.name} ({table.connector.name})")
        else:
            given = own.field(declared.name.text)
        if not is_assignable(given.type, declared.field.type):
            message = f"column {given.name} is {user_name(given.type)}, not {user_name(declared.field.type)}"
            raise refusal("type_mismatch", message, declared.name.span)
        return given

    def _metadata_type(self, table: ConnectorTable, key: Name) -> pa.DataType:
        assert table.connector.source is not None
        known = table.connector.source.metadata
        if key.text not in known:
            hint = f"it has {listed(known)}" if known else "it has none"
            raise refusal("unknown_metadata", f"{table.connector.name} has no metadata {key.text!r}", key.span, hint)
        return known[key.text]

    async def _with_columns(self, table: ConnectorTable, scan: Relation) -> Relation:
        """The columns in the user's order and types, with those that are computed."""
        columns = table.statement.columns
        if not columns or not any(
            found.computed is not None or needs_cast(scan.schema.field(found.name.text).type, found.field.type)
            for found in columns
        ):
            return scan
        values = []
        for found in columns:
            with self.problems.collecting():
                if found.computed is not None:
                    values.append(await self._computed(table, found, scan))
                else:
                    values.append(cast_column(scan.schema.field(found.name.text), found.field))
        if len(values) < len(columns):
            raise Known
        select = select_from_input([*values, *(column(field.name) for field in scan.hidden)])
        computed = await self.analyst.schema_of(select, inputs_of(scan.schema))
        schema = with_metadata(computed, [found.field for found in columns])
        return self.steps.query(select, scan, schema, f"columns of {table.name}")

    async def _computed(self, table: ConnectorTable, found: Column, scan: Relation) -> exp.Expr:
        assert found.computed is not None
        others = {other.name.text for other in table.statement.columns if other.computed is not None}
        for reference in found.computed.find_all(exp.Column):
            if reference.name in others and not reference.table:
                hint = "a computed column can use the columns that are read"
                message = f"{reference.name} is itself computed"
                raise refusal("invalid_column", message, self.text.span(reference), hint)
        value = to_spark(found.computed, self.text)
        probe = select_from_input([aliased(value.copy(), found.name.text)])
        kind = (await self.analyst.schema_of(probe, inputs_of(scan.schema))).field(0).type
        if not is_assignable(kind, found.field.type):
            message = f"column {found.name.text} is {user_name(found.field.type)}, but its value is {user_name(kind)}"
            hint = f"write CAST(… AS {user_name(found.field.type)})"
            raise refusal("type_mismatch", message, self.text.span(found.computed), hint)
        if needs_cast(kind, found.field.type):
            value = spark_sql_cast(value, spark_name(found.field.type))
        return aliased(value, found.name.text)

    async def _with_event_time(self, table: ConnectorTable, rows: Relation) -> Relation:
        watermark = table.statement.watermark
        option = table.options.get("event_time_field")
        name = watermark.column if watermark else Name(option.value, option.value_span) if option else None
        field = TIMESTAMP if name is None else self._moment_field(table, name, rows)
        event_time = _event_time(table.name, field)
        behind = await self._watermark(table, event_time, rows)
        others = [found for found in rows.hidden if found.name != TIMESTAMP_COLUMN]
        schema = pa.schema([*rows.columns, *others, TIMESTAMP])
        select = observing(rows, event_time, behind)
        observed = self.steps.query(select, rows, schema, f"event time {field.name} of {table.name}")
        schema = pa.schema([*rows.columns, *others, WATERMARK, TIMESTAMP])
        timed = self.steps.query(with_watermark(observed), observed, schema, f"watermark of {table.name}")
        return replace(timed, times={} if name is None else {name.text: 0})

    async def _watermark(self, table: ConnectorTable, event_time: exp.Expr, rows: Relation) -> exp.Expr:
        """How far event time has come by a row."""
        watermark = table.statement.watermark
        option = table.options.get("watermark_field")
        if watermark is not None and watermark.expression is not None:
            await self._check_watermark(watermark.expression, rows)
            return _as_moment(to_spark(watermark.expression, self.text))
        if option is not None:
            field = self._moment_field(table, Name(option.value, option.value_span), rows)
            return _as_moment(column(field.name))
        return later(event_time.copy(), -_DEFAULT_DELAY_US)

    def _moment_field(self, table: ConnectorTable, name: Name, rows: Relation) -> pa.Field:
        if name.text == TIMESTAMP_COLUMN:  # what the connector sets
            return TIMESTAMP
        names = [field.name for field in rows.columns]
        found = next((candidate for candidate in (name.text, name.text.lower()) if candidate in names), None)
        if found is None:
            raise unknown_column(name, names, table.name)
        field = rows.schema.field(found)
        if not arrow.is_timestamp(field.type):
            hint = "an event time is a TIMESTAMP"
            message = f"column {field.name} is {user_name(field.type)}, which is no event time"
            raise refusal("type_mismatch", message, name.span, hint)
        return field

    async def _check_watermark(self, expression: exp.Expr, rows: Relation) -> None:
        probe = select_from_input([aliased(to_spark(expression, self.text), "watermark")])
        kind = (await self.analyst.schema_of(probe, inputs_of(rows.schema))).field(0).type
        if not arrow.is_timestamp(kind):
            message = f"a watermark is a TIMESTAMP, not {user_name(kind)}"
            raise refusal("type_mismatch", message, self.text.span(expression))


def _places(table: ConnectorTable) -> list[pa.Field]:
    """What a connector knows of where a row was."""
    known = table.connector.source.metadata if table.connector.source is not None else {}
    return [pa.field(f"_{key}", known[key], False) for key in _PLACES if key in known]


def _as_moment(value: exp.Expr) -> exp.Expr:
    return spark_sql_cast(value, spark_name(TIMESTAMP_TYPE))


def _event_time(table: str, field: pa.Field) -> exp.Expr:
    value: exp.Expr = column(field.name)
    if field.type != TIMESTAMP_TYPE:
        value = _as_moment(value)
    if field.nullable:
        # Nothing else would be right: a made-up time could close windows early, and a row is not dropped in silence.
        failure = call("raise_error", f"a row of {table} has no event time: {field.name} is null")
        value = call("coalesce", value, failure, column(TIMESTAMP_COLUMN))
    return value
