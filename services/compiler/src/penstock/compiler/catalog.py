"""The tables and views of a query: what was created, and what each option of a table says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import pyarrow as pa
from pyarrow import types as arrow

from penstock.common.diagnostics import Span
from penstock.common.quantities import parse_duration
from penstock.compiler.diagnostics import Known, Problems, Refused, did_you_mean, listed, refusal
from penstock.compiler.intervals import Interval, parse_interval
from penstock.compiler.statements import CreateTable, Name, Option
from penstock.connectors.base import TIMESTAMP_COLUMN, Connector, Options, Role
from penstock.connectors.errors import OptionError, UnknownConnector, UnsupportedType
from penstock.connectors.lookups import LookupConnector
from penstock.connectors.registry import CONNECTORS, connector_named, parse_options, roles_of

_COMMON: Final = frozenset({"connector", "type", "event_time_field", "watermark_field", "idle_time", "late"})
_TEMPLATE: Final = re.compile(r"\{\{\s*[A-Za-z_][A-Za-z0-9_]*\s*\}\}")
_LATE: Final = ("drop", "dead_letter")
_IDLE_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class ConnectorTable:
    """A table in another system."""

    statement: CreateTable
    connector: Connector
    role: Role | None
    """None: how it is used decides."""
    options: Mapping[str, Option]

    @property
    def name(self) -> str:
        return self.statement.name.text

    @property
    def idle_ms(self) -> int:
        """After which silence a partition of the table holds no watermark back."""
        option = self.options.get("idle_time")
        return _IDLE_MS if option is None else milliseconds(option.value, option.value_span, f"option {option.name}")

    @property
    def has_late_letters(self) -> bool:
        """Whether its late rows are letters for its dead-letter table."""
        option = self.options.get("late")
        return option is not None and option.value == "dead_letter"

    def connector_options(self) -> Mapping[str, str]:
        """The options that are the connector's own."""
        bad_data = self.options.get("bad_data")
        others = _COMMON
        if self.has_late_letters and (bad_data is None or bad_data.value != "dead_letter"):
            others = _COMMON | {"dead_letter"}  # it is for late rows alone, which the connector does not know of
        return MappingProxyType({name: option.value for name, option in self.options.items() if name not in others})

    def lookup_key(self) -> pa.Schema:
        """The key of a lookup table."""
        fields = {found.name.text: found.field for found in self.statement.columns}
        return pa.schema([fields[name.text].with_nullable(False) for name in self.statement.primary_key])

    @property
    def key_name(self) -> str:
        """The first column of its key."""
        return self.statement.primary_key[0].text

    def lookup_values(self) -> pa.Schema:
        """The columns of a lookup table that are not of its key."""
        keys = {name.text for name in self.statement.primary_key}
        return pa.schema([found.field for found in self.statement.columns if found.name.text not in keys])

    def check(self, role: Role, problems: Problems) -> Options:
        """The connector's options for a role; raises Known when they are wrong."""
        try:
            return parse_options(self.connector, role, self.connector_options())
        except OptionError as error:
            for problem in error.problems:
                self._report(problem.option, problem.message, problem.hint, problems)
        raise Known

    def _report(self, name: str | None, message: str, hint: str | None, problems: Problems) -> None:
        option = self.options.get(name or "")
        if option is None:
            code = "missing_option" if message.endswith("is missing") else "invalid_option"
            problems.error(code, f"table {self.name}: {message}", self.statement.name.span, hint)
        elif message.startswith("there is no option"):
            known = [*(hint or "").removeprefix("there are ").split(", "), *_COMMON]
            better = hint if hint and hint.startswith("did you mean") else did_you_mean(option.name, known) or hint
            problems.error("unknown_option", f"{self.connector.name} has no option {option.name}", option.span, better)
        else:
            if _TEMPLATE.search(option.value):
                hint = "a secret can only stand in an option that is text"
            reason = message.partition(", unable to")[0].replace("input should be", "it should be")
            problems.error("invalid_option", reason, option.value_span, hint)


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """A table without a connector: what is inserted into it can be read by later statements."""

    statement: CreateTable

    @property
    def name(self) -> str:
        return self.statement.name.text


