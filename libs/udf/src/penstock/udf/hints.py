"""Type hints as types of SQL, and how values cross between the two."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from penstock.common.udfs import Style

_SIMPLE: Final[dict[object, pa.DataType]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us"),
    date: pa.date32(),
    timedelta: pa.duration("us"),
}
_DECIMAL: Final = (38, 10)
_MAX_PRECISION: Final = 38
_ROUNDING: Final = Context(prec=_MAX_PRECISION)
_ARRAYS: Final[dict[object, pa.DataType]] = {
    pa.BooleanArray: pa.bool_(),
    pa.Int64Array: pa.int64(),
    pa.DoubleArray: pa.float64(),
    pa.StringArray: pa.string(),
    pa.BinaryArray: pa.binary(),
    pa.Date32Array: pa.date32(),
    pa.TimestampArray: pa.timestamp("us"),
}
_ROWS: Final = (Iterator, Iterable, Generator)

Convert = Callable[[Any], Any]


class UnknownHint(Exception):
    """A hint that stands for no type of SQL."""


@dataclass(frozen=True)
class Value:
    """What a hint says: a type, whether None is one of its values, and how values are made of what Arrow has of them
    and back; None where they are the same."""

    type: pa.DataType
    optional: bool = False
    style: Style = Style.PLAIN
    many: bool = False
    """Whether it stands for several rows' values: an iterator, or an array."""
    incoming: Convert | None = None
    outgoing: Convert | None = None


def value_of(hint: Any, within: tuple[type, ...] = ()) -> Value:
    """What a hint says; raises UnknownHint. `within` are the dataclasses that it is inside of."""
    if isinstance(hint, typing.NewType):
        return value_of(hint.__supertype__, within)
    if hint in _SIMPLE:
        return Value(_SIMPLE[hint])
    if hint is Decimal:
        return _decimal(*_DECIMAL)
    if hint in _ARRAYS:
        return Value(_ARRAYS[hint], style=Style.ARROW, many=True)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _annotated(arguments[0], arguments[1:], within)
    if origin in (typing.Union, types.UnionType):
        return _optional(hint, arguments, within)
    if origin is list and len(arguments) == 1:
        return _list(value_of(arguments[0], within))
    if origin is dict and len(arguments) == 2:
        return _map(value_of(arguments[0], within), value_of(arguments[1], within))
    if origin in _ROWS and arguments:
        return dataclasses.replace(_list(value_of(arguments[0], within)), many=True)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _struct(hint, within)
    if _style_of(hint) is not Style.PLAIN:
        raise UnknownHint(f"{shown(hint)} does not say what is in it: write Annotated[{shown(hint)}, int]")
    raise UnknownHint(f"{shown(hint)} is no type of SQL")


def shown(hint: Any) -> str:
    """A hint as it is written."""
    if isinstance(hint, type) and not typing.get_args(hint):
        module = hint.__module__.partition(".")[0]
        short = {"pyarrow": "pa.", "pandas": "pd."}.get(module, "")
        return short + hint.__qualname__
    return str(hint).replace("typing.", "")


def _annotated(hint: Any, said: tuple[Any, ...], within: tuple[type, ...]) -> Value:
    if hint is Decimal:
        numbers = said[0] if len(said) == 1 and isinstance(said[0], tuple) else said
        if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
            raise UnknownHint("a Decimal is annotated with its precision and its scale: Annotated[Decimal, 10, 2]")
        precision, scale = numbers
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise UnknownHint(f"the precision of a Decimal is 1 to {_MAX_PRECISION}, the scale 0 to the precision")
        return _decimal(precision, scale)
    style = _style_of(hint)
    if style is Style.PLAIN:
        return value_of(hint, within)
    element = value_of(said[0], within)
    if element.many:
        raise UnknownHint(f"{shown(hint)} cannot hold {shown(said[0])}")
    return Value(element.type, style=style, many=True)


def _decimal(precision: int, scale: int) -> Value:
    """A number of digits after the point that SQL keeps; what a function gives is rounded to it."""
    unit = Decimal(1).scaleb(-scale)
    return Value(pa.decimal128(precision, scale), outgoing=lambda value: value.quantize(unit, context=_ROUNDING))


def _style_of(hint: Any) -> Style:
    """Whether a class is pyarrow's or pandas' for many values; pandas is not loaded to find out."""
    name, module = getattr(hint, "__name__", ""), getattr(hint, "__module__", "").partition(".")[0]
    if module == "pyarrow" and (name.endswith("Array")):
        return Style.ARROW
    return Style.PANDAS if module == "pandas" and name == "Series" else Style.PLAIN


def _optional(hint: Any, arguments: tuple[Any, ...], within: tuple[type, ...]) -> Value:
    others = [argument for argument in arguments if argument is not type(None)]
    if len(others) != 1 or len(others) == len(arguments):
        raise UnknownHint(f"{shown(hint)} is of several types; only T | None is one of SQL")
    value = value_of(others[0], within)
    return dataclasses.replace(
        value, optional=True, incoming=_unless_none(value.incoming), outgoing=_unless_none(value.outgoing)
    )


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _list(element: Value) -> Value:
    if element.many:
        raise UnknownHint("arrays and iterators cannot be inside others")
    incoming, outgoing = element.incoming, element.outgoing
    return Value(
        pa.list_(pa.field("element", element.type)),
        incoming=None if incoming is None else lambda values: [*map(incoming, values)],
        outgoing=None if outgoing is None else lambda values: [*map(outgoing, values)],
    )


def _map(key: Value, item: Value) -> Value:
    if key.many or item.many or key.optional:
        raise UnknownHint("the keys of a dict are values that are never None, and no iterators")

    def same(value: Any) -> Any:
        return value

    key_in, item_in = key.incoming or same, item.incoming or same
    key_out, item_out = key.outgoing or same, item.outgoing or same
    return Value(
        pa.map_(key.type, item.type),
        incoming=lambda pairs: {key_in(one): item_in(other) for one, other in pairs},
        outgoing=lambda values: [(key_out(one), item_out(other)) for one, other in values.items()],
    )


def _struct(kind: Any, within: tuple[type, ...]) -> Value:
    if kind in within:
        raise UnknownHint(f"the dataclass {kind.__name__} is inside itself")
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.name: value_of(hints[field.name], (*within, kind)) for field in dataclasses.fields(kind)}
    if not fields or any(value.many for value in fields.values()):
        raise UnknownHint(f"the dataclass {kind.__name__} needs fields, of which none is an iterator")

    def same(value: Any) -> Any:
        return value

    made_of = [(name, value.incoming or same) for name, value in fields.items()]
    gives = [(name, value.outgoing or same) for name, value in fields.items()]
    return Value(
        pa.struct([pa.field(name, value.type) for name, value in fields.items()]),
        incoming=lambda row: kind(**{name: convert(row[name]) for name, convert in made_of}),
        outgoing=lambda value: {name: convert(getattr(value, name)) for name, convert in gives},
    )
