from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.batches import Batches
from penstock.worker.channels import Channel, Inbox
from penstock.worker.signals import START_OF_TIME, Barrier, EndOfData, Pause, Signal, Watermark
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


Move = int | tuple[str, int]
"""Take so many rows, or have a channel get one more item."""


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[int, list[Move]]:
    channels = draw(st.integers(1, 4))
    kinds = st.sampled_from(["rows", "rows", "watermark", "watermark", "idle", "end", "cut"])
    moves = st.one_of(st.integers(1, 9), st.tuples(kinds, st.integers(0, channels - 1)))
    return channels, draw(st.lists(moves, max_size=60))


class Sender:
    """Sends rows that are ahead of its watermark, as a source does."""

    def __init__(self, inbox: Inbox, number: int) -> None:
        self.channel = inbox.channel(10**6)
        self.number = number
        self.watermark = START_OF_TIME
        self.idle = self.ended = self.was_idle = False
        self.complete = True
        self.sent: list[int] = []

    def send(self, kind: str, time: int) -> None:
        if self.ended:
            return
        match kind:
            case "rows":
                if self.idle:
                    self.channel.offer(Watermark(self.watermark))
                    self.idle = False
                self.sent += [10 * time + self.number, 10 * time + 10 + self.number]
                self.channel.offer(rows(self.sent[-2:]))
            case "watermark":
                self.watermark, self.idle = 10 * time - 1, False
                self.channel.offer(Watermark(self.watermark))
            case "idle":
                self.idle = self.was_idle = True
                self.channel.offer(Watermark(None))
            case _:
                self.ended, self.complete = True, kind == "end"
                self.channel.offer(EndOfData(self.complete))


@settings(deadline=None, max_examples=400)
@given(interleavings())
def test_watermarks_are_the_minimum_go_forward_only_and_never_overtake_rows(case: tuple[int, list[Move]]) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        senders = [Sender(inbox, number) for number in range(case[0])]
        arrived: list[int] = []
        told: list[int | None] = [START_OF_TIME]
        ends: list[EndOfData] = []

        def receive(most_rows: int) -> Batches | Signal | None:
            match taken := inbox.take(most_rows):
                case tuple():
                    highest = max(at for at in told if at is not None)
                    numbers = [number for batch in taken for number in batch.column(0).to_pylist()]
                    assert all(number > highest or senders[number % 10].was_idle for number in numbers)
                    arrived.extend(numbers)
                case Watermark(at):
                    assert at != told[-1]
                    told.append(at)
                case EndOfData():
                    ends.append(taken)
            return taken

        for time, move in enumerate(case[1]):
            if isinstance(move, int):
                receive(move)
            else:
                senders[move[1]].send(move[0], time)
        while receive(5) is not None:
            pass
        assert sorted(arrived) == sorted(number for sender in senders for number in sender.sent)
        for sender in senders:
            assert [number for number in arrived if number % 10 == sender.number] == sender.sent
        reached = [at for at in told if at is not None]
        assert reached == sorted(reached)
        counting = [one.watermark for one in senders if not one.idle and not (one.ended and one.complete)]
        if all(sender.ended for sender in senders):
            assert ends == [EndOfData(all(sender.complete for sender in senders))]
        if counting:
            assert told[-1] is not None and told[-1] >= min(counting)
            assert told[-1] == min(counting) or any(one.was_idle or one.ended for one in senders)

    asyncio.run(scenario())


def drained(inbox: Inbox) -> list[object]:
    found: list[object] = []
    while (taken := inbox.take(100)) is not None and not isinstance(taken, EndOfData):
        found.append(taken if not isinstance(taken, tuple) else [n for one in taken for n in one.column(0).to_pylist()])
    return found


async def test_a_watermark_comes_after_the_rows_ahead_of_it_in_any_channel() -> None:
    inbox = Inbox()
    first, second = inbox.channel(10), inbox.channel(10)
    first.offer(rows([1]))
    first.offer(Watermark(5))
    assert drained(inbox) == [[1]]
    for item in (rows([2]), Watermark(7), rows([8])):
        second.offer(item)
    assert drained(inbox) == [[2, 8], Watermark(5)]
    first.offer(Watermark(9))
    assert drained(inbox) == [Watermark(7)]


