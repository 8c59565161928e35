"""Windows of random streams: what they hold depends on event times and each partition's own order, on nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reference.cases import FULL
from reference.comparison import Row, rows_of
from reference.data import BOUND, REFUNDS, Dataset
from reference.runs import Cut, Outcome, run

from penstock.common.program import Program
from penstock.spark import Engine

Compile = Callable[[str], Awaitable[Program]]

BEGIN: Final = datetime(2024, 3, 1, 12, 0, 7)  # noqa: DTZ001 - event times have no zone
EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - as above
WIDTH: Final = timedelta(seconds=10)
SLIDE: Final = timedelta(seconds=4)
GAP: Final = timedelta(seconds=4)

TUMBLE: Final = "SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2"
HOP: Final = """SELECT user, hop(INTERVAL '4 seconds', INTERVAL '10 seconds') AS w, count(*) AS n
  FROM refunds GROUP BY 1, 2"""
SESSION: Final = "SELECT user, session(INTERVAL '4 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2"
NESTED: Final = """SELECT tumble(INTERVAL '30 seconds') AS w, count(*) AS windows, sum(n) AS n FROM (
  SELECT user, tumble(INTERVAL '10 seconds') AS w, count(*) AS n FROM refunds GROUP BY 1, 2) GROUP BY 1"""

CUTS: Final = [Cut(parallelism, batch_rows) for parallelism in (1, 2, 3) for batch_rows in (1, 2, 7, 1000)]
ONE: Final = Cut(1, 1000)

property_test = settings(
    max_examples=60 if FULL else 6, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@dataclass(frozen=True)
class Event:
    """A row of the table `refunds`."""

    user: str
    ts: datetime


Partitions = list[list[Event]]

_moments = st.integers(0, 90).map(lambda second: BEGIN + timedelta(seconds=second))
_events = st.builds(Event, st.sampled_from("ab"), _moments)
_delays = st.one_of(st.just(timedelta(0)), st.just(BOUND), st.integers(0, 10).map(lambda s: timedelta(seconds=s)))
_delayed = st.lists(st.tuples(_events, _delays), max_size=40)


def arrived(delayed: Sequence[tuple[Event, timedelta]]) -> list[Event]:
    """Events in the order in which they arrive; of two at once the one that is less late comes first."""
    return [event for event, _ in sorted(delayed, key=lambda pair: (pair[0].ts + pair[1], pair[1]))]


streams_in_bound = st.lists(_delayed.map(arrived), min_size=1, max_size=4)
streams_of_any_order = st.lists(st.lists(_events, max_size=40), min_size=1, max_size=4)
cuts = st.sampled_from(CUTS)


def dataset_of(partitions: Partitions) -> Dataset:
    tables = []
    for number, events in enumerate(partitions):
        rows = [{"id": number, "user": event.user, "amount": 1, "ts": event.ts} for event in events]
        tables.append(pa.Table.from_pylist(rows, REFUNDS))
    return Dataset((), tuple(tables), ())


def windows_of(outcome: Outcome) -> dict[Row, int]:
    """The count of each window, none of which may be there twice."""
    rows = rows_of(outcome.batches)
    found = {row[:-1]: row[-1] for row in rows}
    assert len(found) == len(rows), f"windows were emitted twice: {rows}"
    return found


def tumbled(events: Sequence[Event]) -> dict[Row, int]:
    return dict(Counter((event.user, _span(_floor(event.ts, WIDTH), WIDTH)) for event in events))


def hopped(events: Sequence[Event]) -> dict[Row, int]:
    found: Counter[Row] = Counter()
    for event in events:
        start = _floor(event.ts, SLIDE)
        while start + WIDTH > event.ts:
            found[event.user, _span(start, WIDTH)] += 1
            start -= SLIDE
    return dict(found)


def sessions(events: Sequence[Event]) -> dict[Row, int]:
    found: dict[Row, int] = {}
    for user in "ab":
        open_session: list[datetime] = []
        for ts in [*sorted(event.ts for event in events if event.user == user), datetime.max]:  # noqa: DTZ901 - a bound
            if open_session and ts - open_session[-1] >= GAP:
                found[user, (open_session[0], open_session[-1] + GAP)] = len(open_session)
                open_session = []
            open_session.append(ts)
    return found


def _floor(ts: datetime, width: timedelta) -> datetime:
    return ts - (ts - EPOCH) % width


def _span(start: datetime, width: timedelta) -> tuple[datetime, datetime]:
    return start, start + width


@dataclass(frozen=True)
class Counted:
    """The windows of a stream, and how many of its rows are in none because they came too late."""

    windows: dict[Row, int]
    late: int


def with_watermarks(partition: Sequence[Event]) -> Iterator[tuple[Event, datetime]]:
    """Each row with the watermark that the rows before it in its partition have made."""
    watermark = datetime.min  # noqa: DTZ901 - a bound
    for event in partition:
        yield event, watermark
        watermark = max(watermark, event.ts - BOUND)


def tumbled_in_time(partitions: Partitions) -> Counted:
    """A row is late when its window has ended."""
    return _counted(partitions, lambda event, watermark: _floor(event.ts, WIDTH) + WIDTH > watermark, tumbled)


def hopped_in_time(partitions: Partitions) -> Counted:
    """A row is in those of its windows that have not ended, and late when that is none."""
    found: Counter[Row] = Counter()
    late = 0
    for events in partitions:
        for event, watermark in with_watermarks(events):
            windows = [row for row in hopped([event]) if row[1][1] > watermark]
            found.update(windows)
            late += not windows
    return Counted(dict(found), late)


def sessions_in_time(partitions: Partitions) -> Counted:
    """A row is late when the watermark has passed it: which session it would have joined can no longer be known."""
    return _counted(partitions, lambda event, watermark: event.ts >= watermark, sessions)


def _counted(
    partitions: Partitions,
    is_on_time: Callable[[Event, datetime], bool],
    model: Callable[[Sequence[Event]], dict[Row, int]],
) -> Counted:
    rows = [row for events in partitions for row in with_watermarks(events)]
    taken = [event for event, watermark in rows if is_on_time(event, watermark)]
    return Counted(model(taken), len(rows) - len(taken))


@property_test
@given(partitions=streams_in_bound, cut=cuts)
@pytest.mark.parametrize(
    ("sql", "model"), [(TUMBLE, tumbled), (HOP, hopped), (SESSION, sessions)], ids=["tumble", "hop", "session"]
)
async def test_any_order_within_the_bound_gives_the_same_windows(
    engine: Engine,
    compile_once: Compile,
    sql: str,
    model: Callable[[Sequence[Event]], dict[Row, int]],
    partitions: Partitions,
    cut: Cut,
) -> None:
    outcome = await run(engine, await compile_once(sql), dataset_of(partitions), cut)
    assert outcome.late_rows == 0
    assert windows_of(outcome) == model([event for events in partitions for event in events])


@property_test
@given(partitions=streams_of_any_order, cut=cuts)
@pytest.mark.parametrize(
    ("sql", "model"),
    [(TUMBLE, tumbled_in_time), (HOP, hopped_in_time), (SESSION, sessions_in_time)],
    ids=["tumble", "hop", "session"],
)
async def test_a_row_is_counted_where_it_is_not_late_or_as_late(
    engine: Engine,
    compile_once: Compile,
    sql: str,
    model: Callable[[Partitions], Counted],
    partitions: Partitions,
    cut: Cut,
) -> None:
    outcome = await run(engine, await compile_once(sql), dataset_of(partitions), cut)
    assert Counted(windows_of(outcome), outcome.late_rows) == model(partitions)


def seconds(*moments: int) -> Partitions:
    """One partition of one user, whose rows come at these moments."""
    return [[Event("a", BEGIN + timedelta(seconds=moment)) for moment in moments]]


@property_test
@given(partitions=streams_of_any_order, cut=cuts)
# Rows for which some of their windows are closed, and others are not; and such that would have joined a closed session.
@example(partitions=seconds(13, 0), cut=Cut(1, 1))
@example(partitions=seconds(0, 15, 2), cut=Cut(1, 1))
@pytest.mark.parametrize("sql", [TUMBLE, HOP, SESSION, NESTED], ids=["tumble", "hop", "session", "nested"])
async def test_late_rows_or_not_no_cut_changes_a_result(
    engine: Engine, compile_once: Compile, sql: str, partitions: Partitions, cut: Cut
) -> None:
    program, data = await compile_once(sql), dataset_of(partitions)
    plain, other = await run(engine, program, data, ONE), await run(engine, program, data, cut)
    assert sorted(rows_of(other.batches)) == sorted(rows_of(plain.batches))
    assert other.late_rows == plain.late_rows
    windows_of(other)
