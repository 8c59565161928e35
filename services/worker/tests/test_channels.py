from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.channels import Channel, Inbox
from penstock.worker.signals import EndOfData, Pause
from penstock.worker.testing import rows


async def receive_all(inbox: Inbox, most_rows: int) -> list[list[int]]:
    taken: list[list[int]] = []
    while True:
        match inbox.take(most_rows):
            case None:
                await inbox.wait()
            case EndOfData():
                return taken
            case tuple() as batches:
                taken.append([number for batch in batches for number in batch.column(0).to_pylist()])


async def send_all(channel: Channel, batches: list[pa.RecordBatch]) -> None:
    for batch in batches:
        await channel.send(batch)
    await channel.send(EndOfData())


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 7), max_size=12), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_all_rows_arrive_once_and_in_order_per_sender_and_never_beyond_the_bound(
    sizes: list[list[int]], bound: int, most_rows: int
) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        channels = [inbox.channel(bound) for _ in sizes]
        sent: list[list[int]] = []
        most = [0] * len(sizes)

        async def watch() -> None:
            while True:
                for index, channel in enumerate(channels):
                    most[index] = max(most[index], channel.rows)
                assert inbox.rows == sum(channel.rows for channel in channels)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            receiving = group.create_task(receive_all(inbox, most_rows))
            for sender, (channel, lengths) in enumerate(zip(channels, sizes, strict=True)):
                starts = [1000 * sender + sum(lengths[:index]) for index in range(len(lengths))]
                batches = [rows(range(start, start + size)) for start, size in zip(starts, lengths, strict=True)]
                sent.append([number for batch in batches for number in batch.column(0).to_pylist()])
                group.create_task(send_all(channel, batches))
            taken = await receiving
            watching.cancel()
        flat = [number for numbers in taken for number in numbers]
        for sender, numbers in enumerate(sent):
            assert [number for number in flat if number // 1000 == sender] == numbers
            assert most[sender] <= max(bound, *sizes[sender], 0)
        for numbers in taken:
            assert len(numbers) <= max(most_rows, *(size for lengths in sizes for size in lengths))

    asyncio.run(scenario())


async def test_a_batch_larger_than_the_bound_passes_alone() -> None:
    inbox = Inbox()
    channel = inbox.channel(10)
    assert channel.offer(rows(range(25)))
    assert not channel.offer(rows([1]))
    assert inbox.take(5) is not None
    assert channel.offer(rows([1]))


async def test_one_full_channel_does_not_keep_others_waiting() -> None:
    inbox = Inbox()
    busy, quiet = inbox.channel(100), inbox.channel(100)
    for number in range(50):
        busy.offer(rows([number]))
    quiet.offer(rows([1000]))
    taken = inbox.take(2)
    assert isinstance(taken, tuple)
    assert [batch.column(0)[0].as_py() for batch in taken] == [0, 1000]


async def test_the_end_is_taken_only_after_every_channel_has_ended() -> None:
    inbox = Inbox()
    first, second = inbox.channel(10), inbox.channel(10)
    first.offer(EndOfData())
    assert inbox.take(10) is None
    second.offer(rows([1]))
    second.offer(EndOfData())
    assert isinstance(inbox.take(10), tuple)
    assert inbox.take(10) == EndOfData()


async def test_a_pause_comes_after_the_rows_before_it_and_is_void_when_rows_follow() -> None:
    inbox = Inbox()
    channel = inbox.channel(10)
    for item in (rows([1]), Pause(), rows([2]), Pause()):
        channel.offer(item)
    taken = inbox.take(10)
    assert isinstance(taken, tuple)
    assert len(taken) == 2
    assert inbox.take(10) == Pause()
    assert inbox.take(10) is None


async def test_a_cancelled_send_puts_in_nothing_and_frees_the_sender() -> None:
    inbox = Inbox()
    channel = inbox.channel(1)
    channel.offer(rows([1]))
    sending = asyncio.create_task(channel.send(rows([2])))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait([sending])
    inbox.take(10)
    assert inbox.take(10) is None
    assert channel.offer(rows([3]))


async def test_gathering_ends_when_enough_rows_a_signal_or_a_blocked_sender_is_there() -> None:
    loop = asyncio.get_running_loop()
    far = loop.time() + 60

    for wake in ("rows", "signal", "blocked"):
        inbox = Inbox()
        channel = inbox.channel(2)
        channel.offer(rows([1, 2]))
        gathering = asyncio.create_task(inbox.gather(4 if wake == "rows" else 100, far))
        await asyncio.sleep(0)
        assert not gathering.done()
        sending = None
        match wake:
            case "rows":
                inbox.channel(9).offer(rows([3, 4]))
            case "signal":
                channel.offer(EndOfData())
            case "blocked":
                sending = asyncio.create_task(channel.send(rows([3])))
        async with asyncio.timeout(5):
            await gathering
        if sending is not None:
            sending.cancel()


async def test_gathering_ends_in_time() -> None:
    inbox = Inbox()
    inbox.channel(2).offer(rows([1]))
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    await inbox.gather(100, started_at + 0.03)
    assert 0.02 < loop.time() - started_at < 5


async def test_a_cancelled_wait_takes_nothing() -> None:
    inbox = Inbox()
    channel = inbox.channel(2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await inbox.wait()
    channel.offer(rows([1]))
    await inbox.wait()
    assert isinstance(inbox.take(1), tuple)
