"""Rows of completed checkpoints are seen exactly once, whatever ends a process between two steps."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InternalError
from penstock.connectors import durable
from penstock.connectors.base import LINES, Guarantee, StagingSink
from penstock.connectors.errors import FileError
from penstock.connectors.registry import CONNECTORS, connector_named
from penstock.connectors.staging import Commit
from penstock.connectors.testing import table_spec

COLUMNS = pa.schema([("id", pa.int64())])
BOTH = pytest.mark.parametrize("connector", ["single_file", "filesystem"])
STEPS = ("sync", "sync_folder", "move", "remove", "truncate", "copy", "write_at")


def opened(
    connector: str, folder: Path, subtask: int = 0, parallelism: int = 1, job: str = "job_a", **options: str
) -> StagingSink:
    spec = table_spec(
        COLUMNS,
        {"path": str(path_of(connector, folder)), **options},
        subtask=subtask,
        parallelism=parallelism,
        job=job,
        transactional=True,
    )
    sink: Any = connector_named(connector).open_sink(spec)
    return sink  # type: ignore[no-any-return]


def path_of(connector: str, folder: Path) -> Path:
    return folder / ("out.json" if connector == "single_file" else "out")


def rows(ids: Sequence[int]) -> pa.RecordBatch:
    values = [pa.array(ids, pa.int64()), pa.array([0] * len(ids), pa.timestamp("us"))]
    return pa.RecordBatch.from_arrays(values, names=["id", "_timestamp"])


def seen(connector: str, folder: Path) -> list[int]:
    """What readers find, in the order of the epochs."""
    path = path_of(connector, folder)
    files = [path] if connector == "single_file" else sorted(p for p in path.iterdir() if not p.name.startswith("."))
    return [json.loads(line)["id"] for file in files for line in file.read_bytes().splitlines()]


def hidden(connector: str, folder: Path) -> list[str]:
    place = folder if connector == "single_file" else path_of(connector, folder)
    return sorted(path.name for path in place.iterdir() if path.name.startswith("."))


class Crash(Exception):
    """The process ended."""


@dataclass
class Steps:
    """Counts the steps that are taken, and ends the process before or after one of them."""

    crash_at: int | None = None
    moment: Literal["before", "after"] = "before"
    taken: list[str] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    """What another process does at that step, instead of the crash."""
    has_ended: bool = False

    @contextmanager
    def watched(self) -> Iterator[Steps]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable, "_COPY_BYTES", 12)  # less than a line or two, so that a copy has many steps
            for name in STEPS:
                patch.setattr(durable, name, self._step(name, getattr(durable, name)))
            yield self

    def _step(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*arguments: Any) -> Any:
            if self.has_ended:
                raise Crash
            number = len(self.taken)
            self.taken.append(name)
            if number == self.crash_at and self.moment == "before":
                self._end()
            result = step(*arguments)
            if number == self.crash_at:
                self._end()
            return result

        return taken

    def _end(self) -> None:
        if self.meanwhile is None:
            self.has_ended = True
            raise Crash
        meanwhile, self.meanwhile, self.crash_at = self.meanwhile, None, None
        meanwhile()


async def end(sink: StagingSink) -> None:
    """Gives back what the test's own process holds, and leaves all files as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "remove", lambda path: None)
        await sink.close()


@BOTH
async def test_rows_are_seen_when_they_are_committed(tmp_path: Path, connector: str) -> None:
    sink = opened(connector, tmp_path)
    await sink.recover(())
    await sink.write(rows([1, 2]))
    await sink.flush()
    first = await sink.stage(1)
    await sink.write(rows([3]))
    assert seen(connector, tmp_path) == []
    await sink.commit(first)
    await sink.commit(first)
    assert seen(connector, tmp_path) == [1, 2]
    await sink.commit(await sink.stage(2))
    await sink.commit(first)
    assert seen(connector, tmp_path) == [1, 2, 3]
    await sink.write(rows([4]))
    await sink.close()
    assert hidden(connector, tmp_path) == []


