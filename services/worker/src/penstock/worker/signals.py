"""What travels in a channel besides rows, in order with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class EndOfData:
    """The last of its channel."""


@dataclass(frozen=True, slots=True)
class Pause:
    """No more rows for now: what a sink holds back can be made visible. It stays inside a subtask."""


Signal: TypeAlias = EndOfData | Pause
