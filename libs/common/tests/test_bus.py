from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from penstock.common import subjects
from penstock.common.bus import Bus, Message, NatsSettings
from penstock.common.config import load_config
from penstock.common.embedded import EmbeddedNats
from penstock.common.ids import JobId
from penstock.common.quantities import parse_duration
from penstock.common.subjects import JobTopic
from penstock.common.testing import eventually, free_port
from penstock.common.testing_servers import temporary_nats


@pytest.fixture(scope="session")
async def nats() -> AsyncIterator[EmbeddedNats]:
    async with temporary_nats() as server:
        yield server


def settings(**changes: object) -> NatsSettings:
    changes = {"reconnect_wait": parse_duration("20ms"), **changes}
    return load_config(environment={}).section("nats", NatsSettings).model_copy(update=changes)


@asynccontextmanager
async def connected(url: str, **changes: object) -> AsyncIterator[Bus]:
    bus = await Bus.connect(url, settings(**changes))
    try:
        yield bus
    finally:
        await bus.close()


async def first(messages: AsyncIterator[Message]) -> Message:
    async with asyncio.timeout(5):
        return await anext(messages)


async def kill(server: EmbeddedNats) -> None:
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await server.ended.wait()


async def wait_connected(bus: Bus, expected: bool = True) -> None:
    async def reached() -> bool:
        return bus.connected is expected

    await eventually(reached)


async def test_a_message_reaches_the_subscribers_of_its_subject_alone(nats: EmbeddedNats) -> None:
    job, other = JobId.new(), JobId.new()
    async with (
        connected(nats.url) as sender,
        connected(nats.url) as receiver,
        receiver.subscribe(subjects.job_state(job)) as one,
        receiver.subscribe(subjects.all_jobs(JobTopic.STATE)) as all_jobs,
    ):
        sender.publish(subjects.job_state(other), b"first")
        sender.publish(subjects.job_state(job), b"second")
        assert await first(one) == Message(subjects.job_state(job), b"second")
        assert [(await first(all_jobs)).data for _ in range(2)] == [b"first", b"second"]


async def test_readers_of_one_queue_share_its_messages(nats: EmbeddedNats) -> None:
    received: list[bytes] = []

    async def read(messages: AsyncIterator[Message]) -> None:
        async for message in messages:
            received.append(message.data)

    async with connected(nats.url) as bus, bus.subscribe("queue.x", "q") as one, bus.subscribe("queue.x", "q") as two:
        readers = [asyncio.create_task(read(one)), asyncio.create_task(read(two))]
        for number in range(20):
            bus.publish("queue.x", str(number).encode())

        async def all_received() -> bool:
            return len(received) >= 20

        await eventually(all_received)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert sorted(received, key=int) == [str(number).encode() for number in range(20)]


async def test_subscriptions_work_again_after_nats_was_killed_and_started_again(tmp_path: Path) -> None:
    server = await EmbeddedNats.start(tmp_path)
    with capture_logs() as logs:
        async with connected(server.url) as bus, bus.subscribe("before.*") as before:
            bus.publish("before.a", b"1")
            assert (await first(before)).data == b"1"
            await kill(server)
            await wait_connected(bus, False)
            bus.publish("before.a", b"pending")
            async with bus.subscribe("during.*") as during:
                server = await EmbeddedNats.start(tmp_path, port=server.port)
                await wait_connected(bus)
                bus.publish("during.a", b"2")
                assert (await first(during)).data == b"2"
            assert (await first(before)).data == b"pending"
            assert bus.dropped == 0
    await server.stop()
    events = [entry["event"] for entry in logs if entry["event"].startswith("bus_") and entry["log_level"] != "debug"]
    assert events == ["bus_connected", "bus_disconnected", "bus_reconnected"]