@BOTH
async def test_rows_of_a_checkpoint_that_was_given_up_are_committed_with_the_next(
    tmp_path: Path, connector: str
) -> None:
    sink = opened(connector, tmp_path)
    await sink.recover(())
    await sink.write(rows([1]))
    await sink.stage(1)
    await sink.write(rows([2]))
    data = await sink.stage(2)
    await end(sink)
    again = opened(connector, tmp_path)
    await again.recover([data])
    assert seen(connector, tmp_path) == [1, 2]
    assert hidden(connector, tmp_path) == []
    assert Commit.model_validate_json(await again.stage(3)).pieces == ()
    await again.close()


@BOTH
async def test_an_epoch_without_rows_has_no_file_and_keeps_the_place(tmp_path: Path, connector: str) -> None:
    sink = opened(connector, tmp_path)
    await sink.recover(())
    await sink.write(rows([1]))
    await sink.commit(await sink.stage(1))
    await sink.write(rows([]))
    data = await sink.stage(2)
    await sink.commit(data)
    assert hidden(connector, tmp_path) == []
    await sink.close()
    again = opened(connector, tmp_path)
    await again.recover([data])
    await again.write(rows([2]))
    await again.commit(await again.stage(3))
    assert seen(connector, tmp_path) == [1, 2]
    await again.close()


@BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_process_that_ends_at_any_step_leaves_what_recovery_makes_good(
    tmp_path: Path, connector: str, moment: Literal["before", "after"]
) -> None:
    number = 0
    while await _ends_at(tmp_path / f"{number}", connector, Steps(number, moment)):
        number += 1
    assert number > 10


async def _ends_at(folder: Path, connector: str, steps: Steps) -> bool:
    """Whether there is such a step. Rows that were not part of a completed checkpoint come again, as a source's do."""
    os.mkdir(folder)
    path_of("single_file", folder).write_bytes(b"what was there before, and longer than what comes\n" * 10)
    completed: dict[int, bytes] = {}
    crashed = False
    sink = opened(connector, folder)
    try:
        with steps.watched():
            await sink.recover(())
            for epoch in (1, 2, 3):
                await sink.write(rows([epoch * 10, epoch * 10 + 1]))
                completed[epoch] = await sink.stage(epoch)
                await sink.commit(completed[epoch])
    except Crash:
        crashed = True
    await end(sink)
    again = opened(connector, folder)
    last = max(completed, default=0)
    await again.recover([completed[last]] if completed else ())
    expected = [epoch * 10 + index for epoch in range(1, last + 1) for index in (0, 1)]
    assert seen(connector, folder) == expected, steps.taken
    assert hidden(connector, folder) == []
    for epoch in range(last + 1, 4):
        await again.write(rows([epoch * 10, epoch * 10 + 1]))
    await again.commit(await again.stage(10))
    assert seen(connector, folder) == [10, 11, 20, 21, 30, 31]
    await again.close()
    return crashed


@BOTH
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_two_processes_that_commit_at_once_give_the_rows_once(
    tmp_path: Path, connector: str, moment: Literal["before", "after"]
) -> None:
    number = 0
    while True:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        sink, other = opened(connector, folder), opened(connector, folder)
        await sink.recover(())
        await sink.write(rows(range(10)))
        first = await sink.stage(1)
        await sink.write(rows(range(10, 15)))
        second = await sink.stage(2)

        def meanwhile(other: StagingSink = other, second: bytes = second) -> None:
            asyncio.run(other.commit(second))

        steps = Steps(number, moment, meanwhile=meanwhile)
        with steps.watched():
            await sink.commit(first)
        await sink.commit(second)
        assert seen(connector, folder) == list(range(15))
        assert hidden(connector, folder) == []
        await sink.close()
        await other.close()
        if steps.meanwhile is not None:
            break
        number += 1
    assert number > 1


