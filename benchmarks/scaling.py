"""How much more two workers do than one: a keyed aggregate over a shuffle, each worker and its JVM on one core.

Workers are processes, each with an engine, pinned to a core with all that they start. One worker runs the query at
parallelism 1; two run it at parallelism 2, and send each other the half of the partial results that is the other's.
Both aggregate the same events, which each worker generates its share of. The query is compiled once; seconds are from
the moment at which the workers are told to begin to the end of the last. Needs two cores with nothing else to do.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

import structlog
from local_job import compiled, run
from report import options, show

from penstock.common.config import load_config
from penstock.common.ids import Generation, JobId, PipelineId, WorkerId
from penstock.common.program import Program
from penstock.common.program_proto import program_from_proto, program_to_proto
from penstock.common.proto.program_pb2 import Program as ProgramMessage
from penstock.common.rpc import RpcSettings
from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine
from penstock.spark.testing import spark_settings
from penstock.worker.assignment import Assignment, Job, Peer
from penstock.worker.engine import Execution
from penstock.worker.network.network import Network
from penstock.worker.settings import WorkerSettings
from penstock.worker.subtask import Surroundings
from penstock.worker.testing import MemoryReporter, NoOutput
from penstock.worker.wiring import TaskId

WARMING: Final = 4
COLUMNS: Final = {"workers": "d", "events": ",d", "seconds": ".2f", "Mevents_s": ".2f"}
SQL: Final = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '100000000', message_count = '{events}');
CREATE TABLE results (k BIGINT, n BIGINT, s BIGINT) WITH (connector = 'blackhole');
INSERT INTO results SELECT counter % 10007, count(*), sum(counter) FROM impulse
GROUP BY 1, tumble(INTERVAL '10 milliseconds');
"""


async def work(pipe: Pipe, core: int) -> None:
    """Runs its share of each job that it is told."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    os.sched_setaffinity(0, {core})
    config = load_config(environment={})
    settings = config.section("worker", WorkerSettings)
    async with await Engine.start(spark_settings(master="local[1]")) as engine:
        network = await Network.open(
            WorkerId.new(), host="127.0.0.1", port=0, rpc=config.section("rpc", RpcSettings), settings=settings.network
        )
        pipe.send(Peer(network.worker, f"127.0.0.1:{network.port}"))
        output = NoOutput()
        surroundings = Surroundings(
            engine, CONNECTORS, os.environ, settings.pace, lambda _table, _task: output, network=network
        )
        while (told := await asyncio.to_thread(pipe.recv)) is not None:
            program, job, placed = told
            tasks = tuple(task for task, peer in placed.items() if peer.worker == network.worker)
            elsewhere = {task: peer for task, peer in placed.items() if peer.worker != network.worker}
            reporter = MemoryReporter()
            graph = program_from_proto(ProgramMessage.FromString(program))
            await Execution(Assignment(job, graph, tasks, None, elsewhere), surroundings, reporter).run()
            pipe.send([str(error) for _, error in reporter.failed])
        await network.close()


def working(pipe: Pipe, core: int) -> None:
    run(work(pipe, core))


class Worker:
    """A process with an engine on one core."""

    def __init__(self, core: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=working, args=(theirs, core))
        self.process.start()
        self.peer: Peer = self.pipe.recv()

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()


def place(program: Program, workers: Sequence[Worker]) -> Mapping[TaskId, Peer]:
    """Slice i to worker i."""
    return {
        TaskId(node.key, subtask): workers[subtask % len(workers)].peer
        for node in program.nodes
        for subtask in range(node.parallelism)
    }


def seconds_of(program: Program, workers: Sequence[Worker]) -> float:
    """One run of the job on these workers."""
    at = program.at_parallelism(len(workers))
    job = Job(JobId.new(), PipelineId.new(), Generation(1))
    told = (program_to_proto(at).SerializeToString(), job, place(at, workers))
    started = time.perf_counter()
    for worker in workers:
        worker.pipe.send(told)
    for worker in workers:
        if failed := worker.pipe.recv():
            sys.exit(f"a worker failed: {failed[0]}")
    return time.perf_counter() - started


async def main() -> None:
    arguments = options(__doc__)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("two cores are needed")
    events, rounds = (4_000_000, 2) if arguments.quick else (60_000_000, 6)
    async with await Engine.start(spark_settings()) as engine:
        program = await compiled(engine, SQL.format(events=events))
    workers = [Worker(core) for core in cores[:2]]
    rows: list[dict[str, Any]] = []
    for number in range(WARMING + rounds):
        # One worker is each of them in turn, so that both are equally warm when they work together.
        for some in ([workers[number % 2]], workers):
            seconds = seconds_of(program, some)
            if number >= WARMING:
                row = {"workers": len(some), "events": events, "seconds": seconds, "Mevents_s": events / seconds / 1e6}
                rows.append(row)
    for worker in workers:
        worker.close()
    # Round by round: what else the machine does changes from one to the next, and is the same for both within one.
    ratios = [one["seconds"] / two["seconds"] for one, two in zip(rows[::2], rows[1::2], strict=True)]
    times = statistics.median(ratios)
    result = {"benchmark": "scaling", "rows": rows, "times_one_worker": times, "load": os.getloadavg()[0]}
    show(result, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
