from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_SERVICE = """
import asyncio
from penstock.common.errors import ExternalError, SettingsError
from penstock.common.service import Context, service_main

async def main(context):
    print("loop", type(asyncio.get_running_loop()).__module__, flush=True)
{body}

service_main("controller", main)
"""
_WAIT = """
try:
    print("ready", flush=True)
    await asyncio.Event().wait()
finally:
    print("cleaned up", flush=True)
"""


def start(folder: Path, body: str, *arguments: str) -> subprocess.Popen[str]:
    script = folder / "service.py"
    script.write_text(_SERVICE.format(body=textwrap.indent(body, "    ")))
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_service_in_order(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, _WAIT)
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    code, output, errors = finish(process)
    assert code == 0
    assert "cleaned up" in output
    assert "Traceback" not in errors
    assert '"service_stopping"' in errors
    assert errors.splitlines()[-1].count('"service_stopped"') == 1


def test_a_service_that_returns_ends_with_zero_on_uvloop(tmp_path: Path) -> None:
    code, output, _ = finish(start(tmp_path, "assert context.name == 'controller'"))
    assert code == 0
    assert output.startswith("loop uvloop")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        ("ExternalError('storage is away', hint='start it')", 1),
        ("SettingsError('a bad port', hint='set another')", 2),
        ("ExceptionGroup('tasks', [SettingsError('a bad port', hint='set another')])", 2),
    ],
)
def test_an_expected_error_is_one_line_and_a_hint(tmp_path: Path, raised: str, expected: int) -> None:
    code, _, errors = finish(start(tmp_path, f"raise {raised}"))
    assert code == expected
    *_, message, hint = errors.splitlines()
    assert message.startswith("penstock controller: ")
    assert hint.startswith("  hint: ")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "raised", ["KeyError('fault')", "ExceptionGroup('tasks', [SettingsError('bad'), KeyError('fault')])"]
)
def test_a_fault_is_logged_once_with_its_traceback(tmp_path: Path, raised: str) -> None:
    code, _, errors = finish(start(tmp_path, f"raise {raised}"))
    assert code == 1
    failures = [line for line in errors.splitlines() if '"service_failed"' in line]
    assert len(failures) == 1
    assert "fault" in failures[0]


def test_a_wrong_setting_ends_the_service_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[log]\nlevle = "info"\n')
    code, output, errors = finish(start(tmp_path, "print('started')", "--config", "other.toml"))
    assert code == 2
    assert output == ""
    assert errors == (
        "penstock controller: unknown setting log.levle (from other.toml)\n  hint: did you mean log.level?\n"
    )
