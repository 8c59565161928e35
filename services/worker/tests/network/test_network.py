"""Who is let in, and what happens to the others: strangers, ghosts of old generations, and connections that break."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from penstock.common.errors import ErrorDomain, PeerUnavailable, RetryHint, SettingsError, UserError
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.program import Edge, EdgeKind, NodeKey, Program
from penstock.common.testing import eventually
from penstock.common.testing_certificates import write_certificates
from penstock.connectors.base import NONE_HELD, SourceBatch
from penstock.worker.assignment import Checkpoints
from penstock.worker.network.frames import FrameType, Route, encode_frame, encode_header
from penstock.worker.network.handshake import Identity
from penstock.worker.network.link import Link
from penstock.worker.network.network import Expected, Network
from penstock.worker.network.settings import NetworkSettings
from penstock.worker.pace import Pace
from penstock.worker.testing import (
    CollectingSink,
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
from penstock.worker.testing_workers import LOOPBACK, RPC, Executions, on_workers, open_networks

FULL = "PENSTOCK_TEST_FULL" in os.environ
SKEW = 1_000_000
SHUFFLE = Program(
    (node("a", source(), value("…"), parallelism=2), node("b", sink(), parallelism=2)),
    (Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)),),
)


class EndlessSource(ListSource):
    """Gives consecutive numbers for as long as it is asked."""

    def __init__(self, size: int = 100) -> None:
        super().__init__([])
        self.given = 0
        self._size = size

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        await asyncio.sleep(0.001)
        self.given += self._size
        return SourceBatch(rows(range(self.given - self._size, self.given)))


def endless(subtasks: int = 2) -> MemoryConnector:
    return MemoryConnector({("t", subtask): EndlessSource() for subtask in range(subtasks)})


def on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    """As services run."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def holds(condition: object) -> bool:
    return bool(condition)


async def flowing(connector: MemoryConnector, rows_more: int = 500) -> None:
    """Waits until more rows have arrived at every sink."""
    await eventually(lambda: holds(len(connector.sinks) == 2), 10)
    before = {key: len(part.numbers) for key, part in connector.sinks.items()}
    await eventually(
        lambda: holds(all(len(part.numbers) > before[key] + rows_more for key, part in connector.sinks.items())), 20
    )


def hello(identity: Identity) -> Expected:
    return Expected(identity.job, identity.generation, frozenset({identity.dialer}), lambda _worker, link: link.abort())


async def test_strangers_are_closed_and_harm_nobody() -> None:
    connector, reporter = endless(), MemoryReporter()
    async with on_workers(assignment(SHUFFLE), surroundings(connector), reporter, workers=2) as executions:
        running = asyncio.create_task(executions.run())
        await flowing(connector)
        port = int(next(iter(executions.parts[0].assignment.elsewhere.values())).address.rpartition(":")[2])
        chance = random.Random(1)
        for content in (
            b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b"x" * 100,
            chance.randbytes(5000),
            encode_header(FrameType.ROWS, Route(), 10) + b"0123456789",
            encode_header(FrameType.HELLO, Route(), 1 << 40),
            encode_frame(FrameType.HELLO, b"{" * 4000),
            encode_frame(FrameType.HELLO, b'{"version": 99}') * 20,
            encode_frame(FrameType.WELCOME, b"x" * 32),
            b"\x00",
        ):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            writer.write(content)
            writer.write_eof()
            async with asyncio.timeout(8):
                await _until_closed(reader)
            writer.close()
        await flowing(connector)
        assert not reporter.failed
        executions.stop()
        await running
    assert not reporter.failed


