"""A chain: operators of which each takes what the one before lets out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.worker.batches import Batches, has_rows
from penstock.worker.fragments import PlannedFragment
from penstock.worker.operators.base import END_OF_TIME, ChainOperator
from penstock.worker.state.tables import StateTable

Send: TypeAlias = Callable[[Batches], Awaitable[None]]
"""Where rows go that leave a chain."""


class FragmentLink:
    """A query without state, as an operator of a chain."""

    holds_changes = False
    late_rows = 0
    state_rows = 0
    state_bytes = 0
    tables: Mapping[str, StateTable] = MappingProxyType({})

    def __init__(self, fragment: PlannedFragment) -> None:
        self._fragment = fragment

    async def process(self, batches: Batches) -> Batches:
        return await self._fragment.run(batches)

    async def advance(self, watermark: int) -> Batches:
        return ()

    async def flush(self) -> Batches:
        return ()

    async def restore(self, name: str, rows: pa.Table) -> None:
        raise InternalError("a query without state has none to restore")

    async def close(self) -> None:
        await self._fragment.close()


class LateRowsLink(FragmentLink):
    """A query that drops late rows of a source that others observe; they are counted."""

    def __init__(self, fragment: PlannedFragment, count: Callable[[int], None]) -> None:
        super().__init__(fragment)
        self._count = count

    async def process(self, batches: Batches) -> Batches:
        observed = await self._fragment.observe(batches, None)
        self._count(observed.late_rows)
        return observed.batches


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of rows of one partition of a source."""

    batches: Batches
    watermark: int | None
    late_rows: int


@dataclass(frozen=True, slots=True)
class Observer:
    """The query of a source's chain that observes event times, and the operators before it."""

    before: tuple[ChainOperator, ...]
    fragment: PlannedFragment

    async def observe(self, batches: Batches, watermark: int | None) -> Observation:
        """Runs the queries on rows of one partition, whose watermark before them is given."""
        batches = await _through(self.before, batches)
        if not has_rows(batches):
            return Observation((), watermark, 0)
        observed = await self.fragment.observe(batches, watermark)
        return Observation(observed.batches, observed.watermark, observed.late_rows)


class Chain:
    """The operators of a subtask. What leaves them has a batch per partition of the last query, or no row at all."""

    def __init__(self, operators: Sequence[ChainOperator] = (), observer: Observer | None = None) -> None:
        self._operators = tuple(operators)
        self._observer = observer

    def __bool__(self) -> bool:
        """Whether anything is done to the rows."""
        return bool(self._operators) or self._observer is not None

    @property
    def observes(self) -> bool:
        """Whether watermarks are made of the rows' event times."""
        return self._observer is not None

    @property
    def holds_changes(self) -> bool:
        return any(operator.holds_changes for operator in self._operators)

    @property
    def late_rows(self) -> int:
        return sum(operator.late_rows for operator in self._operators)

    @property
    def state_rows(self) -> int:
        return sum(operator.state_rows for operator in self._operators)

    @property
    def state_bytes(self) -> int:
        return sum(operator.state_bytes for operator in self._operators)

    async def process(self, batches: Batches) -> Batches:
        """The rows that leave when these come in."""
        return await _through(self._operators, batches)

    async def observe(self, batches: Batches, watermark: int | None) -> Observation:
        """The same for rows of one partition of a source, whose watermark before them is given."""
        assert self._observer is not None
        observation = await self._observer.observe(batches, watermark)
        return Observation(await self.process(observation.batches), observation.watermark, observation.late_rows)

    async def advance(self, watermark: int, send: Send) -> None:
        """Sends what a watermark lets out of each operator in turn, before the next one hears of it."""
        for position, operator in enumerate(self._operators):
            await self._send_from(position, await operator.advance(watermark), send)

    async def flush(self, send: Send) -> None:
        """Sends the changes that were held back."""
        for position, operator in enumerate(self._operators):
            if operator.holds_changes:
                await self._send_from(position, await operator.flush(), send)

    async def finish(self, send: Send) -> None:
        """Sends all that is still in the operators, of a stream that is complete."""
        for position, operator in enumerate(self._operators):
            if operator.holds_changes:
                await self._send_from(position, await operator.flush(), send)
            await self._send_from(position, await operator.advance(END_OF_TIME), send)

    async def _send_from(self, position: int, batches: Batches, send: Send) -> None:
        if has_rows(batches):
            await send(await _through(self._operators[position + 1 :], batches))


async def _through(operators: Sequence[ChainOperator], batches: Batches) -> Batches:
    """Rows through some operators. Nothing runs on no rows: a query might make one of them."""
    for operator in operators:
        if not has_rows(batches):
            return ()
        batches = await operator.process(batches)
    return batches
