"""CREATE FUNCTION: the sources in a query as functions that its other statements call."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from penstock.common.diagnostics import Span
from penstock.compiler.diagnostics import Problems, Refused, refusal
from penstock.compiler.functions import REWRITES, WINDOWS
from penstock.compiler.positions import Text
from penstock.compiler.statements import CreateFunction, Statement
from penstock.compiler.udf_options import WrongOption
from penstock.compiler.udfs import BuiltUdf, Udfs


async def created_functions(
    statements: Sequence[Statement],
    udfs: Udfs,
    text: Text,
    built_in: Collection[str],
    problems: Problems,
    *,
    store: bool,
) -> Mapping[str, BuiltUdf | None]:
    """The functions that a query creates, by name; None for one that is wrong, which goes to the problems."""
    created: dict[str, CreateFunction] = {}
    for statement in statements:
        if isinstance(statement, CreateFunction):
            with problems.collecting():
                _check_name(statement, created, built_in)
                created[statement.name.text] = statement
    built = await asyncio.gather(*(_built(one, udfs, text, problems, store) for one in created.values()))
    return dict(zip(created, built, strict=True))


def is_built_in(name: str, built_in: Collection[str]) -> bool:
    """Whether a function of this name is there without being created."""
    return name in built_in or name in REWRITES or name in WINDOWS or name.startswith("penstock_")


def _check_name(statement: CreateFunction, created: Mapping[str, CreateFunction], built_in: Collection[str]) -> None:
    name = statement.name
    if name.text in created:
        first = created[name.text].name.span
        raise refusal("duplicate", f"{name.text} is created twice; first in line {first.line}", name.span)
    if is_built_in(name.text, built_in):
        message = f"there is a function {name.text} already"
        raise refusal("duplicate", message, name.span, "choose another name")


async def _built(statement: CreateFunction, udfs: Udfs, text: Text, problems: Problems, store: bool) -> BuiltUdf | None:
    options = {option.name: option for option in statement.options}
    with problems.collecting():
        try:
            given = {name: option.value for name, option in options.items()}
            return await udfs.build(statement.source, statement.name.text, given, store=store)
        except WrongOption as error:
            raise refusal("invalid_option", error.message, options[error.name].span, error.hint) from None
        except Refused as refused:
            span = refused.diagnostic.span
            place = statement.name.span if span is None else _in_text(span, statement, text)
            raise Refused(replace(refused.diagnostic, span=place)) from refused
    return None


def _in_text(span: Span, statement: CreateFunction, text: Text) -> Span:
    """A place in a source, in the text that it is in."""
    first = text.between(statement.begins, statement.begins)

    def moved(line: int, column: int) -> tuple[int, int]:
        return first.line + line - 1, column + statement.margin + (first.column - 1 if line == 1 else 0)

    return Span(*moved(span.line, span.column), *moved(span.end_line, span.end_column))
