"""The kinds of functions that SQL can call."""

from __future__ import annotations

from enum import StrEnum


class FunctionKind(StrEnum):
    """What a function makes of what; `Functions.scala` says which is which."""

    SCALAR = "scalar"  # a row's values → a value
    AGGREGATE = "aggregate"  # the values of many rows → a value
    WINDOW = "window"  # a row's place among others → a value, only with OVER
    GENERATOR = "generator"  # a row's values → rows, as explode does
    TABLE = "table"  # rows, only in FROM
