"""Bytewax in a process of its own, one worker: a source that reads the socket, a sink that looks at the clock.

Runs in Bytewax's own environment, and knows nothing of Penstock.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from array import array
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock, TumblingWindower, count_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
WATERMARK = timedelta(seconds=1)
WAIT_SECONDS = 0.001

Event = tuple[int, int]


class _Lines(StatefulSourcePartition[Event, None]):
    """What is there, after a wait of a millisecond at most: Bytewax by itself would ask once a millisecond."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._rest = b""

    def next_batch(self) -> list[Event]:
        if not select.select([self._socket], [], [], WAIT_SECONDS)[0]:
            return []
        read = self._socket.recv(1 << 16)
        if not read:
            raise StopIteration
        *lines, self._rest = (self._rest + read).split(b"\n")
        return [(int(due), int(number)) for due, number in (line.split(b",") for line in lines)]

    def snapshot(self) -> None:
        return None

    def close(self) -> None:
        self._socket.close()


class _Socket(FixedPartitionedSource[Event, None]):
    def __init__(self, port: int) -> None:
        self._port = port

    def list_parts(self) -> list[str]:
        return ["socket"]

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> _Lines:
        return _Lines(self._port)


class _Clocked(StatelessSinkPartition[Event]):
    def __init__(self, arrivals: array[int]) -> None:
        self._arrivals = arrivals

    def write_batch(self, items: list[Event]) -> None:
        now = time.time_ns() // 1000
        for due, events in items:
            self._arrivals.extend((due, now, events))


class _Sink(DynamicSink[Event]):
    """Rows, when they came, and how many events each is."""

    def __init__(self) -> None:
        self.arrivals = array("q")

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Clocked:
        return _Clocked(self.arrivals)


def filtered(events: Any) -> Any:
    kept = op.filter("kept", events, lambda event: event[1] % 10 != 3)
    return op.map("rows", kept, lambda event: (event[0], 1))


def counted(events: Any, width_ms: int, keys: int) -> Any:
    width = timedelta(milliseconds=width_ms)
    clock = EventClock(lambda event: EPOCH + event[0] * MICROSECOND, WATERMARK)
    windows = count_window(
        "windows", events, clock, TumblingWindower(length=width, align_to=EPOCH), lambda event: str(event[1] % keys)
    )
    width_us = width_ms * 1000
    return op.map("ends", windows.down, lambda keyed: ((keyed[1][0] + 1) * width_us, keyed[1][1]))


def answer(job: dict[str, Any]) -> dict[str, object]:
    """What is said of a job."""
    started, flow, sink = time.perf_counter(), Dataflow("latency"), _Sink()
    events = op.input("events", flow, _Socket(job["port"]))
    rows = filtered(events) if job["width_ms"] is None else counted(events, job["width_ms"], job["keys"])
    op.output("results", rows, sink)
    try:
        run_main(flow)
    except Exception as error:  # whatever a step raises
        return {"refused": repr(error)}
    with open(job["into"], "wb") as into:
        sink.arrivals.tofile(into)
    return {"seconds": time.perf_counter() - started}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps(version("bytewax")), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
