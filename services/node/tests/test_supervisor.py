"""The supervisor with real processes."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from penstock.common.errors import ExternalError, NotFound
from penstock.common.ids import WorkerId
from penstock.common.testing import eventually
from penstock.node.process import WorkerProcess
from penstock.node.slots import NoSlots
from penstock.node.supervisor import StandbyPolicy, Supervisor
from penstock.node.testing import script_command

Supervise = Callable[..., Supervisor]
QUICK = timedelta(milliseconds=300)


@pytest.fixture
async def supervise(tmp_path: Path) -> AsyncIterator[Supervise]:
    made: list[tuple[Supervisor, asyncio.Task[None]]] = []

    def make(
        standby: int = 1, more: str = "", command: str = "", backoff: timedelta = timedelta(milliseconds=50)
    ) -> Supervisor:
        arguments = shlex.split(command or script_command(tmp_path, more))
        inherited = {
            **os.environ,
            "PENSTOCK__WORKER__NODE_ID": "",
            "PENSTOCK__WORKER__CONTROLLER": "",
            "PENSTOCK__WORKER__EXIT_WITH_PARENT": "true",
        }

        async def spawn(worker: WorkerId) -> WorkerProcess:
            return await WorkerProcess.start(worker, arguments, {**inherited, "PENSTOCK__WORKER__ID": worker})

        supervisor = Supervisor(
            spawn,
            slots=4,
            standby=StandbyPolicy(standby, backoff, timedelta(seconds=60)),
            stop_timeout=QUICK,
            clock=time.monotonic,
        )
        made.append((supervisor, asyncio.create_task(supervisor.keep_standby())))
        return supervisor

    yield make
    for supervisor, task in made:
        task.cancel()
        await supervisor.close()
        assert not any(psutil.pid_exists(each.pid) for each in supervisor.workers)


async def count(supervisor: Supervisor, workers: int) -> None:
    async def holds() -> bool:
        return len(supervisor.workers) == workers

    await eventually(holds)


def pid_of(supervisor: Supervisor, worker: WorkerId) -> int:
    return next(each.pid for each in supervisor.workers if each.worker_id == worker)


async def test_a_standby_is_given_out_and_followed_by_another(supervise: Supervise) -> None:
    supervisor = supervise()
    await count(supervisor, 1)
    (standby,) = supervisor.workers
    assert (standby.owner, standby.slots) == ("", 0)
    assert await supervisor.start_worker("job/1", 3) == standby.worker_id
    await count(supervisor, 2)
    given = next(each for each in supervisor.workers if each.owner)
    assert (given.worker_id, given.owner, given.slots, given.pid) == (standby.worker_id, "job/1", 3, standby.pid)
    assert supervisor.slots.used == 3


async def test_without_a_standby_a_worker_is_started(supervise: Supervise) -> None:
    supervisor = supervise(standby=0)
    worker = await supervisor.start_worker("job/1", 1)
    assert [each.worker_id for each in supervisor.workers] == [worker]


async def test_slots_that_are_not_there_are_refused_and_nothing_is_started(supervise: Supervise) -> None:
    supervisor = supervise(standby=0)
    await supervisor.start_worker("job/1", 3)
    with pytest.raises(NoSlots):
        await supervisor.start_worker("job/2", 2)
    assert len(supervisor.workers) == 1


async def test_a_worker_that_dies_is_reaped_and_its_slots_are_free(supervise: Supervise) -> None:
    supervisor = supervise(standby=0)
    worker = await supervisor.start_worker("job/1", 2)
    await supervisor.changed()
    os.kill(pid_of(supervisor, worker), signal.SIGKILL)
    await count(supervisor, 0)
    await asyncio.wait_for(supervisor.changed(), 5)
    assert supervisor.alive == (0, ())


async def test_a_killed_worker_has_ended_when_the_call_returns(supervise: Supervise) -> None:
    supervisor = supervise(standby=0, more="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    worker = await supervisor.start_worker("job/1", 1)
    pid = pid_of(supervisor, worker)
    await supervisor.stop_worker(worker, force=True)
    assert not psutil.pid_exists(pid) and supervisor.slots.used == 0
    with pytest.raises(NotFound):
        await supervisor.stop_worker(worker, force=True)


async def test_a_worker_that_does_not_end_when_asked_has_no_slots_and_is_killed(
    supervise: Supervise, tmp_path: Path
) -> None:
    supervisor = supervise(standby=0, more="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    worker = await supervisor.start_worker("job/1", 1)

    async def is_up() -> bool:
        return await asyncio.to_thread((tmp_path / worker).exists)

    await eventually(is_up)
    await supervisor.stop_worker(worker, force=False)
    assert len(supervisor.workers) == 1 and supervisor.slots.used == 0
    await count(supervisor, 0)


async def test_what_a_worker_started_does_not_outlive_it(supervise: Supervise, tmp_path: Path) -> None:
    more = f"""
import subprocess
child = subprocess.Popen(["sleep", "600"])
(pathlib.Path({str(tmp_path)!r}) / "child").write_text(str(child.pid))
sys.exit(3)
"""
    supervisor = supervise(standby=0, more=more)
    await supervisor.start_worker("job/1", 1)
    await count(supervisor, 0)
    child = int(await asyncio.to_thread((tmp_path / "child").read_text))

    async def is_gone() -> bool:
        return not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE

    await eventually(is_gone)


async def test_a_standby_that_crashes_is_told_of_with_its_last_words_and_retried_ever_later(
    supervise: Supervise,
) -> None:
    with capture_logs() as logs:
        supervise(more="sys.exit('no Java here')")

        def crashes() -> list[object]:
            return [line["retry_ms"] for line in logs if line["event"] == "standby_failed"]

        async def has_crashed_thrice() -> bool:
            return len(crashes()) >= 3

        await eventually(has_crashed_thrice, 10)
        assert crashes()[:3] == [50, 100, 200]
        first = next(line for line in logs if line["event"] == "standby_failed")
    assert first["stderr"] == ("worker is up", "no Java here")
    assert first["reason"] == "it ended with code 1"


async def test_a_command_that_cannot_be_run_is_told_of(supervise: Supervise) -> None:
    with capture_logs() as logs:
        supervisor = supervise(command="/nonexistent/worker", backoff=timedelta(hours=1))
        with pytest.raises(ExternalError, match="could not be started"):
            await supervisor.start_worker("job/1", 1)
        assert supervisor.slots.used == 0

        async def is_told() -> bool:
            return any(line["event"] == "standby_failed" for line in logs)

        await eventually(is_told)
    assert len([line for line in logs if line["event"] == "standby_failed"]) == 1


async def test_what_workers_log_goes_on_to_stderr(supervise: Supervise, capfd: pytest.CaptureFixture[str]) -> None:
    supervisor = supervise(standby=0, more="print('half a', end=' ', file=sys.stderr); print('line', file=sys.stderr)")
    await supervisor.start_worker("job/1", 1)
    seen = ""

    async def is_passed_on() -> bool:
        nonlocal seen
        seen += capfd.readouterr().err
        return "worker is up\n" in seen and "half a line\n" in seen

    await eventually(is_passed_on)
