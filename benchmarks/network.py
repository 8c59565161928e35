"""How fast rows go from one worker to another: a shuffle's channels between two processes, and a bare socket.

Both move the same Arrow batches in one direction over loopback: those that a batch of 32,768 rows of numbers and text
becomes for four subtasks. The bare socket does the least that can be done: it sends bytes that were encoded once, each
message behind its length, and reads each into memory of its own, in blocking calls of two processes. The channels, four
over one connection, do what a shuffle does: each batch is encoded, has credit (65,536 rows for each channel), and is
given out of an inbox. The two take turns; medians are compared.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

import numpy as np
import pyarrow as pa
from local_job import run
from report import options, show

from penstock.common.config import load_config
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.rpc import RpcSettings
from penstock.worker.channels import Inbox
from penstock.worker.network.exchange import Exchange
from penstock.worker.network.frames import Route
from penstock.worker.network.network import Network
from penstock.worker.settings import WorkerSettings
from penstock.worker.signals import EndOfData

CHANNELS: Final = 4
ROWS: Final = 32_768 // CHANNELS
CHANNEL_ROWS: Final = 65_536
ROUTES: Final = tuple(Route(target=number) for number in range(CHANNELS))
JOB: Final = JobId.new()
SENDER, RECEIVER = sorted(WorkerId.new() for _ in range(2))
LENGTH: Final = struct.Struct("<Q")
COLUMNS: Final = {"way": "", "MB": ".0f", "seconds": ".3f", "MB_s": ".0f", "cpu_s": ".2f"}


def batch() -> pa.RecordBatch:
    """Keys, amounts, times and short texts: 36 bytes a row or so."""
    numbers = np.arange(ROWS)
    return pa.record_batch(
        {
            "k": numbers % 1000,
            "v": numbers * 0.5,
            "_timestamp": pa.array(numbers).cast(pa.timestamp("us")),
            "name": [f"name-{number % 5000}" for number in range(ROWS)],
        }
    )


async def opened(worker: WorkerId) -> Network:
    config = load_config(environment={})
    settings = config.section("worker", WorkerSettings).network
    return await Network.open(
        worker, host="127.0.0.1", port=0, rpc=config.section("rpc", RpcSettings), settings=settings
    )


async def receive(pipe: Pipe, batches: int) -> None:
    """Takes all rows of each round out of an inbox."""
    network = await opened(RECEIVER)
    pipe.send(network.port)
    exchange = Exchange(network, JOB, Generation(1), {SENDER: ""})
    inbox = Inbox()
    for route in ROUTES:
        exchange.receive(route, SENDER, inbox, CHANNEL_ROWS)
    running = asyncio.create_task(exchange.run())
    expected, taken = batches * ROWS, 0
    while not isinstance(item := inbox.take(CHANNELS * ROWS), EndOfData) and not running.done():
        if item is None:
            await inbox.wait()
        elif isinstance(item, tuple):
            taken += sum(one.num_rows for one in item)
            if taken == expected:
                taken = 0
                pipe.send(time.process_time())
    await exchange.finish()
    running.cancel()
    await network.close()


def receiving(pipe: Pipe, batches: int) -> None:
    run(receive(pipe, batches))


def receiving_bare(pipe: Pipe, batches: int) -> None:
    """Reads messages into memory of their own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        connection, _ = server.accept()
    header = memoryview(bytearray(LENGTH.size))
    with connection:
        while True:
            for _ in range(batches):
                if not connection.recv_into(header, len(header), socket.MSG_WAITALL):
                    return
                message = memoryview(pa.allocate_buffer(LENGTH.unpack(header)[0]))
                connection.recv_into(message, len(message), socket.MSG_WAITALL)
            pipe.send(time.process_time())


class Other:
    """The process at the other end."""

    def __init__(self, target: Any, batches: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, batches), daemon=True)
        self._process.start()
        self.port: int = self._pipe.recv()
        self._cpu_seconds = 0.0

    def done(self) -> float:
        """Waits for the end of a round; returns the CPU seconds that it took there."""
        before, self._cpu_seconds = self._cpu_seconds, self._pipe.recv()
        return self._cpu_seconds - before

    def close(self) -> None:
        self._process.terminate()  # the other fork may hold its connection open
        self._process.join()


class Bare:
    """A socket and nothing else."""

    name = "bare socket"

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._other = Other(receiving_bare, batches)
        self._message = batch().serialize()
        self._connection = socket.create_connection(("127.0.0.1", self._other.port))

    async def round(self) -> float:
        for _ in range(self._batches):
            self._connection.sendall(LENGTH.pack(self._message.size))
            self._connection.sendall(self._message)
        return self._other.done()

    async def close(self) -> None:
        self._connection.close()
        self._other.close()


class Channels:
    """What a shuffle uses."""

    name = "channels"

    def __init__(self, batches: int, network: Network) -> None:
        self._batches = batches
        self._network = network
        self._other = Other(receiving, batches)
        self._batch = batch()
        self._exchange = Exchange(network, JOB, Generation(1), {RECEIVER: f"127.0.0.1:{self._other.port}"})
        self._senders = [self._exchange.sender(route, RECEIVER) for route in ROUTES]
        self._running = asyncio.create_task(self._run())

    async def round(self) -> float:
        for number in range(self._batches):
            await self._senders[number % CHANNELS].send(self._batch)
        return await asyncio.to_thread(self._other.done)

    async def close(self) -> None:
        for sender in self._senders:
            await sender.send(EndOfData())
        await self._exchange.finish()
        self._running.cancel()
        await self._network.close()
        self._other.close()

    async def _run(self) -> None:
        try:
            await self._exchange.run()
        except Exception as error:
            sys.exit(f"the connection failed: {error}")


async def measure(rounds: int, batches: int) -> list[dict[str, Any]]:
    megabytes = batch().nbytes * batches / 1e6
    bare = Bare(batches)
    ways: list[Bare | Channels] = [bare, Channels(batches, await opened(SENDER))]
    found: list[dict[str, Any]] = []
    for number in range(rounds + 1):  # the first warms
        for way in ways:
            started, cpu = time.perf_counter(), time.process_time()
            there = await way.round()
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu + there
            if number:
                row = {"way": way.name, "MB": megabytes, "seconds": seconds, "MB_s": megabytes / seconds, "cpu_s": cpu}
                found.append(row)
    for way in ways:
        await way.close()
    return found


async def main() -> None:
    arguments = options(__doc__)
    rounds, batches = (3, 1200) if arguments.quick else (9, 4000)
    rows = await measure(rounds, batches)
    rates = {
        way: statistics.median(row["MB_s"] for row in rows if row["way"] == way) for way in ("bare socket", "channels")
    }
    result = {
        "benchmark": "network",
        "rows": rows,
        "bare_MB_s": rates["bare socket"],
        "channels_MB_s": rates["channels"],
        "ratio": rates["channels"] / rates["bare socket"],
        "load": os.getloadavg()[0],
    }
    show(result, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
