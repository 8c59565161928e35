"""Workers as child processes; the child is a script that waits."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from datetime import timedelta
from pathlib import Path

import psutil

from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.testing import eventually
from penstock.controller.records import TaskOwner
from penstock.controller.registry import Registry
from penstock.controller.schedulers.process import process_scheduler

OWNER = TaskOwner(JobId.new(), Generation(1))
HOUR = timedelta(hours=1)

PATIENT = """
import os, pathlib, sys
folder = pathlib.Path({folder!r})
controller = os.environ["PENSTOCK__WORKER__CONTROLLER"]
(folder / os.environ["PENSTOCK__WORKER__ID"]).write_text(f"{{os.getpid()}} {{controller}}")
{more}
sys.stdin.read()
"""


class Children:
    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self.lost: list[tuple[WorkerId, str]] = []
        registry = Registry(heartbeat_timeout=HOUR, node_timeout=HOUR, clock=lambda: 0)
        registry.on_worker_lost(lambda worker, owner, reason: self.lost.append((worker, reason)))
        script = PATIENT.format(folder=str(folder), more=more)
        self.scheduler = process_scheduler(
            command=shlex.join([sys.executable, "-c", script]),
            controller=lambda: "127.0.0.1:5",
            worker_slots=2,
            stop_timeout=timedelta(milliseconds=300),
            registry=registry,
        )

    async def start(self, slices: int) -> list[int]:
        grants = await self.scheduler.start_workers(OWNER, slices, lambda shortage: None)
        paths = [self.folder / grant.worker_id for grant in grants]

        async def are_up() -> bool:
            return all(path.exists() and path.read_text() for path in paths)

        await eventually(are_up)
        texts = [path.read_text().split() for path in paths]
        assert {controller for _, controller in texts} == {"127.0.0.1:5"}
        return [int(pid) for pid, _ in texts]


async def test_workers_are_started_with_their_id_and_stopped(tmp_path: Path) -> None:
    children = Children(tmp_path)
    pids = await children.start(3)
    assert len(pids) == 2
    await children.scheduler.stop_workers(OWNER, force=False)
    assert not any(map(psutil.pid_exists, pids))
    assert children.lost == []


async def test_a_worker_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    children = Children(tmp_path, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    (pid,) = await children.start(1)
    await children.scheduler.stop_workers(OWNER, force=False)
    assert not psutil.pid_exists(pid)


async def test_a_worker_that_dies_is_told_of(tmp_path: Path) -> None:
    children = Children(tmp_path)
    (pid,) = await children.start(1)
    os.kill(pid, signal.SIGKILL)

    async def is_told() -> bool:
        return len(children.lost) == 1

    await eventually(is_told)
    await children.scheduler.close()


async def test_closing_ends_every_child(tmp_path: Path) -> None:
    children = Children(tmp_path)
    pids = await children.start(4)
    await children.scheduler.close()
    assert not any(map(psutil.pid_exists, pids))
