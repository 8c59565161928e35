"""Opens the operators of a chain: queries as fragments of the engine, those with state by their kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, assert_never

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import (
    ArrowKey,
    ArrowValue,
    AsyncUdf,
    ConnectorSink,
    ConnectorSource,
    InstantJoin,
    Join,
    LookupJoin,
    Operator,
    OperatorKey,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.worker.chain import Chain, FragmentLink, LateRowsLink, Observer
from penstock.worker.fragments import PlannedFragment, fragment_spec
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.wiring import Wiring

_ON_TIME: Final = "penstock_on_time"
"""The function by which queries drop late rows."""

OpenOperator: TypeAlias = Callable[[Operator, pa.Schema, Planner], Awaitable[ChainOperator]]
"""Opens an operator with state, for rows of a schema."""


OpenLookup: TypeAlias = Callable[[LookupJoin, pa.Schema], ChainOperator]
"""Opens a lookup join, which gives rows of a schema."""


class Closable(Protocol):
    async def close(self) -> None: ...


class Links:
    """What the chain of a subtask is made of."""

    def __init__(self, wiring: Wiring, planner: Planner, open_operator: OpenOperator, open_lookup: OpenLookup) -> None:
        self._wiring = wiring
        self._planner = planner
        self._open_operator = open_operator
        self._open_lookup = open_lookup
        self.opened: list[Closable] = []
        """All so far, also when one could not be opened."""
        self.stateful: list[tuple[OperatorKey, ChainOperator]] = []
        """Those that keep state."""

    async def open(self) -> Chain:
        """The chain, ready to run."""
        self._check_partitioning()
        operators: list[ChainOperator] = []
        observer: Observer | None = None
        schema = self._wiring.input
        for operator in self._wiring.node.operators:
            match kind := operator.kind:
                case ConnectorSource() | ConnectorSink() | AsyncUdf():
                    pass
                case ArrowValue() | ArrowKey():
                    query = _query(kind)
                    fragment = await self._plan(operator, query, _input(operator, schema))
                    if kind.observes:
                        observer, operators = self._observer(operator, operators, fragment), []
                    elif _ON_TIME in query.before:
                        operators.append(LateRowsLink(fragment, self._wiring.metrics.count_late))
                    else:
                        operators.append(FragmentLink(fragment))
                case (
                    TumblingWindowAggregate()
                    | SlidingWindowAggregate()
                    | SessionWindowAggregate()
                    | UpdatingAggregate()
                    | WindowFunction()
                    | InstantJoin()
                    | Join()
                    | TemporalJoin()
                ):
                    operators.append(await self._open(operator, _input(operator, schema)))
                case LookupJoin():
                    operators.append(self._open_lookup(kind, _input(operator, operator.output)))
                    self.opened.append(operators[-1])
                case _:
                    assert_never(kind)
            schema = operator.output
        return Chain(operators, observer)

    def _check_partitioning(self) -> None:
        last = self._wiring.node.operators[-1].kind
        if self._wiring.partitioning is not None and not isinstance(last, ArrowValue | ArrowKey):
            raise InternalError(
                f"the chain {self._wiring.task.node} shuffles by keys without a query that parts its rows"
            )

    async def _plan(self, operator: Operator, query: StageQuery, schema: pa.Schema) -> PlannedFragment:
        by = self._wiring.partitioning if operator is self._wiring.node.operators[-1] else None
        keys, partitions = ((), 1) if by is None else (by.keys, by.partitions)
        fragment = await self._planner.plan(fragment_spec(query, schema, operator.output, keys, partitions))
        self.opened.append(fragment)
        return fragment

    def _observer(self, operator: Operator, before: list[ChainOperator], fragment: PlannedFragment) -> Observer:
        """Watermarks belong to the partitions of a source, so that they are observed where it is read."""
        if not self._wiring.node.is_source or not all(isinstance(one, FragmentLink) for one in before):
            raise InternalError(f"the operator {operator.key} observes event times, but not those of a source")
        return Observer(tuple(before), fragment)

    async def _open(self, operator: Operator, schema: pa.Schema) -> ChainOperator:
        opened = await self._open_operator(operator, schema, self._planner)
        self.opened.append(opened)
        self.stateful.append((operator.key, opened))
        return opened


def _query(kind: ArrowValue | ArrowKey) -> StageQuery:
    return StageQuery(kind.sql) if isinstance(kind, ArrowValue) else kind.query


def _input(operator: Operator, schema: pa.Schema | None) -> pa.Schema:
    if schema is None:
        raise InternalError(f"the operator {operator.key} has no input")
    return schema
