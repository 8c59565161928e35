"""Whom workers and nodes obey: the controllers of the newest generation of leaders that they have heard of."""

from __future__ import annotations

from typing import Final

import structlog

from penstock.common.errors import FencedError
from penstock.common.events import LogEvent

GENERATION_KEY: Final = "penstock-leader"
"""The metadata of a leader's commands, and of its answers: its generation."""
UNSURE_KEY: Final = "penstock-leader-unsure"
"""The metadata of its answers while it cannot tell whether another leads."""

log = structlog.get_logger(__name__)


class Fence:
    """The newest generation so far."""

    def __init__(self) -> None:
        self.newest = 0
        self.refused = 0
        """How many commands came from earlier ones."""

    def observe(self, generation: int) -> None:
        """A leader has been heard of."""
        self.newest = max(self.newest, generation)

    def admit(self, generation: int, command: str) -> None:
        """Take a leader's command; raises FencedError when there has been a newer one."""
        if generation < self.newest:
            self.refused += 1
            log.warning(LogEvent.COMMAND_REFUSED, command=command, generation=generation, newest=self.newest)
            raise FencedError(f"the controller of generation {generation} no longer leads, that of {self.newest} does")
        self.newest = generation
