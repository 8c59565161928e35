"""The end of whoever started this process, seen from the pipe that is its standard input."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress


async def parent_ended(descriptor: int = 0) -> None:
    """Returns when the pipe's other end is closed."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        with suppress(OSError):
            while os.read(descriptor, 4096):
                pass
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    # A thread that does not keep the process alive, which one of the loop's executor would.
    threading.Thread(target=read, name="parent", daemon=True).start()
    await ended.wait()
