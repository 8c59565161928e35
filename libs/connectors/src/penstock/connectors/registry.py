"""Every connector there is, by name, and how their options are checked and described."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, assert_never

import pyarrow as pa

from penstock.connectors.base import Connector, Options, Role, SinkKind, SourceKind
from penstock.connectors.blackhole import Blackhole
from penstock.connectors.errors import OptionError, OptionProblem, UnknownConnector
from penstock.connectors.filesystem import Filesystem
from penstock.connectors.impulse import Impulse
from penstock.connectors.lookups import LookupConnector, LookupKind
from penstock.connectors.nexmark import Nexmark
from penstock.connectors.options import read_options, suggestion
from penstock.connectors.postgres import Postgres
from penstock.connectors.preview import Preview
from penstock.connectors.redis import Redis
from penstock.connectors.single_file import SingleFile
from penstock.connectors.stdout import Stdout

_ALL: Final[tuple[Connector, ...]] = (
    Blackhole(),
    Filesystem(),
    Impulse(),
    Nexmark(),
    Postgres(),
    Preview(),
    Redis(),
    SingleFile(),
    Stdout(),
)

CONNECTORS: Final[Mapping[str, Connector]] = MappingProxyType({connector.name: connector for connector in _ALL})


def connector_named(name: str) -> Connector:
    """A connector by its name, or UnknownConnector."""
    connector = CONNECTORS.get(name)
    if connector is None:
        raise UnknownConnector(name, hint=suggestion(name, CONNECTORS))
    return connector


def parse_options(connector: Connector, role: Role, options: Mapping[str, str]) -> Options:
    """The options of a table, checked; OptionError has every problem of them."""
    kind = _kind(connector, role)
    if kind is None:
        what = "lookup tables" if role is Role.LOOKUP else f"{role}s"
        message = f"the connector {connector.name} has no {what}"
        raise OptionError(connector.name, (OptionProblem("type", message),))
    return read_options(connector.name, kind.options, options)


def option_schemas() -> list[dict[str, Any]]:
    """Every connector as JSON can hold it: its options, what its sinks guarantee, and the columns that it has."""
    return [_described(connector) for connector in CONNECTORS.values()]


def roles_of(connector: Connector) -> tuple[Role, ...]:
    """What tables of a connector can be."""
    return tuple(role for role in Role if _kind(connector, role) is not None)


def _kind(connector: Connector, role: Role) -> SourceKind | SinkKind | LookupKind | None:
    match role:
        case Role.SOURCE:
            return connector.source
        case Role.SINK:
            return connector.sink
        case Role.LOOKUP:
            return connector.lookup if isinstance(connector, LookupConnector) else None
        case _:
            assert_never(role)


def _described(connector: Connector) -> dict[str, Any]:
    source, sink = connector.source, connector.sink
    lookup = connector.lookup if isinstance(connector, LookupConnector) else None
    return {
        "name": connector.name,
        "description": connector.description,
        "source": None if source is None else source.options.model_json_schema(),
        "sink": None if sink is None else sink.options.model_json_schema(),
        "lookup": None if lookup is None else lookup.options.model_json_schema(),
        "guarantee": None if sink is None else sink.guarantee,
        "metadata": [] if source is None else [_column(name, kind) for name, kind in source.metadata.items()],
        "columns": _own_columns(connector),
    }


def _own_columns(connector: Connector) -> list[dict[str, Any]] | None:
    """None where the user must say the columns."""
    if connector.source is None:
        return None
    schema = connector.schema(connector.source.options.model_construct())
    if schema is None:
        return None
    return [_column(field.name, field.type, nullable=field.nullable) for field in schema]


def _column(name: str, kind: pa.DataType, *, nullable: bool = False) -> dict[str, Any]:
    return {"name": name, "type": str(kind), "nullable": nullable}
