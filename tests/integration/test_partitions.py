"""Machines that cannot reach each other: who is cut off is fenced, jobs go on, and each row is committed once.

Namespaces stand for the machines; where they cannot be made, all of this is skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from harness import Process
from machines import TOKEN, DistributedDeployment, Machines, why_there_are_none
from reference.cases import FULL

from penstock.common.config import load_config
from penstock.common.errors import FencedError
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect
from penstock.common.testing import eventually

pytestmark = [pytest.mark.timeout(200), pytest.mark.takes_turns]

ROWS: Final = 5000
RPC: Final = load_config(environment={"PENSTOCK__RPC__TOKEN": TOKEN}).section("rpc", RpcSettings)
SETTINGS: Final = {
    "RPC__CALL_TIMEOUT": "2s",
    "CONTROLLER__HEARTBEAT_TIMEOUT": "3s",
    "CONTROLLER__NODE_TIMEOUT": "4s",
    "WORKER__DATA_CONNECT_TIMEOUT": "4s",
    "WORKER__DATA_SILENCE_TIMEOUT": "4s",
}
SQL: Final = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '500', message_count = '{rows}');
CREATE TABLE sink (counter BIGINT, n BIGINT) WITH (connector = 'filesystem', type = 'sink', path = '{folder}');
INSERT INTO sink SELECT counter, count(*) FROM impulse GROUP BY 1, tumble(INTERVAL '100 milliseconds');
"""
PARALLELISM: Final = 4
ATTEMPTS: Final = 2 if FULL else 1
"""How often a job starts again while its workers cannot reach each other."""


@pytest.fixture(scope="module")
async def spread() -> AsyncIterator[DistributedDeployment]:
    """Two nodes, of which each has slots for a whole job."""
    if (reason := why_there_are_none()) is not None:
        pytest.skip(reason)
    with Machines.made(2) as machines:
        async with DistributedDeployment.over(machines, slots=PARALLELISM, settings=SETTINGS) as deployment:
            yield deployment


def committed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("part-*")) for line in file.read_text().splitlines()]


def check(folder: Path) -> None:
    """Every row is there, once."""
    rows = committed(folder)
    assert Counter(row["counter"] for row in rows) == Counter(range(ROWS))
    assert {row["n"] for row in rows} == {1}


async def until_committed(folder: Path) -> None:
    before = len(committed(folder))

    async def grown() -> bool:
        return len(committed(folder)) > before

    await eventually(grown, 60)


@asynccontextmanager
async def running(spread: DistributedDeployment, folder: Path) -> AsyncIterator[dict[str, Any]]:
    """A job on both nodes that has committed something."""

    async def are_free() -> bool:
        nodes = (await spread.client.get("/nodes")).json()["data"]
        return [node["slots_free"] for node in nodes] == [PARALLELISM] * 2

    await eventually(are_free, 60)
    async with spread.pipeline(SQL.format(folder=folder, rows=ROWS), parallelism=PARALLELISM) as pipeline:
        await until_committed(folder)
        job = await spread.job(pipeline["job_id"])
        assert len({worker["node_id"] for worker in job["workers"]}) == 2
        yield job


async def until_moved(spread: DistributedDeployment, job: dict[str, Any]) -> dict[str, Any]:
    """The job, once a later generation of it runs, and has said where."""
    found: dict[str, Any] = {}

    async def moved() -> bool:
        nonlocal found
        found = await spread.job(job["id"])
        return bool(found["state"] == "running" and found["generation"] > job["generation"] and found["workers"])

    await eventually(moved, 60)
    return found


