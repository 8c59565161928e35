from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from penstock.common.crash_points import VARIABLE, crash_hook, crash_point

PASSES = """
import asyncio
from penstock.common.crash_points import crash_point

async def main():
    for number in range(4):
        await crash_point("one")
        print("one", number, flush=True)
        await crash_point("b:two")

asyncio.run(main())
"""


async def test_a_step_does_nothing_unless_a_test_has_a_hook() -> None:
    passed: list[str] = []

    async def hook(step: str) -> None:
        passed.append(step)
        if step == "bad":
            raise OSError(step)

    await crash_point("before")
    with crash_hook(hook):
        await crash_point("during")
        with pytest.raises(OSError, match="bad"):
            await crash_point("bad")
    await crash_point("after")
    assert passed == ["during", "bad"]


@pytest.mark.parametrize(("at", "lines"), [("one", 0), ("one:3", 2), ("b:two:1", 1)])
def test_a_process_is_killed_where_the_environment_says(at: str, lines: int) -> None:
    done = subprocess.run([sys.executable, "-c", PASSES], env={VARIABLE: at}, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) == lines


def test_a_process_goes_on_that_does_not_pass_there_so_often() -> None:
    done = subprocess.run([sys.executable, "-c", PASSES], env={VARIABLE: "one:5"}, capture_output=True, check=False)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4)
