"""Checks a table's options against what its connector takes, and says everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from penstock.connectors.base import Options
from penstock.connectors.errors import OptionError, OptionProblem, shorten

Model = TypeVar("Model", bound=Options)


def read_options(connector: str, model: type[Model], options: Mapping[str, str]) -> Model:
    """The options as their model has them; OptionError has every problem of them."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise OptionError(connector, tuple(_problem(model, detail) for detail in details)) from None


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not among those known."""
    names = sorted(known)
    nearest = get_close_matches(shorten(name), names, n=1)
    if nearest:
        return f"did you mean {nearest[0]}?"
    return f"there are {', '.join(names)}" if names else "it takes none"


def _problem(model: type[Options], detail: ErrorDetails) -> OptionProblem:
    name = str(detail["loc"][0]) if detail["loc"] else None
    match detail["type"]:
        case "extra_forbidden":
            shown = shorten(name or "")
            return OptionProblem(name, f"there is no option {shown}", suggestion(shown, model.model_fields))
        case "missing":
            return OptionProblem(None, f"the option {name} is missing")
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            return OptionProblem(name, message if name is None else f"option {name}: {message}")