@dataclass(frozen=True, slots=True)
class Faulty:
    """A table or view whose creation failed: who uses it is told nothing more."""


Table: TypeAlias = ConnectorTable | MemoryTable | Faulty


def define_table(statement: CreateTable, problems: Problems) -> Table:
    """The table that a statement creates."""
    if statement.has_faults:
        return Faulty()
    with problems.collecting():
        _check_columns(statement)
        if statement.options is None:
            return _memory_table(statement)
        return _connector_table(statement, {option.name: option for option in statement.options}, problems)
    return Faulty()


def _memory_table(statement: CreateTable) -> Table:
    special = [column.name for column in statement.columns if column.computed is not None or column.metadata_key]
    if special or statement.watermark:
        span = special[0].span if special else statement.name.span
        message = f"{statement.name.text} has no connector, so its columns come from INSERT alone"
        raise refusal("invalid_table", message, span, "add WITH (connector = '…') or use plain columns")
    if not statement.columns and statement.query is None:
        hint = "add its columns, WITH (connector = '…'), or AS SELECT …"
        raise refusal("invalid_table", f"table {statement.name.text} has no columns", statement.name.span, hint)
    return MemoryTable(statement)


def _connector_table(statement: CreateTable, options: Mapping[str, Option], problems: Problems) -> Table:
    if "connector" not in options:
        hint = f"the connectors are {listed(CONNECTORS)}"
        message = f"table {statement.name.text} has no option connector"
        raise refusal("missing_option", message, statement.name.span, hint)
    connector = _connector(options["connector"])
    table = ConnectorTable(statement, connector, _role(connector, options.get("type")), MappingProxyType(dict(options)))
    wrong = [_malformed_template(option) for option in options.values()]
    for option in filter(None, wrong):
        hint = "write {{ NAME }}, where NAME is an environment variable of the workers"
        problems.error("invalid_option", f"option {option.name}: this is not a secret's name", option.value_span, hint)
    _check_common(table)
    if any(wrong):
        raise Known
    if table.role is not None:
        checked = table.check(table.role, problems)
        if table.role is Role.LOOKUP:
            _check_lookup(table, checked)
    return table


def _connector(option: Option) -> Connector:
    try:
        return connector_named(option.value)
    except UnknownConnector as error:
        raise refusal("unknown_connector", error.message, option.value_span, error.hint) from error


def _role(connector: Connector, option: Option | None) -> Role | None:
    possible = roles_of(connector)
    if option is None:
        return possible[0] if len(possible) == 1 else None
    if option.value not in set(Role):
        hint = f"the types are {listed(Role)}"
        raise refusal("invalid_option", f"there is no type {option.value!r}", option.value_span, hint)
    role = Role(option.value)
    if role not in possible:
        hint = f"it can be a {listed(possible)}"
        raise refusal("invalid_option", f"{connector.name} cannot be a {role}", option.value_span, hint)
    return role


def _malformed_template(option: Option) -> Option | None:
    return option if "{{" in _TEMPLATE.sub("", option.value) or "}}" in _TEMPLATE.sub("", option.value) else None


def _check_common(table: ConnectorTable) -> None:
    options = table.options
    if option := options.get("idle_time"):
        milliseconds(option.value, option.value_span, f"option {option.name}")
    if (option := options.get("late")) and option.value not in _LATE:
        hint = f"it is one of {listed(_LATE)}"
        raise refusal("invalid_option", f"option late: there is no {option.value!r}", option.value_span, hint)
    if table.has_late_letters and "dead_letter" not in options:
        message = "late = 'dead_letter' needs the option dead_letter, which names a sink table"
        raise refusal("missing_option", message, options["late"].span)
    if (option := options.get("event_time_field")) and table.statement.watermark:
        hint = "leave one of them out"
        message = "the event time is given by both WATERMARK and event_time_field"
        raise refusal("invalid_option", message, option.span, hint)


