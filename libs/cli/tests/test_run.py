"""`penstock run` as a user has it: a process, its output, its exit code, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from penstock.common.testing import eventually

BOUNDED = "CREATE TABLE impulse WITH (connector = 'impulse', message_count = 6);\n"
ENDLESS = "CREATE TABLE impulse WITH (connector = 'impulse', event_rate = 100);\n"

pytestmark = pytest.mark.timeout(400)


async def finished(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> tuple[int, str, str]:
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


async def assert_gone(processes: list[psutil.Process], within_seconds: float = 20) -> None:
    async def gone() -> bool:
        return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)

    await eventually(gone, within_seconds)


async def test_rows_are_printed_and_the_end_of_the_sources_is_success(penstock: Any) -> None:
    process = await penstock("run", "-")
    query = BOUNDED + "SELECT counter, counter * 2 AS twice FROM impulse WHERE counter % 2 = 0;"
    code, out, err = await finished(process, query.encode())
    assert code == 0, err
    assert [json.loads(line) for line in out.splitlines()] == [{"counter": n, "twice": 2 * n} for n in (0, 2, 4)]
    assert "finished after" in err and "6 rows in, 3 out" in err


async def test_wrong_query_is_shown_with_its_place_and_runs_nothing(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "wrong.sql").write_text(BOUNDED + "SELECT countr FROM impulse;\n")
    code, out, err = await finished(await penstock("run", "wrong.sql"))
    assert (code, out) == (1, "")
    assert "wrong.sql:2:8" in err and "^^^^^^" in err and "did you mean counter?" in err
    assert "Traceback" not in err


async def test_failing_job_tells_why_and_is_a_failure(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1}\nnonsense\n')
    options = "connector = 'single_file', path = 'in.json', type = 'source'"
    query = f"CREATE TABLE t (a BIGINT) WITH ({options}); SELECT a FROM t"
    code, _, err = await finished(await penstock("run", "-"), query.encode())
    assert code == 1
    assert "error:" in err and "in.json" in err and "failed after" in err
    assert "Traceback" not in err


async def test_interrupt_stops_in_order_and_leaves_nothing(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "endless.sql").write_text(ENDLESS + "SELECT counter FROM impulse;\n")
    process = await penstock("run", "endless.sql")
    assert process.stdout is not None
    assert json.loads(await process.stdout.readline()) == {"counter": 0}
    processes = family(process.pid)
    assert len(processes) > 3
    process.send_signal(signal.SIGINT)
    code, out, err = await finished(process)
    assert code == 130, err
    assert "stopped after" in err
    # Every row that was on its way arrived, each once.
    assert [json.loads(line)["counter"] for line in out.splitlines()] == list(range(1, len(out.splitlines()) + 1))
    await assert_gone(processes)


async def test_kill_leaves_nothing(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "endless.sql").write_text(ENDLESS + "SELECT counter FROM impulse;\n")
    process = await penstock("run", "endless.sql", "--state-dir", str(tmp_path / "state"))
    assert process.stdout is not None
    await process.stdout.readline()
    processes = family(process.pid)
    process.kill()
    await process.communicate()
    await assert_gone(processes)


async def test_validation_and_pictures_need_no_cluster(penstock: Any, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text(BOUNDED + "SELECT counter FROM impulse;\n")
    code, out, _ = await finished(await penstock("visualize", "q.sql"))
    assert code == 0 and out.startswith("flowchart")
    code, _, err = await finished(await penstock("validate", "-"), b"SELECT 1 FROM a;\nSELECT 2 FROM b;\n")
    assert code == 1 and "stdin:1:15" in err and "stdin:2:15" in err
