"""Secrets in options: `{{ NAME }}` stands for an environment variable of the worker, and is never stored filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock.common.errors import UserError

_TEMPLATE: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def fill_secrets(table: str, options: Mapping[str, str], environment: Mapping[str, str]) -> Mapping[str, str]:
    """The options of a table with its secrets in them."""

    def value_of(template: re.Match[str]) -> str:
        name = template[1]
        if name not in environment:
            raise UserError(
                f"table {table} needs the secret {name}, which this worker does not have",
                hint=f"set the environment variable {name} where workers run",
            )
        return environment[name]

    return MappingProxyType({key: _TEMPLATE.sub(value_of, text) for key, text in options.items()})
