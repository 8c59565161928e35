"""Every connector there is, by name, and how their options are checked and described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from penstock.connectors.base import Connector, Options, Role, SinkKind, SourceKind
from penstock.connectors.blackhole import Blackhole
from penstock.connectors.errors import OptionError, OptionProblem, UnknownConnector, shorten
from penstock.connectors.impulse import Impulse
from penstock.connectors.nexmark import Nexmark
from penstock.connectors.preview import Preview
from penstock.connectors.single_file import SingleFile
from penstock.connectors.stdout import Stdout

_ALL: Final[tuple[Connector, ...]] = (Blackhole(), Impulse(), Nexmark(), Preview(), SingleFile(), Stdout())

CONNECTORS: Final[Mapping[str, Connector]] = MappingProxyType({connector.name: connector for connector in _ALL})


def connector_named(name: str) -> Connector:
    """A connector by its name, or UnknownConnector."""
    connector = CONNECTORS.get(name)
    if connector is None:
        raise UnknownConnector(name, hint=_suggestion(name, CONNECTORS))
    return connector


def parse_options(connector: Connector, role: Role, options: Mapping[str, str]) -> Options:
    """The options of a table, checked; OptionError has every problem of them."""
    kind = _kind(connector, role)
    if kind is None:
        message = f"the connector {connector.name} has no {role}s"
        raise OptionError(connector.name, (OptionProblem("type", message),))
    try:
        return kind.options.model_validate(dict(options))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise OptionError(connector.name, tuple(_problem(kind.options, detail) for detail in details)) from None


def option_schemas() -> list[dict[str, Any]]:
    """Every connector as JSON can hold it: its options, metadata columns and, if it has them, columns of its own."""
    return [_described(connector) for connector in CONNECTORS.values()]


def _kind(connector: Connector, role: Role) -> SourceKind | SinkKind | None:
    return connector.source if role is Role.SOURCE else connector.sink


def _problem(options: type[Options], detail: ErrorDetails) -> OptionProblem:
    name = str(detail["loc"][0]) if detail["loc"] else None
    match detail["type"]:
        case "extra_forbidden":
            shown = shorten(name or "")
            return OptionProblem(name, f"there is no option {shown}", _suggestion(shown, options.model_fields))
        case "missing":
            return OptionProblem(None, f"the option {name} is missing")
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            return OptionProblem(name, message if name is None else f"option {name}: {message}")


def _suggestion(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    nearest = get_close_matches(shorten(name), names, n=1)
    if nearest:
        return f"did you mean {nearest[0]}?"
    return f"there are {', '.join(names)}" if names else "it takes none"


def _described(connector: Connector) -> dict[str, Any]:
    source, sink = connector.source, connector.sink
    return {
        "name": connector.name,
        "description": connector.description,
        "source": None if source is None else source.options.model_json_schema(),
        "sink": None if sink is None else sink.options.model_json_schema(),
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