def _check_lookup(table: ConnectorTable, options: Options) -> None:
    """A lookup table has plain columns, and a key by which its rows are found."""
    statement = table.statement
    name, span = statement.name.text, statement.name.span
    if not statement.columns:
        hint = f"{table.connector.name} does not know the columns: write them after the table's name"
        raise refusal("invalid_table", f"table {name} has no columns", span, hint)
    for column in statement.columns:
        if column.computed is not None or column.metadata_key is not None:
            message = f"column {column.name.text} is computed or metadata, which a lookup table cannot have"
            raise refusal("invalid_column", message, column.name.span, "compute it in the query that looks it up")
    others = sorted(_COMMON.intersection(table.options) - {"connector", "type"})
    if statement.watermark or others:
        message = f"table {name} is looked up by its key, and so has no event times"
        raise refusal("invalid_table", message, table.options[others[0]].span if others else span)
    if statement.query is not None:
        raise refusal("not_a_sink", f"{name} is a lookup table, which cannot be written", span)
    if not statement.primary_key:
        hint = "say by which columns its rows are found: id BIGINT PRIMARY KEY, or PRIMARY KEY (a, b)"
        raise refusal("missing_key", f"the lookup table {name} has no PRIMARY KEY", span, hint)
    _check_lookup_types(table, options)


def _check_lookup_types(table: ConnectorTable, options: Options) -> None:
    for key in table.statement.primary_key:
        kind = next(found.field.type for found in table.statement.columns if found.name.text == key.text)
        if arrow.is_nested(kind) or arrow.is_floating(kind) or arrow.is_duration(kind):
            hint = "a key is TEXT, a number without a fraction or of fixed digits, a BOOLEAN, a date or a time"
            raise refusal("invalid_column", f"column {key.text} cannot be of a key to look up", key.span, hint)
    assert isinstance(table.connector, LookupConnector)
    keys, values = table.lookup_key(), table.lookup_values()
    try:
        table.connector.check_lookup(options, keys, values)
    except UnsupportedType as error:
        raise refusal("invalid_column", error.message, table.statement.name.span, error.hint) from error


def _check_columns(statement: CreateTable) -> None:
    seen: set[str] = set()
    for column in statement.columns:
        if column.name.text in seen:
            raise refusal("duplicate", f"column {column.name.text} is there twice", column.name.span)
        refuse_reserved(column.name.text, column.name.span)
        seen.add(column.name.text)
    if not statement.columns:
        return
    for key in statement.primary_key:
        if key.text not in seen:
            raise unknown_column(key, seen, statement.name.text)


def refuse_reserved(name: str, span: Span | None) -> None:
    """Refuses the name of the event time, which every row has."""
    if name == TIMESTAMP_COLUMN:
        raise refusal(
            "reserved_name", f"{TIMESTAMP_COLUMN} is the row's event time", span, "give it another name with AS"
        )


def unknown_column(name: Name, known: Collection[str], table: str) -> Refused:
    """The error that a table has no such column."""
    hint = did_you_mean(name.text, known) or f"the columns are {listed(known)}"
    return refusal("unknown_column", f"table {table} has no column {name.text}", name.span, hint)


def milliseconds(value: str, span: Span, what: str) -> int:
    """A duration in an option or a setting: '10s' or '10 seconds'."""
    interval: Interval | None = None
    try:
        interval = Interval(0, int(parse_duration(value).total_seconds() * 1_000_000))
    except ValueError:
        interval = parse_interval(value)
    if interval is None or interval.months or interval.microseconds < 0:
        hint = "write a number and a unit, such as '10 seconds'"
        raise refusal("invalid_option", f"{what}: {value!r} is not a duration", span, hint)
    return interval.milliseconds


def declared_schema(statement: CreateTable) -> pa.Schema | None:
    """The columns that CREATE TABLE says; None when it says none."""
    return pa.schema([column.field for column in statement.columns]) if statement.columns else None