@BOTH
async def test_an_old_process_leaves_what_its_successor_has_written(tmp_path: Path, connector: str) -> None:
    first = opened(connector, tmp_path)
    await first.recover(())
    await first.write(rows([1]))
    data = await first.stage(1)
    await first.commit(data)
    await first.close()
    old, new = opened(connector, tmp_path), opened(connector, tmp_path)
    await new.recover([data])
    await new.write(rows([2]))
    second = await new.stage(2)
    await old.recover([data])
    await new.commit(second)
    await new.write(rows([3]))
    for commits in ([data], []):
        late = replace_opening(opened(connector, tmp_path), 0)
        with pytest.raises(FileError, match="another process writes"):
            await late.recover(commits)
    await new.commit(await new.stage(3))
    assert seen(connector, tmp_path) == [1, 2, 3]
    await new.close()


def replace_opening(sink: StagingSink, time_ns: int) -> StagingSink:
    """The sink as if it had been opened then."""
    inner: Any = sink
    inner._opened_at_ns = inner._target._opened_at_ns = time_ns
    return sink


async def test_a_table_is_replaced_or_added_to(tmp_path: Path) -> None:
    for connector in ("single_file", "filesystem"):
        for number, append in enumerate(("false", "false", "true", "true")):
            sink = opened(connector, tmp_path, job=f"job_{number}", append=append)
            await sink.recover(())
            await sink.write(rows([number]))
            data = await sink.stage(1)
            await sink.commit(data)
            await sink.close()
            again = opened(connector, tmp_path, job=f"job_{number}", append=append)
            await again.recover([data])
            await again.write(rows([number * 10]))
            await again.commit(await again.stage(2))
            await again.close()
        assert sorted(seen(connector, tmp_path)) == [1, 2, 3, 10, 20, 30]


async def test_files_of_a_folder_are_called_by_epoch_and_subtask(tmp_path: Path) -> None:
    sinks = [opened("filesystem", tmp_path, subtask, 2) for subtask in range(2)]
    for subtask, sink in enumerate(sinks):
        await sink.recover(())
        await sink.write(rows([subtask]))
        await sink.commit(await sink.stage(12))
        await sink.close()
    assert sorted(os.listdir(tmp_path / "out")) == ["part-0000012-000.json", "part-0000012-001.json"]
    assert [json.loads((tmp_path / "out" / f"part-0000012-00{n}.json").read_bytes())["id"] for n in (0, 1)] == [0, 1]


@BOTH
async def test_lines_are_staged_as_they_are(tmp_path: Path, connector: str) -> None:
    spec = table_spec(COLUMNS, {"path": str(path_of(connector, tmp_path))}, transactional=True)
    sink: Any = connector_named(connector).open_sink(replace(spec, schema=LINES))
    await sink.recover(())
    lines = [f'{{"id":{number}}}\n' for number in range(100)]
    await sink.write(
        pa.RecordBatch.from_arrays([pa.array(lines), pa.array([0] * 100, pa.timestamp("us"))], schema=LINES)
    )
    await sink.commit(await sink.stage(1))
    assert seen(connector, tmp_path) == list(range(100))
    await sink.close()


@BOTH
async def test_staged_rows_that_are_gone_are_an_error(tmp_path: Path, connector: str) -> None:
    sink = opened(connector, tmp_path)
    await sink.recover(())
    await sink.write(rows([1]))
    data = await sink.stage(1)
    await sink.close()
    os.unlink(Commit.model_validate_json(data).pieces[0].staged)
    with pytest.raises(FileError, match="the rows that were staged for it are gone"):
        await opened(connector, tmp_path).recover([data])


async def test_a_file_that_others_have_cut_is_an_error(tmp_path: Path) -> None:
    sink = opened("single_file", tmp_path)
    await sink.recover(())
    await sink.write(rows([1]))
    first = await sink.stage(1)
    await sink.commit(first)
    await sink.write(rows([2]))
    second = await sink.stage(2)
    (tmp_path / "out.json").write_bytes(b"")
    with pytest.raises(FileError, match=r"out\.json: the file has become shorter"):
        await sink.commit(second)
    with pytest.raises(FileError, match=r"out\.json: .* are gone|has become shorter"):
        await opened("single_file", tmp_path).recover([first])
    await sink.close()


