"""The signature of a function in a source: found in its tree, then told by its hints."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.common.udfs import Shape, Signature, Style
from penstock.udf.hints import UnknownHint, Value, value_of

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of a source; lines and columns count characters from 1, the end is the last character."""

    line: int
    column: int
    end_line: int
    end_column: int


class Refused(Exception):
    """What is wrong with a function, and where."""

    def __init__(self, code: str, message: str, place: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.place = place
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Known:
    """A function, what its hints say, and its signature."""

    function: Callable[..., Any]
    parameters: tuple[Value, ...]
    returns: Value
    signature: Signature


def parsed(source: str) -> ast.Module:
    """The tree of a source; raises Refused where it is no Python."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        end_line, end_column = error.end_lineno or line, (error.end_offset or column + 1) - 1
        place = Place(line, column, end_line, max(column if end_line == line else 1, end_column))
        raise Refused("udf_syntax", f"this is not Python: {error.msg}", place) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused("udf_syntax", f"this is not Python: {error}") from None


def definition_of(tree: ast.Module, name: str | None) -> Definition:
    """The function that a source is for: the one of the name, or the only public one."""
    found = {node.name: node for node in tree.body if isinstance(node, Definition)}
    if name is not None:
        name = next((one for one in found if one.lower() == name.lower()), name) if name not in found else name
        if name not in found:
            hint = f"it defines {', '.join(found)}" if found else f"write def {name}(…) -> …"
            raise Refused("udf_missing", f"the source defines no function {name}", None, hint)
        return found[name]
    public = [node for node in found.values() if not node.name.startswith("_")]
    if not public:
        raise Refused("udf_missing", "the source defines no function", None, "write def name(…) -> …")
    if len(public) > 1:
        names = ", ".join(node.name for node in public)
        hint = "begin the names of helpers with _, or say which function it is"
        raise Refused("udf_missing", f"the source defines several functions: {names}", place_of(public[1]), hint)
    return public[0]


def known(definition: Definition, names: dict[str, Any], shape: Shape | None) -> Known:
    """A function of a source that was run. `shape` is what the user says that it is, where hints leave it open."""
    _check_parameters(definition)
    function = names.get(definition.name)
    if not callable(function):
        raise Refused("udf_missing", f"{definition.name} is no function", place_of(definition))
    try:
        hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception as error:
        message = f"the hints of {definition.name} cannot be read: {type(error).__name__}: {error}"
        raise Refused("udf_hint", message, place_of(definition)) from None
    arguments = definition.args.args
    parameters = tuple(_value(hints[argument.arg], argument) for argument in arguments)
    returns = _value(hints["return"], definition.returns or definition)
    style = _style(definition, parameters, returns)
    found = _shape(definition, style, returns, shape)
    if found is Shape.AGGREGATE and style is Style.PLAIN:
        parameters = tuple(_element(hints[argument.arg], argument) for argument in arguments)
    _check_values(definition, found, style, parameters)
    fields = [
        pa.field(argument.arg, value.type, value.optional or style is not Style.PLAIN)
        for argument, value in zip(arguments, parameters, strict=True)
    ]
    signature = Signature(definition.name, found, style, pa.schema(fields), returns.type)
    return Known(function, parameters, returns, signature)


def place_of(node: ast.AST) -> Place:
    """Where a node is; of a function, its first line up to the name."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
    if isinstance(node, Definition):
        words = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
        return Place(line, column, line, column + len(words) + len(node.name) - 1)
    end_line, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)
    return Place(line, column, end_line, max(1, end_column))


def _check_parameters(definition: Definition) -> None:
    arguments = definition.args
    others = (arguments.vararg, arguments.kwarg, *arguments.kwonlyargs, *arguments.posonlyargs)
    for other in filter(None, others):
        message = f"parameter {other.arg}: SQL gives each parameter a value by its place"
        raise Refused("udf_parameter", message, place_of(other), "write plain parameters")
    for argument in arguments.args:
        if argument.annotation is None:
            message = f"parameter {argument.arg} has no type"
            raise Refused("udf_hint", message, place_of(argument), f"write {argument.arg}: int, or another type")
    if definition.returns is None:
        message = f"{definition.name} does not say what it returns"
        raise Refused("udf_hint", message, place_of(definition), f"write def {definition.name}(…) -> int:")


def _value(hint: Any, node: ast.AST) -> Value:
    try:
        return value_of(hint)
    except UnknownHint as error:
        known_types = "bool, int, float, str, bytes, Decimal, datetime, date, timedelta, list, dict, dataclasses"
        raise Refused("udf_hint", str(error), place_of(node), f"the types are {known_types}") from None


def _element(hint: Any, argument: ast.arg) -> Value:
    """What is in the list that an aggregate takes of a group."""
    if typing.get_origin(hint) is not list:
        message = f"parameter {argument.arg} of an aggregate takes the values of a group"
        raise Refused("udf_hint", message, place_of(argument), f"write {argument.arg}: list[int], or another type")
    return _value(typing.get_args(hint)[0], argument)


def _style(definition: Definition, parameters: tuple[Value, ...], returns: Value) -> Style:
    styles = {value.style for value in parameters}
    style = styles.pop() if styles else Style.PLAIN
    if styles or returns.style not in (style, Style.PLAIN):
        message = f"{definition.name} takes and gives values of different kinds"
        hint = "make all of them plain values, all arrays, or all series"
        raise Refused("udf_hint", message, place_of(definition), hint)
    return style


def _shape(definition: Definition, style: Style, returns: Value, wanted: Shape | None) -> Shape:
    told = _told(definition, style, returns)
    if wanted is None or wanted is told:
        return told
    if wanted is Shape.AGGREGATE and told is Shape.SCALAR and style is Style.PLAIN:
        return Shape.AGGREGATE
    raise Refused("udf_kind", f"{definition.name} is {_spoken(told)}, not {_spoken(wanted)}", place_of(definition))


def _told(definition: Definition, style: Style, returns: Value) -> Shape:
    """What hints alone say."""
    if isinstance(definition, ast.AsyncFunctionDef):
        if style is not Style.PLAIN or returns.many:
            message = f"{definition.name} is async, and so takes and gives plain values"
            raise Refused("udf_hint", message, place_of(definition))
        return Shape.ASYNC
    if style is not Style.PLAIN:
        return Shape.SCALAR if returns.style is style else Shape.AGGREGATE
    return Shape.TABLE if returns.many else Shape.SCALAR


def _spoken(shape: Shape) -> str:
    return f"{'an' if shape in (Shape.AGGREGATE, Shape.ASYNC) else 'a'} {shape} function"


def _check_values(definition: Definition, shape: Shape, style: Style, parameters: tuple[Value, ...]) -> None:
    if shape is Shape.AGGREGATE and not parameters:
        message = f"{definition.name} is an aggregate, and takes no values"
        raise Refused("udf_parameter", message, place_of(definition))
    for argument, value in zip(definition.args.args, parameters, strict=True):
        if value.many and style is Style.PLAIN:
            message = f"parameter {argument.arg} is an iterator, and SQL gives values"
            raise Refused("udf_hint", message, place_of(argument), "write list[…] for an array")
