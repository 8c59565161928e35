from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.common.errors import InternalError
from penstock.common.program import (
    ArrowValue,
    OperatorKind,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.spark import FragmentSpec, Observed
from penstock.worker.batches import Batches
from penstock.worker.fragments import PlannedFragment
from penstock.worker.operators.testing import opened

TIMES = ("_window", "_window_end", "_timestamp")
SCHEMA = pa.schema([("n", pa.int64()), *((name, pa.timestamp("us")) for name in TIMES)])
MERGE, FINAL = StageQuery("merge"), StageQuery("final")


class CountedFragment:
    def __init__(self, planner: CountingPlanner) -> None:
        self._planner = planner

    async def run(self, *inputs: Sequence[pa.RecordBatch]) -> Batches:
        raise AssertionError("there are no rows")

    async def observe(self, batches: Sequence[pa.RecordBatch], watermark: int | None) -> Observed:
        raise AssertionError("there are no rows")

    async def close(self) -> None:
        self._planner.open -= 1


class CountingPlanner:
    """Plans what it is told not to refuse, and counts what is open."""

    def __init__(self, refused: str = "") -> None:
        self._refused = refused
        self.open = 0
        self.planned: list[FragmentSpec] = []

    async def plan(self, spec: FragmentSpec) -> PlannedFragment:
        if spec.sql == self._refused:
            raise ValueError(f"cannot plan {spec.sql}")
        self.open += 1
        self.planned.append(spec)
        return CountedFragment(self)


KINDS: list[OperatorKind] = [
    TumblingWindowAggregate(10, MERGE, FINAL),
    TumblingWindowAggregate(10, MERGE, FINAL, 5),
    SlidingWindowAggregate(5, 10, MERGE, FINAL),
    SessionWindowAggregate(10, MERGE, FINAL),
    UpdatingAggregate(MERGE, FINAL),
    WindowFunction("final"),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
async def test_an_operator_closes_what_it_planned_and_runs_nothing_without_rows(kind: OperatorKind) -> None:
    planner = CountingPlanner()
    operator = await opened(kind, SCHEMA, SCHEMA, planner)
    assert planner.open == len(planner.planned) > 0
    assert await operator.process(()) == ()
    assert await operator.advance(100) == ()
    assert await operator.flush() == ()
    assert (operator.state_rows, operator.holds_changes) == (0, False)
    await operator.close()
    assert planner.open == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
async def test_nothing_stays_open_of_an_operator_that_cannot_be_planned(kind: OperatorKind) -> None:
    planner = CountingPlanner(refused="final")
    with pytest.raises(ValueError, match="cannot plan final"):
        await opened(kind, SCHEMA, SCHEMA, planner)
    assert planner.open == 0


async def test_an_operator_without_state_is_refused() -> None:
    with pytest.raises(InternalError, match="keeps no state"):
        await opened(ArrowValue("SELECT 1"), SCHEMA, SCHEMA, CountingPlanner())
