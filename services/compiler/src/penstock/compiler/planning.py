"""What everything that plans queries needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.common.program import ProgramSettings, TtlTime
from penstock.compiler.analysis import Analyst
from penstock.compiler.positions import Text
from penstock.compiler.relations import Steps


@dataclass(frozen=True, slots=True)
class Planning:
    """The analyst, the steps so far, the user's text, and what SET said."""

    analyst: Analyst
    steps: Steps
    text: Text
    settings: Callable[[], ProgramSettings]

    @property
    def ttl(self) -> tuple[int, TtlTime]:
        """How long what nothing touches is kept, and by which time."""
        settings = self.settings()
        return settings.updating_ttl_ms, settings.updating_ttl_time