@BOTH
async def test_a_sink_that_could_not_stage_takes_no_more_rows(
    tmp_path: Path, connector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    sink = opened(connector, tmp_path)
    with pytest.raises(InternalError, match="before recovery"):
        await sink.write(rows([1]))
    await sink.recover(())
    await sink.write(rows([1]))
    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync", full)
        with pytest.raises(FileError, match="no space left on device"):
            await sink.stage(1)
    with pytest.raises(InternalError, match="after staging has failed"):
        await sink.stage(2)
    await sink.close()


@BOTH
async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, connector: str) -> None:
    with pytest.raises(FileError) as caught:
        await opened(connector, tmp_path / "missing").recover(())
    assert caught.value.hint == f"the folder {tmp_path / 'missing'} does not exist; create it first"


async def test_what_is_no_regular_file_is_refused() -> None:
    spec = table_spec(COLUMNS, {"path": "/dev/null"}, transactional=True)
    sink: Any = connector_named("single_file").open_sink(spec)
    with pytest.raises(FileError, match="is not a regular file"):
        await sink.recover(())


async def test_two_jobs_do_not_write_over_each_other(tmp_path: Path) -> None:
    sinks = [opened("filesystem", tmp_path, job=job) for job in ("job_a", "job_b")]
    for sink in sinks:
        await sink.recover(())
        await sink.write(rows([1]))
    await sinks[0].commit(await sinks[0].stage(1))
    data = await sinks[1].stage(1)
    with pytest.raises(FileError, match=r"part-0000001-000\.json: the file is there already"):
        await sinks[1].commit(data)
    for sink in sinks:
        await sink.close()


@BOTH
async def test_a_table_that_has_another_path_now_begins_there(tmp_path: Path, connector: str) -> None:
    (tmp_path / "new").mkdir()
    sink = opened(connector, tmp_path)
    await sink.recover(())
    await sink.write(rows([1]))
    data = await sink.stage(1)
    await end(sink)
    again = opened(connector, tmp_path / "new")
    await again.recover([data])
    await again.write(rows([2]))
    await again.commit(await again.stage(2))
    assert (seen(connector, tmp_path), seen(connector, tmp_path / "new")) == ([1], [2])
    await again.close()


async def test_rows_in_a_folder_are_written_directly_without_checkpoints(tmp_path: Path) -> None:
    for parallelism in (3, 2):
        for subtask in range(parallelism):
            spec = table_spec(COLUMNS, {"path": str(tmp_path / "out")}, subtask=subtask, parallelism=parallelism)
            sink = connector_named("filesystem").open_sink(spec)
            await sink.write(rows([subtask]))
            await sink.flush()
            await sink.close()
        assert sorted(os.listdir(tmp_path / "out")) == [f"part-{number:03}.json" for number in range(parallelism)]
        assert seen("filesystem", tmp_path) == list(range(parallelism))


def test_a_sink_that_stages_guarantees_that_rows_are_seen_exactly_once() -> None:
    guarantees = {name: c.sink.guarantee for name, c in CONNECTORS.items() if c.sink is not None}
    exactly_once = {name for name, guarantee in guarantees.items() if guarantee is Guarantee.EXACTLY_ONCE}
    assert exactly_once == {"filesystem", "single_file"}
    assert guarantees["stdout"] == "at least once"


@dataclass(frozen=True)
class Write:
    """So many rows to a subtask."""

    count: int
    subtask: int


@dataclass(frozen=True)
class Checkpoint:
    """All subtasks stage; a checkpoint that is completed is committed so many times by each."""

    completes: bool
    commits: int