async def _until_closed(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


async def test_who_has_another_token_generation_job_or_name_is_refused() -> None:
    settings = NetworkSettings(connect_seconds=0.3)
    mine, other = await open_networks(2, settings=settings)
    (stranger,) = await open_networks(1, settings=settings, rpc=RPC.model_copy(update={"token": "wrong"}))
    right = Identity(JobId.new(), Generation(2), dialer=mine.worker, acceptor=other.worker)
    address = f"{LOOPBACK}:{other.port}"
    with other.expecting(hello(right)):
        for wrong, reason in (
            (Identity(right.job, Generation(1), right.dialer, right.acceptor), "runs generation 2"),
            (Identity(JobId.new(), Generation(2), right.dialer, right.acceptor), "runs generation 2"),
            (Identity(right.job, Generation(2), WorkerId.new(), right.acceptor), "not expected"),
            (Identity(right.job, Generation(2), right.dialer, WorkerId.new()), "this is worker"),
        ):
            with pytest.raises(PeerUnavailable, match=reason):
                await mine.dial(address, wrong)
        with pytest.raises(PeerUnavailable, match="cannot be reached"):
            await stranger.dial(address, right)
        assert other.refused >= 5
        link = await mine.dial(address, right)
        link.abort()
    for network in (mine, other, stranger):
        await network.close()


async def test_a_connection_waits_for_the_job_and_for_the_port_but_not_for_ever() -> None:
    mine, other = await open_networks(2, settings=NetworkSettings(connect_seconds=5.0))
    identity = Identity(JobId.new(), Generation(1), dialer=mine.worker, acceptor=other.worker)
    port = other.port
    dialing = asyncio.create_task(mine.dial(f"{LOOPBACK}:{port}", identity))
    await asyncio.sleep(0.1)
    assert not dialing.done()
    with other.expecting(hello(identity)):
        (await dialing).abort()
    await other.close()
    dialing = asyncio.create_task(mine.dial(f"{LOOPBACK}:{port}", identity))
    await asyncio.sleep(0.1)
    again = await Network.open(other.worker, host=LOOPBACK, port=port, rpc=RPC, settings=other.settings)
    with again.expecting(hello(identity)):
        (await dialing).abort()
    hasty = Network(mine.worker, RPC, NetworkSettings(connect_seconds=0.2))
    with pytest.raises(PeerUnavailable, match="cannot be reached"):
        await hasty.dial(f"{LOOPBACK}:{again.port}", identity)
    await again.close()
    await mine.close()


async def test_a_peer_may_be_silent_for_as_long_as_is_set() -> None:
    mine, other = await open_networks(2, settings=NetworkSettings(silence_seconds=8.0))
    identity = Identity(JobId.new(), Generation(1), dialer=mine.worker, acceptor=other.worker)
    taken: list[Link] = []
    expected = Expected(identity.job, identity.generation, frozenset({mine.worker}), lambda _, link: taken.append(link))
    with other.expecting(expected):
        dialed = await mine.dial(f"{LOOPBACK}:{other.port}", identity)
    for link in (dialed, *taken):
        assert link._transport is not None
        connection = link._transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        link.abort()
    await mine.close()
    await other.close()


async def test_without_a_token_rows_are_taken_on_this_machine_alone() -> None:
    with pytest.raises(SettingsError, match="without a token"):
        await Network.open(WorkerId.new(), host="0.0.0.0", port=0, rpc=RPC, settings=NetworkSettings())


def test_a_connection_that_is_cut_fails_the_job_in_a_way_that_is_tried_again() -> None:
    async def scenario() -> None:
        connector, reporters = endless(), [MemoryReporter(), MemoryReporter()]
        around = surroundings(connector)
        async with on_workers(assignment(SHUFFLE), around, reporters.__getitem__, workers=2) as executions:
            running = asyncio.create_task(executions.run())
            await flowing(connector)
            _cut(executions)
            async with asyncio.timeout(5):
                await running
        for reporter in reporters:
            ((_, error),) = reporter.failed
            assert (error.domain, error.retry) == (ErrorDomain.EXTERNAL, RetryHint.BACKOFF)

    on_uvloop(scenario())


def _cut(executions: Executions) -> None:
    exchange = executions.parts[0]._exchange
    assert exchange is not None
    for connection in exchange._connections.values():
        assert connection._link is not None and connection._link._transport is not None
        connection._link._transport.abort()


async def test_rows_that_were_not_granted_or_for_nobody_break_that_connection_with_a_reason() -> None:
    for wrong in (
        encode_frame(FrameType.ROWS, b"x" * 100, Route(0, 0, 1, 1, 0), rows=5),
        encode_frame(FrameType.ROWS, b"x" * 100, Route(0, 9, 1, 1, 0), rows=5),
        encode_frame(FrameType.GRANT, b"\xff" * 8, Route(0, 1, 1, 0, 0), rows=5),
        encode_frame(FrameType.FINISHED),
        encode_header(FrameType.ROWS, Route(0, 0, 1, 1, 0), 1 << 40),
        encode_frame(FrameType.HELLO),
        b"\xff" * 24,
    ):
        connector, reporters = endless(), [MemoryReporter(), MemoryReporter()]
        around = surroundings(connector)
        async with on_workers(assignment(SHUFFLE), around, reporters.__getitem__, workers=2) as executions:
            running = asyncio.create_task(executions.run())
            await flowing(connector, 10)
            exchange = executions.parts[0]._exchange
            assert exchange is not None
            for connection in exchange._connections.values():
                assert connection._link is not None
                connection._link.write([wrong])
            async with asyncio.timeout(5):
                await running
        assert all(reporter.failed[0][1].domain is ErrorDomain.EXTERNAL for reporter in reporters)


async def test_the_failure_of_one_worker_is_told_by_all_as_what_it_was() -> None:
    connector = endless()
    connector.sinks["out", 1] = BadSink()
    reporters = [MemoryReporter(), MemoryReporter()]
    async with on_workers(assignment(SHUFFLE), surroundings(connector), reporters.__getitem__, workers=2) as executions:
        async with asyncio.timeout(10):
            await executions.run()
    for reporter in reporters:
        ((task, error),) = reporter.failed
        assert (str(task), error.domain, error.message) == ("b[1]", ErrorDomain.USER, "the table is gone")


class BadSink(CollectingSink):
    async def write(self, batch: object) -> None:
        raise UserError("the table is gone")


async def test_a_worker_that_is_stopped_does_not_fail_the_others_before_they_are_stopped_too() -> None:
    connector, reporter = endless(), MemoryReporter()
    async with on_workers(assignment(SHUFFLE), surroundings(connector), reporter, workers=2) as executions:
        first, second = (asyncio.create_task(part.run()) for part in executions.parts)
        await flowing(connector)
        first.cancel()
        await asyncio.wait([first], timeout=5)
        await asyncio.sleep(0.2)
        assert first.done() and not second.done() and not reporter.failed
        second.cancel()
        await asyncio.wait([second], timeout=5)
    assert not reporter.failed


async def test_batches_larger_than_a_frame_are_cut() -> None:
    connector = MemoryConnector({("t", n): ListSource([SourceBatch(rows(range(100_000)))]) for n in range(2)})
    reporter = MemoryReporter()
    around = surroundings(connector, pace=Pace(100_000, 100_000, 0.0, 0.1))
    async with on_workers(
        assignment(SHUFFLE), around, reporter, workers=2, settings=NetworkSettings(max_frame_bytes=1 << 16)
    ) as executions:
        async with asyncio.timeout(20):
            await executions.run()
    assert not reporter.failed
    arrived = sorted(number for part in connector.sinks.values() for number in part.numbers)
    assert arrived == sorted([*range(100_000), *range(100_000)])


def test_checkpoints_complete_and_memory_stays_where_one_input_has_a_million_times_the_rows(tmp_path: Path) -> None:
    """One source gives a row where the other gives a million, barriers come every 200 ms, and credits are tiny."""

    async def scenario() -> None:
        seconds = 30.0 if FULL else 4.0
        fast = EndlessSource(1000)
        slow = SlowSource(fast)
        connector = MemoryConnector({("fast", 0): fast, ("slow", 0): slow}, make_sink=CountingSink)
        program = Program(
            (
                node("fast", source("fast"), value("…"), parallelism=1),
                node("slow", source("slow"), value("…"), parallelism=1),
                node("b", sink(), parallelism=3),
            ),
            tuple(Edge(NodeKey(name), NodeKey("b"), EdgeKind.SHUFFLE, ("n",)) for name in ("fast", "slow")),
        )
        reporter = MemoryReporter()
        pace = Pace(batch_rows=64, channel_rows=8, linger_seconds=0.0, flush_seconds=0.1)
        around = surroundings(connector, pace=pace)
        whole = assignment(program, checkpoints=Checkpoints(tmp_path.as_uri()))
        async with on_workers(whole, around, reporter, workers=3) as executions:
            running = asyncio.create_task(executions.run())
            process, epoch, most = psutil.Process(), 0, 0
            ends_at = time.monotonic() + seconds
            before = 0
            while time.monotonic() < ends_at:
                epoch += 1
                await executions.checkpoint(epoch, last=False)
                await eventually(partial(_is_complete, reporter, epoch, len(whole.tasks)), 20)
                await asyncio.sleep(0.2)
                assert all(metrics.queued_rows <= 2 * pace.batch_rows for metrics in executions.metrics)
                most = max(most, process.memory_info().rss)
                before = before or most
            await executions.checkpoint(epoch + 1, last=True)
            async with asyncio.timeout(20):
                await running
        assert not reporter.failed and epoch >= 5
        assert most - before < 100 << 20
        assert fast.given > SKEW * (slow.given - 1) and fast.given > 10_000

    on_uvloop(scenario())


class SlowSource(EndlessSource):
    """Gives a row for each million of another."""

    def __init__(self, other: EndlessSource) -> None:
        super().__init__()
        self._other = other

    async def read(self, held: frozenset[int] = NONE_HELD) -> SourceBatch | None:
        while self._other.given < SKEW * self.given:  # noqa: ASYNC110 - the other knows nothing of this one
            await asyncio.sleep(0.01)
        self.given += 1
        return SourceBatch(rows([self.given]))


class CountingSink(CollectingSink):
    """Keeps nothing."""

    async def write(self, batch: object) -> None:
        await asyncio.sleep(0)


async def _is_complete(reporter: MemoryReporter, epoch: int, tasks: int) -> bool:
    return len({report.task for report in reporter.completed if report.epoch == epoch}) == tasks


async def test_with_tls_rows_cross_and_who_has_no_certificate_is_refused(tmp_path: Path) -> None:
    write_certificates(tmp_path, "worker")
    files = {"tls_ca": tmp_path / "ca.pem", "tls_cert": tmp_path / "worker.pem", "tls_key": tmp_path / "worker.key"}
    used = RPC.model_copy(update={"token": "secret", **{key: str(path) for key, path in files.items()}})
    numbers = range(20_000)
    connector = MemoryConnector({("t", n): ListSource([SourceBatch(rows(numbers))]) for n in range(2)})
    reporter = MemoryReporter()
    async with on_workers(assignment(SHUFFLE), surroundings(connector), reporter, workers=2, rpc=used) as executions:
        async with asyncio.timeout(20):
            await executions.run()
    assert not reporter.failed
    assert sum(len(part.numbers) for part in connector.sinks.values()) == 2 * len(numbers)
    (served,) = await open_networks(1, rpc=used)
    plain = Network(WorkerId.new(), RPC.model_copy(update={"token": "secret"}), NetworkSettings(connect_seconds=0.3))
    identity = Identity(JobId.new(), Generation(1), dialer=plain.worker, acceptor=served.worker)
    with pytest.raises(PeerUnavailable, match="cannot be reached"):
        await plain.dial(f"{LOOPBACK}:{served.port}", identity)
    await served.close()
