"""Ctrl-C and SIGTERM: the first asks for an end in order where that is possible, the next ends at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """The signals of a block, which is cancelled by one unless something else was asked for."""

    def __init__(self) -> None:
        self.interrupted = False
        self._first: Callable[[], None] | None = None

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the signals for the task of this block."""
        loop, block = asyncio.get_running_loop(), asyncio.current_task()
        assert block is not None

        def take() -> None:
            self.interrupted = True
            first, self._first = self._first, None
            if first is None:
                block.cancel()
            else:
                first()

        for number in _SIGNALS:
            loop.add_signal_handler(number, take)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    @contextmanager
    def gently(self, first: Callable[[], None]) -> Iterator[None]:
        """While the block lasts, the next signal only calls this."""
        self._first = first
        try:
            yield
        finally:
            self._first = None
