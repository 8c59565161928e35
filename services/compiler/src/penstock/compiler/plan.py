"""The logical plan: a query as steps that rows go through, frozen data that passes change until it is a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from penstock.common.program import (
    INPUT,
    Aggregation,
    AsyncUdf,
    EdgeKind,
    InstantJoin,
    Join,
    LookupJoin,
    OperatorKey,
    Output,
    ProgramSettings,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    TemporalJoin,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.compiler.dialect import spark_sql


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads a source table."""

    connector: str
    table: str
    options: Mapping[str, str]
    metadata: Mapping[str, str]
    max_parallelism: int | None
    idle_ms: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT over `input`, the rows of all inputs; the tree is never changed in place."""

    select: exp.Select

    @property
    def sql(self) -> str:
        return spark_sql(self.select)


@dataclass(frozen=True, slots=True)
class Key:
    """What is done before a shuffle: a query, then perhaps the partial stage of an aggregation of its rows."""

    select: exp.Select
    aggregation: Aggregation | None

    @property
    def sql(self) -> str:
        return spark_sql(self.select)


Stateful: TypeAlias = (
    TumblingWindowAggregate | SlidingWindowAggregate | SessionWindowAggregate | UpdatingAggregate | WindowFunction
)
Joining: TypeAlias = InstantJoin | Join | TemporalJoin


@dataclass(frozen=True, slots=True)
class Write:
    """Writes a sink table."""

    connector: str
    table: str
    options: Mapping[str, str]
    max_parallelism: int | None


StepKind: TypeAlias = Scan | Query | Key | Stateful | Joining | LookupJoin | AsyncUdf | Write


@dataclass(frozen=True, slots=True)
class Input:
    """Where rows of a step come from."""

    step: OperatorKey
    output: Output = Output.ROWS
    keys: tuple[str, ...] = ()
    """The columns by which rows find their subtask; without any, they stay where they are."""
    edge: EdgeKind = EdgeKind.SHUFFLE
    """How they find it, if they have keys: to a side of a join, or just so."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `schema` is of the rows that leave it, or that a sink writes, `_timestamp` last."""

    key: OperatorKey
    description: str
    kind: StepKind
    inputs: tuple[Input, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps that run in one subtask, one after the other."""

    steps: tuple[Step, ...]
    max_parallelism: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in topological order; `chains` says which go together, once that is known."""

    steps: tuple[Step, ...]
    settings: ProgramSettings = field(default_factory=ProgramSettings)
    chains: tuple[Chain, ...] = ()

    def by_key(self) -> Mapping[OperatorKey, Step]:
        return MappingProxyType({step.key: step for step in self.steps})

    def readers(self) -> Mapping[OperatorKey, tuple[Step, ...]]:
        """Who reads the rows of each step; a step that reads it twice is there twice."""
        found: dict[OperatorKey, list[Step]] = {step.key: [] for step in self.steps}
        for step in self.steps:
            for source in step.inputs:
                found[source.step].append(step)
        return MappingProxyType({key: tuple(readers) for key, readers in found.items()})


def input_table(select: exp.Select) -> exp.Table:
    """The one place where a step's query names its input; queries that were collapsed are inside each other."""
    source = select.args["from_"].this
    while isinstance(source, exp.Subquery):
        source = source.this.args["from_"].this
    assert isinstance(source, exp.Table)
    return source


def nested(outer: exp.Select, inner: exp.Select) -> exp.Select:
    """One query of two: what the outer one calls its input is the inner one."""
    result = outer.copy()
    table = input_table(result)
    alias = table.args.get("alias") or exp.TableAlias(this=exp.Identifier(this=INPUT, quoted=True))
    table.replace(exp.Subquery(this=inner.copy(), alias=alias.copy()))
    return result


def projections(select: exp.Select) -> Iterator[tuple[str, exp.Expr]]:
    """The columns of a step's query, each with its name."""
    for projection in select.expressions:
        yield projection.alias_or_name, projection
