"""Named places between two durable effects, where a test can end the process; elsewhere they do nothing.

    await crash_point(Step.AFTER_METADATA)

In a process, PENSTOCK_TEST_CRASH_AT="step" kills it at the first passage of a step, and "step:3" at the third.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

VARIABLE: Final = "PENSTOCK_TEST_CRASH_AT"

Hook: TypeAlias = Callable[[str], Awaitable[None]]
"""Is told each step that is passed; what it raises is raised there."""


async def crash_point(step: str) -> None:
    """Pass a step."""
    if _hook is not None:
        await _hook(step)


@contextmanager
def crash_hook(hook: Hook) -> Iterator[None]:
    """Have a hook told of each step while the block lasts."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def killing_hook(text: str) -> Hook:
    """Kills this process at the passage that a text names: a step, or a step and how many times it is passed."""
    step, _, count = text.rpartition(":")
    if not count.isdecimal():
        step, count = text, "1"
    left = int(count)

    async def hook(passed: str) -> None:
        nonlocal left
        if passed == step:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


_hook: Hook | None = killing_hook(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
