"""The statements of a query, as they were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from penstock.common.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it is after folding, and its place."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """`name = value` in WITH (…)."""

    name: str
    value: str
    span: Span
    value_span: Span


@dataclass(frozen=True, slots=True)
class Column:
    """A column of CREATE TABLE: read from the table, or computed from others, or the connector's metadata."""

    name: Name
    field: pa.Field
    computed: exp.Expr | None = None
    metadata_key: Name | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """`WATERMARK FOR column [AS expression]`."""

    column: Name
    expression: exp.Expr | None


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: Name
    columns: tuple[Column, ...]
    watermark: Watermark | None
    primary_key: tuple[Name, ...]
    options: tuple[Option, ...] | None
    query: exp.Query | None
    has_faults: bool = False
    """Whether a part of it was left out because it is wrong: the table exists, but nothing is known of it."""


@dataclass(frozen=True, slots=True)
class CreateView:
    name: Name
    columns: tuple[Name, ...]
    query: exp.Query | None


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """`source` is as it is given to Python; `begins` is where it is in the text, and `margin` how much of each of its
    lines was cut off."""

    name: Name
    options: tuple[Option, ...]
    source: str
    begins: int
    margin: int


@dataclass(frozen=True, slots=True)
class Insert:
    table: Name
    columns: tuple[Name, ...]
    query: exp.Query


@dataclass(frozen=True, slots=True)
class Select:
    query: exp.Query
    span: Span


@dataclass(frozen=True, slots=True)
class Set:
    name: Name
    value: str
    value_span: Span


Statement: TypeAlias = CreateTable | CreateView | CreateFunction | Insert | Select | Set