async def until_logged(process: Process, *events: str, since: int = 0, **fields: str) -> dict[str, Any]:
    """The first line with one of some events and some fields, once there is one."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = [
            line
            for line in process.lines()[since:]
            if line["event"] in events and all(line.get(name) == value for name, value in fields.items())
        ]
        return bool(found)

    await eventually(is_there, 30)
    return found[0]


@asynccontextmanager
async def commits_held_back(
    spread: DistributedDeployment, job_id: str
) -> AsyncIterator[Callable[[], Coroutine[None, None, None]]]:
    """All tasks have reported a checkpoint, and none is told to commit it, since Postgres takes its time to write that;
    until what is given is called."""
    holder = await asyncpg.connect(spread.postgres.url)
    try:
        await holder.execute("SELECT pg_advisory_lock(6)")
        await holder.execute(
            f"""
            CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN PERFORM pg_advisory_xact_lock(6); RETURN NEW; END $$;
            CREATE TRIGGER held BEFORE INSERT ON checkpoints FOR EACH ROW
              WHEN (NEW.job_id = '{job_id}' AND NEW.state = 'committing') EXECUTE FUNCTION hold();
            """
        )

        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

        async def is_held() -> bool:
            return bool(await holder.fetchval(waiting))

        await eventually(is_held, 30)

        async def let_go() -> None:
            await holder.execute("SELECT pg_advisory_unlock(6)")

        yield let_go
        await holder.execute("DROP FUNCTION hold CASCADE")
    finally:
        await holder.close()


async def last_checkpoint(spread: DistributedDeployment, job: dict[str, Any]) -> int:
    connection = await asyncpg.connect(spread.postgres.url)
    try:
        query = "SELECT max(epoch) FROM checkpoints WHERE job_id = $1 AND generation = $2"
        return int(await connection.fetchval(query, job["id"], job["generation"]))
    finally:
        await connection.close()


async def expect_refusal(spread: DistributedDeployment, job: dict[str, Any], worker: str) -> None:
    """What a worker of an earlier generation reports of a checkpoint, and a commit, is refused; a log tells."""
    controller = spread.processes["controller"]
    before = len(controller.lines())
    owner = proto.TaskOwner(job_id=job["id"], generation=job["generation"])
    task = proto.Task(node_id="late", subtask=0)
    epoch = await last_checkpoint(spread, job)
    completed = proto.TaskCheckpointCompletedRequest(worker_id=worker, job=owner, task=task, epoch=epoch)
    done = proto.TaskCommittedRequest(worker_id=worker, job=owner, task=task, epoch=epoch)
    async with connect(spread.controller_addresses, RPC) as channel:
        controllers = ControllerServiceStub(channel)
        with pytest.raises(FencedError):
            async with calling(RPC):
                await controllers.TaskCheckpointCompleted(completed)
        with pytest.raises(FencedError):
            async with calling(RPC):
                await controllers.TaskCommitted(done)
    reason = f"generation {job['generation']} of job {job['id']} is over"
    for method in ("TaskCheckpointCompleted", "TaskCommitted"):
        await until_logged(controller, "call_refused", since=before, method=method, reason=reason)


async def test_worker_cut_off_from_the_controller_alone_is_fenced_with_its_late_commits(
    spread: DistributedDeployment, tmp_path: Path
) -> None:
    machine, node, controller = spread.nodes["node1"], spread.processes["node1"], spread.processes["controller"]
    before, known = len(node.lines()), len(controller.lines())
    async with running(spread, tmp_path) as job:
        cut_off = next(w for w in job["workers"] if w["node_id"] == spread.node_id("node1"))
        async with commits_held_back(spread, job["id"]) as let_go:
            with machine.cut_off(spread.machines.address):
                await let_go()
                # The command to commit arrives, and nobody hears that it was obeyed.
                await until_logged(node, "report_delayed", since=before, report="task_committed")
                moved = await until_moved(spread, job)
                assert {worker["node_id"] for worker in moved["workers"]} == {spread.node_id("node2")}
        await until_logged(node, "worker_fenced", "report_refused", since=before)
        reason = f"generation {job['generation']} of job {job['id']} is over"
        refused = await until_logged(controller, "call_refused", since=known, reason=reason)
        assert machine.address in refused["peer"]
        await until_logged(node, "worker_exited", since=before, worker=cut_off["id"])
        await expect_refusal(spread, job, cut_off["id"])
        finished = await spread.until_state(job["id"], "finished")
        assert finished["generation"] == moved["generation"]
    check(tmp_path)


async def test_workers_cut_off_from_each_other_alone_fail_and_recover(
    spread: DistributedDeployment, tmp_path: Path
) -> None:
    one, other = spread.nodes.values()
    async with running(spread, tmp_path) as job:
        with one.cut_off(other.address), other.cut_off(one.address):

            async def is_retried() -> bool:
                return bool((await spread.job(job["id"]))["generation"] >= job["generation"] + ATTEMPTS)

            await eventually(is_retried, 60)
            events = (await spread.client.get(f"/jobs/{job['id']}/events")).json()["data"]
            assert any("the connection with worker" in (event["message"] or "") for event in events)
            await expect_refusal(spread, job, job["workers"][0]["id"])
        await spread.until_state(job["id"], "finished")
    check(tmp_path)


async def test_bad_line_between_machines_costs_no_job_its_run(spread: DistributedDeployment, tmp_path: Path) -> None:
    machine = spread.nodes["node1"]
    with ExitStack() as stack:
        try:
            stack.enter_context(machine.on_a_bad_line(loss=0.03, rate="4mbit", delay="200ms"))
        except OSError as error:
            pytest.skip(f"lines cannot be made bad here: {error}")
        before = machine.dropped
        async with running(spread, tmp_path) as job:
            finished = await spread.until_state(job["id"], "finished")
            assert finished["generation"] == job["generation"]
        assert machine.dropped > before
    check(tmp_path)


async def test_job_recovers_from_connections_that_are_reset(spread: DistributedDeployment, tmp_path: Path) -> None:
    one, other = spread.nodes.values()
    async with running(spread, tmp_path) as job:
        if one.reset_connections(other.address) == 0:
            pytest.skip("this system resets no connections for ss -K")
        await until_moved(spread, job)
        await spread.until_state(job["id"], "finished")
    check(tmp_path)


async def test_job_leaves_a_machine_whose_link_is_down(spread: DistributedDeployment, tmp_path: Path) -> None:
    async with running(spread, tmp_path) as job:
        with spread.nodes["node2"].unplugged():
            moved = await until_moved(spread, job)
            assert {worker["node_id"] for worker in moved["workers"]} == {spread.node_id("node1")}
            await spread.until_state(job["id"], "finished")
            check(tmp_path)

    async def is_back() -> bool:
        nodes = (await spread.client.get("/nodes")).json()["data"]
        return len(nodes) == 2

    await eventually(is_back, 30)