async def test_a_bus_can_be_had_before_nats_is_there(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    port = free_port()
    short = parse_duration("200ms")
    async with connected(f"nats://secret@127.0.0.1:{port}", connect_timeout=short) as bus:
        assert not bus.connected
        await bus.ensure_event_stream()
        async with bus.subscribe("early") as messages:
            server = await EmbeddedNats.start(tmp_path, port=port)
            try:
                await wait_connected(bus)
                bus.publish("early", b"1")
                assert (await first(messages)).data == b"1"
            finally:
                await server.stop()


async def test_publishing_while_nats_is_away_neither_waits_nor_raises_and_drops_are_counted() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    with capture_logs() as logs:
        async with connected(url, pending_messages=10, connect_timeout=parse_duration("50ms")) as bus:
            for _ in range(25):
                bus.publish("away", b"x")
            assert bus.dropped == 15
            assert not await bus.publish_event("away", b"x")
            assert bus.dropped == 16
    assert [entry["event"] for entry in logs].count("bus_dropped") == 1
    assert [entry["event"] for entry in logs].count("bus_disconnected") == 1


async def test_a_slow_reader_loses_the_newest_messages_and_they_are_counted(nats: EmbeddedNats) -> None:
    async with (
        connected(nats.url) as sender,
        connected(nats.url, pending_messages=3) as bus,
        bus.subscribe("slow") as messages,
    ):
        for number in range(5):
            sender.publish("slow", str(number).encode())

        async def dropped() -> bool:
            return bus.dropped == 2

        await eventually(dropped)
        assert [(await first(messages)).data for _ in range(3)] == [b"0", b"1", b"2"]


async def test_a_message_too_large_for_nats_is_dropped_and_the_bus_goes_on(nats: EmbeddedNats) -> None:
    async with connected(nats.url) as bus, bus.subscribe("large") as messages:
        bus.publish("large", b"x" * (2 << 20))
        bus.publish("large", b"small")
        assert (await first(messages)).data == b"small"
        assert bus.dropped == 1


async def test_events_are_kept_and_the_stream_is_there_again_on_a_new_nats(tmp_path: Path) -> None:
    job = JobId.new()
    server = await EmbeddedNats.start(tmp_path / "one")
    async with connected(server.url) as bus:
        await bus.ensure_event_stream()
        assert await bus.publish_event(subjects.job_state(job), b"1")
        assert await stored(server.url) == 1
        await kill(server)
        await wait_connected(bus, False)
        (tmp_path / "two").mkdir()
        (tmp_path / "two" / "token").write_text((tmp_path / "one" / "token").read_text())
        server = await EmbeddedNats.start(tmp_path / "two", port=server.port)

        async def published() -> bool:
            return await bus.publish_event(subjects.job_error(job), b"2")

        await eventually(published)
        assert await stored(server.url) == 1
    await server.stop()


async def test_other_limits_of_the_event_stream_are_taken_over(nats: EmbeddedNats) -> None:
    for size in (1 << 20, 2 << 20):
        async with connected(nats.url, event_max_size=size) as bus:
            await bus.ensure_event_stream()
            client = Client()
            await client.connect(nats.url)
            info = await client.jetstream().stream_info(subjects.EVENT_STREAM)
            await client.close()
            assert info.config.max_bytes == size
            assert info.config.max_age == 30 * 86400


async def test_an_event_that_no_stream_keeps_is_not_reported_as_stored(nats: EmbeddedNats) -> None:
    async with connected(nats.url, event_timeout=parse_duration("300ms")) as bus:
        assert not await bus.publish_event("nobody.keeps.this", b"x")


async def test_a_wrong_token_is_not_let_in_and_does_not_raise(nats: EmbeddedNats) -> None:
    url = f"nats://wrong@127.0.0.1:{nats.port}"
    with capture_logs() as logs:
        async with connected(url, connect_timeout=parse_duration("300ms")) as bus:
            assert not bus.connected
    assert "wrong@" not in str(logs)


# A cancelled connection of the client may leave its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("token", ["right", "wrong"])
async def test_closing_ends_at_whatever_step_of_connecting_it_comes(nats: EmbeddedNats, token: str) -> None:
    url = nats.url if token == "right" else f"nats://wrong@127.0.0.1:{nats.port}"
    for microseconds in range(0, 30_000, 100):
        async with asyncio.timeout(5):
            async with connected(url, connect_timeout=timedelta(microseconds=microseconds)):
                pass
    gc.collect()


async def test_closing_sends_what_is_pending(nats: EmbeddedNats) -> None:
    async with connected(nats.url) as receiver, receiver.subscribe("last") as messages:
        async with connected(nats.url) as sender:
            sender.publish("last", b"words")
        assert (await first(messages)).data == b"words"
        await sender.close()


async def stored(url: str) -> int:
    client = Client()
    await client.connect(url)
    info = await client.jetstream().stream_info(subjects.EVENT_STREAM)
    await client.close()
    return info.state.messages