async def test_idle_and_ended_channels_hold_nobody_back() -> None:
    inbox = Inbox()
    busy, idle, ended = (inbox.channel(10) for _ in range(3))
    busy.offer(Watermark(5))
    idle.offer(Watermark(None))
    assert drained(inbox) == []
    ended.offer(EndOfData())
    assert drained(inbox) == [Watermark(5)]
    busy.offer(Watermark(None))
    assert drained(inbox) == [Watermark(None)]
    idle.offer(Watermark(3))
    assert drained(inbox) == [Watermark(5)]  # it counts again, and the minimum does not go back
    busy.offer(Watermark(9))
    assert drained(inbox) == []


async def test_a_channel_that_was_cut_short_holds_the_others_where_it_was() -> None:
    inbox = Inbox()
    going, cut = inbox.channel(10), inbox.channel(10)
    cut.offer(Watermark(5))
    cut.offer(EndOfData(complete=False))
    going.offer(Watermark(9))
    going.offer(EndOfData())
    assert inbox.take(10) == Watermark(5)
    assert inbox.take(10) == EndOfData(complete=False)


async def test_watermarks_without_rows_between_them_do_not_pile_up() -> None:
    inbox = Inbox()
    channel = inbox.channel(10)
    for at in range(1000):
        channel.offer(Watermark(at))
    assert len(channel) == 1
    channel.offer(Watermark(None))  # what was reached before is still told
    assert drained(inbox) == [Watermark(999), Watermark(None)]


Sent = tuple[int, int | Barrier]
"""A channel, and a row or a barrier for it."""


@st.composite
def separated(draw: st.DrawFn) -> tuple[int, list[Sent | None]]:
    """Rows and barriers of 1, 2, … in some channels, in any order between them; None takes something out."""
    channels = draw(st.integers(1, 4))
    epochs = draw(st.integers(1, 3))
    streams = []
    for channel in range(channels):
        stream: list[Sent] = []
        for epoch in range(1, epochs + 2):
            stream += [(channel, epoch)] * draw(st.integers(0, 3))
            if epoch <= epochs:
                stream.append((channel, Barrier(epoch)))
        streams.append(stream)
    order: list[Sent | None] = []
    while any(streams):
        chosen = draw(st.sampled_from([stream for stream in streams if stream]))
        order.append(chosen.pop(0))
        order += [None] * draw(st.integers(0, 2))
    return channels, order


@settings(deadline=None, max_examples=300)
@given(separated(), st.integers(1, 5))
def test_a_barrier_parts_the_rows_of_all_channels(case: tuple[int, list[Sent | None]], most_rows: int) -> None:
    async def scenario() -> None:
        inbox = Inbox()
        channels = [inbox.channel(1000) for _ in range(case[0])]
        taken: list[int | Barrier] = []

        def receive() -> bool:
            match found := inbox.take(most_rows):
                case tuple():
                    taken.extend(number for batch in found for number in batch.column(0).to_pylist())
                case Barrier():
                    taken.append(found)
                case _:
                    return False
            return True

        for move in case[1]:
            match move:
                case None:
                    receive()
                case (channel, Barrier() as barrier):
                    channels[channel].offer(barrier)
                case (channel, row):
                    channels[channel].offer(rows([row]))
        while receive():
            pass
        sent = [move[1] for move in case[1] if move is not None]
        assert Counter(one for one in taken if isinstance(one, int)) == Counter(
            one for one in sent if isinstance(one, int)
        )
        epoch = 1
        for one in taken:
            if isinstance(one, Barrier):
                assert one.epoch == epoch
                epoch += 1
            else:
                assert one == epoch
        assert epoch - 1 == max((one.epoch for one in sent if isinstance(one, Barrier)), default=0)

    asyncio.run(scenario())


async def test_a_barrier_that_a_source_never_heard_of_is_given_up_for_the_next() -> None:
    inbox = Inbox()
    one, other = inbox.channel(10), inbox.channel(10)
    one.offer(Barrier(1))
    one.offer(rows([1]))
    one.offer(Barrier(2))
    assert inbox.take(5) is None
    other.offer(Barrier(2))
    (batch,) = cast("Batches", inbox.take(5))
    assert batch.column(0).to_pylist() == [1]
    assert inbox.take(5) == Barrier(2)


async def test_a_stream_that_is_idle_and_comes_back_again_and_again_does_not_pile_up() -> None:
    inbox = Inbox()
    channel = inbox.channel(10)
    for at in range(100):
        channel.offer(Watermark(at))
        channel.offer(Watermark(None))
    assert len(channel) == 2
    assert drained(inbox)[-1] == Watermark(None)
