"""Several workers in one process, with real connections between them, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from penstock.common.config import load_config
from penstock.common.ids import WorkerId
from penstock.common.rpc import RpcSettings
from penstock.worker.assignment import Assignment, Peer
from penstock.worker.engine import Execution
from penstock.worker.metrics import SubtaskMetrics
from penstock.worker.network.network import Network
from penstock.worker.network.settings import NetworkSettings
from penstock.worker.reports import Reporter
from penstock.worker.subtask import Surroundings
from penstock.worker.wiring import TaskId

RPC: Final = load_config(environment={}).section("rpc", RpcSettings)
LOOPBACK: Final = "127.0.0.1"


async def open_networks(
    workers: int, *, settings: NetworkSettings | None = None, rpc: RpcSettings = RPC
) -> list[Network]:
    """The networks of so many workers, in the order of their ids."""
    ids = sorted(WorkerId.new() for _ in range(workers))
    settings = settings or NetworkSettings(connect_seconds=10.0)
    return [await Network.open(id, host=LOOPBACK, port=0, rpc=rpc, settings=settings) for id in ids]


def shares(whole: Assignment, networks: Sequence[Network]) -> list[Assignment]:
    """What each worker gets: slice i of the job goes to worker i, around and around."""

    def place(task: TaskId) -> int:
        return task.subtask % len(networks)

    peers = [Peer(network.worker, f"{LOOPBACK}:{network.port}") for network in networks]
    return [
        replace(
            whole,
            tasks=tuple(task for task in whole.tasks if place(task) == number),
            elsewhere={task: peers[place(task)] for task in whole.tasks if place(task) != number},
        )
        for number in range(len(networks))
    ]


class Executions:
    """A job on several workers, to be used as if it were on one."""

    def __init__(self, assignment: Assignment, parts: Sequence[Execution]) -> None:
        self.assignment = assignment
        self.parts = tuple(parts)

    @property
    def metrics(self) -> tuple[SubtaskMetrics, ...]:
        return tuple(metrics for part in self.parts for metrics in part.metrics)

    async def run(self) -> None:
        """Runs all to their ends."""
        await asyncio.gather(*(part.run() for part in self.parts))

    def stop(self) -> None:
        for part in self.parts:
            part.stop()

    async def checkpoint(self, epoch: int, *, last: bool) -> None:
        for part in self.parts:
            await part.checkpoint(epoch, last=last)

    async def commit(self, task: TaskId, epoch: int, data: bytes) -> None:
        (part,) = (part for part in self.parts if task in part.assignment.tasks)
        await part.commit(task, epoch, data)


@asynccontextmanager
async def on_workers(
    assignment: Assignment,
    surroundings: Surroundings,
    reporter: Reporter | Callable[[int], Reporter],
    *,
    workers: int = 3,
    settings: NetworkSettings | None = None,
    rpc: RpcSettings = RPC,
) -> AsyncIterator[Executions]:
    """A job on so many workers, which share an engine and connectors and send each other rows over loopback."""
    networks = await open_networks(workers, settings=settings, rpc=rpc)
    try:
        parts = [
            Execution(
                share, replace(surroundings, network=network), reporter(number) if callable(reporter) else reporter
            )
            for number, (share, network) in enumerate(zip(shares(assignment, networks), networks, strict=True))
            if share.tasks
        ]
        yield Executions(assignment, parts)
    finally:
        for network in networks:
            await network.close()


async def run_on_workers(
    assignment: Assignment, surroundings: Surroundings, reporter: Reporter, *, workers: int = 3
) -> Executions:
    """Runs a job on so many workers to its end."""
    async with on_workers(assignment, surroundings, reporter, workers=workers) as executions:
        await executions.run()
    return executions
