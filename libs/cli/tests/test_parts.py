from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.cli import state_dir
from penstock.cli.asking import show_bytes
from penstock.cli.hosting import Hosted
from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import Meter, Totals
from penstock.cli.queries import read_query
from penstock.cli.servers import _keep
from penstock.common.errors import InternalError, SettingsError, UserError
from penstock.common.jobs import JobState
from penstock.common.testing import eventually


def test_state_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with state_dir.held(folder):
        with pytest.raises(SettingsError, match=rf"process {os.getpid()}\) is using") as raised, state_dir.held(folder):
            pass
        assert raised.value.hint
    with state_dir.held(folder):
        pass


def test_temporary_state_folder_that_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    left = root / "penstock-run-killed"
    left.mkdir(parents=True)
    (left / "lock").write_text("1\n")
    with state_dir.temporary((root,)) as first:
        assert first.parent == root
        assert not left.exists()
        with state_dir.temporary((root,)):
            assert first.exists()
    assert not list(root.iterdir())


def test_temporary_state_folder_is_gone_afterwards() -> None:
    with state_dir.temporary() as folder:
        (folder / "file").write_text("x")
    assert not folder.exists()


def test_unusable_state_folder_is_a_readable_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot use the state folder"), state_dir.held(tmp_path / "file"):
        pass


@pytest.mark.parametrize(("content", "reason"), [(b"", "empty"), (b" \n", "empty"), (b"\xff", "not UTF-8")])
def test_query_that_is_none_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "q.sql").write_bytes(content)
    with pytest.raises(UserError, match=reason):
        read_query(str(tmp_path / "q.sql"))


def test_query_is_called_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "clicks.sql").write_bytes(b"\xef\xbb\xbfSELECT 1")
    query = read_query(str(tmp_path / "clicks.sql"))
    assert (query.sql, query.name) == ("SELECT 1", "clicks")


def test_meter_tells_rates_and_the_first_row() -> None:
    now = 100.0
    meter = Meter(98.0, lambda: now)
    meter.note_row()
    meter.measure(Totals(1000, 500))
    assert meter.line("running") == "running 2 s: 1,000 rows in (500/s), 500 out (250/s)"
    now = 102.0
    meter.note_row()
    meter.measure(Totals(3000, 500, 2, 0.5), last=True)
    assert meter.line("running") == "running 4 s: 3,000 rows in (1,000/s), 500 out (0/s), 2 bad, backpressure 50%"
    assert (
        meter.summary(JobState.FINISHED) == "finished after 4.0 s: 3,000 rows in, 500 out, 2 bad, first row after 2.0 s"
    )


def test_meter_tells_of_event_time_and_of_late_rows() -> None:
    meter = Meter(98.0, lambda: 100.0)
    at = datetime(2015, 7, 15, 0, 0, 3, tzinfo=UTC)
    meter.measure(Totals(1000, 500, late_rows=12, state_rows=1234, watermark=at, watermark_lag_seconds=2.54))
    rows = "1,000 rows in (500/s), 500 out (250/s)"
    assert meter.line("running") == f"running 2 s: {rows}, 12 late, 1,234 in state, watermark 2.5 s behind"
    assert meter.summary(JobState.FINISHED).endswith("1,000 rows in, 500 out, 12 late rows were dropped")
    meter.measure(Totals(1000, 500, late_rows=1, watermark=at, watermark_lag_seconds=1e8), last=True)
    assert meter.line("running").endswith("1 late, watermark 2015-07-15 00:00:03")
    assert meter.summary(JobState.FINISHED).endswith("1 late row was dropped")


async def test_service_is_hosted_from_ready_to_the_end() -> None:
    ended: list[str] = []

    def service(name: str) -> Callable[[Callable[[str], None]], object]:
        async def serve(ready: Callable[[str], None]) -> None:
            ready(name)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)

        return serve

    hosted = Hosted()
    assert [await hosted.start(name, service(name)) for name in ("a", "b")] == ["a", "b"]  # type: ignore[arg-type]
    await hosted.close()
    assert ended == ["b", "a"]


async def test_service_that_fails_says_why() -> None:
    async def fails_at_once(ready: Callable[[str], None]) -> None:
        async with asyncio.TaskGroup():
            raise SettingsError("no port")

    async def ends_later(ready: Callable[[str], None]) -> None:
        ready("up")

    hosted = Hosted()
    with pytest.raises(SettingsError, match="no port"):
        await hosted.start("api", fails_at_once)
    hosted = Hosted()
    await hosted.start("api", ends_later)
    assert isinstance(await hosted.ended(), InternalError)


class FakeServer:
    url = "x"

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def stop(self) -> None:
        self.ended.set()


async def test_server_that_dies_is_started_again_and_stopped_in_the_end() -> None:
    started = [FakeServer()]

    async def start() -> FakeServer:
        started.append(FakeServer())
        return started[-1]

    keeper = asyncio.create_task(_keep(started[0], start))
    started[0].ended.set()

    async def again() -> bool:
        return len(started) == 2

    await eventually(again)
    assert not started[1].ended.is_set()
    keeper.cancel()
    await asyncio.wait((keeper,))
    assert started[1].ended.is_set()


async def test_first_signal_asks_and_the_second_cancels() -> None:
    interrupts = Interrupts()
    asked = asyncio.Event()

    async def block() -> None:
        with interrupts.taken(), interrupts.gently(asked.set):
            os.kill(os.getpid(), signal.SIGINT)
            await asked.wait()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(block())
    assert interrupts.interrupted


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (1536, "1.5 KiB"),
        (123 * 2**30, "123 GiB"),
        (5000 * 2**40, "5,000 TiB"),
    ],
)
def test_bytes_are_shown_to_three_digits(count: int, shown: str) -> None:
    assert show_bytes(count) == shown