@dataclass(frozen=True)
class Restart:
    """The process ends, and goes on from a completed checkpoint, the newest unless `back` says an older one."""

    parallelism: int
    back: int
    other_job: bool


@dataclass(frozen=True)
class CrashIn:
    """The process ends at a step of a checkpoint."""

    step: int
    moment: Literal["before", "after"]
    restart: Restart


RESTARTS = st.builds(
    Restart,
    parallelism=st.integers(1, 3),
    back=st.sampled_from([0, 0, 0, 1, 2]),
    other_job=st.sampled_from([False, False, False, True]),
)
ACTIONS = st.lists(
    st.one_of(
        st.builds(Write, count=st.integers(0, 5), subtask=st.integers(0, 2)),
        st.builds(Checkpoint, completes=st.booleans(), commits=st.integers(0, 2)),
        RESTARTS,
        st.builds(CrashIn, step=st.integers(0, 20), moment=st.sampled_from(["before", "after"]), restart=RESTARTS),
    ),
    max_size=25,
)


class Job:
    """A job with one sink table, and what must be seen of it."""

    def __init__(self, connector: str, folder: Path) -> None:
        self.connector = connector
        self.folder = folder
        self.sinks: list[StagingSink] = []
        self.completed: list[tuple[list[bytes], list[int]]] = [([], [])]
        """Commits and all rows up to them, by checkpoint; the first is the job's beginning."""
        self.written: list[int] = []
        self.next_row = 0
        self.epoch = 0
        self.job = 0

    async def start(self, parallelism: int) -> None:
        parallelism = parallelism if self.connector == "filesystem" else 1
        commits, rows_seen = self.completed[-1]
        for sink in self.sinks:
            await end(sink)
        self.sinks = [
            opened(self.connector, self.folder, subtask, parallelism, f"job_{self.job}")
            for subtask in range(parallelism)
        ]
        for sink in self.sinks:
            await sink.recover(commits)
        self.written = list(rows_seen)
        self.check()
        assert [name for name in hidden(self.connector, self.folder) if f"job_{self.job}-" in name] == []

    async def run(self, action: object) -> None:
        match action:
            case Write(count, subtask):
                ids = list(range(self.next_row, self.next_row + count))
                await self.sinks[subtask % len(self.sinks)].write(rows(ids))
                self.written += ids
                self.next_row += count
            case Checkpoint(completes, commits):
                await self.checkpoint(completes, commits)
            case Restart():
                await self.restart(action)
            case CrashIn(step, moment, restart):
                try:
                    with Steps(step, moment).watched():
                        await self.checkpoint(True, 1)
                except Crash:
                    await self.restart(restart)

    async def checkpoint(self, completes: bool, commits: int) -> None:
        self.epoch += 1
        written = list(self.written)
        staged = [await sink.stage(self.epoch) for sink in self.sinks]
        if not completes:
            return
        self.completed.append((staged, written))
        for _ in range(commits):
            for sink, data in zip(self.sinks, staged, strict=True):
                await sink.commit(data)
        if commits:
            self.check()

    async def restart(self, restart: Restart) -> None:
        for _ in range(min(restart.back, len(self.completed) - 1)):
            self.completed.pop()
        if restart.other_job and len(self.completed) > 1:
            self.job, self.epoch = self.job + 1, 0
        await self.start(restart.parallelism)

    def check(self) -> None:
        """Rows of one subtask are in their order; all of them are there once."""
        found = seen(self.connector, self.folder)
        expected = self.completed[-1][1]
        assert (found if self.connector == "single_file" else sorted(found)) == expected


async def live(connector: str, folder: Path, actions: Sequence[object]) -> None:
    job = Job(connector, folder)
    await job.start(2)
    for action in actions:
        await job.run(action)
    await job.checkpoint(True, 1)
    for sink in job.sinks:
        await sink.close()


@BOTH
@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS)
def test_the_rows_of_completed_checkpoints_are_seen_exactly_once(connector: str, actions: list[object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(connector, Path(folder), actions))
