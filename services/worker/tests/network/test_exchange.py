"""Jobs on several workers in one process, over real connections."""

from __future__ import annotations

import asyncio
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.program import Edge, EdgeKind, NodeKey, Program
from penstock.connectors.base import SourceBatch
from penstock.worker.pace import Pace
from penstock.worker.testing import (
    ListSource,
    MemoryConnector,
    MemoryReporter,
    assignment,
    node,
    rows,
    sink,
    source,
    surroundings,
    value,
)
from penstock.worker.testing_workers import run_on_workers


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Program, dict[int, list[int]]]:
    """Sources' worth of batches through a random layer of chains to a random number of sinks."""
    first, middle, last = (draw(st.integers(1, 4)) for _ in range(3))
    sizes = {subtask: draw(st.lists(st.integers(0, 40), max_size=8)) for subtask in range(first)}
    by_key = draw(st.booleans())
    chains = (
        node("source", source(), parallelism=first),
        node("middle", value("…"), parallelism=middle),
        node("sink", sink(), parallelism=last),
    )
    into = Edge(NodeKey("source"), NodeKey("middle"), EdgeKind.SHUFFLE)
    out = Edge(NodeKey("middle"), NodeKey("sink"), EdgeKind.SHUFFLE, ("n",) if by_key else ())
    # A table that is united with itself has two edges that are equal.
    return Program(chains, (into, out, *([into] if draw(st.booleans()) else []))), sizes


@settings(deadline=None, max_examples=40)
@given(jobs(), st.integers(1, 50), st.integers(1, 50), st.integers(2, 4))
def test_every_row_arrives_once_whichever_worker_has_it(
    job: tuple[Program, dict[int, list[int]]], batch_rows: int, channel_rows: int, workers: int
) -> None:
    program, sizes = job

    async def scenario() -> None:
        numbers = count()
        sent = {
            subtask: [[next(numbers) * 10 + subtask for _ in range(size)] for size in lengths]
            for subtask, lengths in sizes.items()
        }
        connector = MemoryConnector(
            {("t", subtask): ListSource(SourceBatch(rows(one)) for one in lists) for subtask, lists in sent.items()}
        )
        reporter = MemoryReporter()
        around = surroundings(connector, pace=Pace(batch_rows, channel_rows, 0.0, 0.1))
        whole = assignment(program)
        async with asyncio.timeout(20):
            await run_on_workers(whole, around, reporter, workers=workers)
        assert not reporter.failed
        assert set(reporter.finished) == set(whole.tasks)
        times = program.edges.count(program.edges[0])
        expected = sorted(number for lists in sent.values() for one in lists for number in one * times)
        assert sorted(number for part in connector.sinks.values() for number in part.numbers) == expected
        if program.edges[1].keys:
            last = program.node(NodeKey("sink")).parallelism
            for (_, subtask), part in connector.sinks.items():
                assert all(number % last == subtask for number in part.numbers)

    asyncio.run(scenario())
