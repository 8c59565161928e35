"""Points in time as options give them and as Arrow holds them: microseconds since 1970, in UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Instant = Annotated[datetime, AfterValidator(_in_utc)]
"""An option such as `2023-09-18T14:23:10Z`; without a zone it is in UTC."""


def microseconds_of(value: datetime | timedelta) -> int:
    """Since 1970, or of a duration."""
    duration = value if isinstance(value, timedelta) else value - _EPOCH
    return duration // timedelta(microseconds=1)


def now_microseconds() -> int:
    """The time of the machine."""
    return time.time_ns() // 1000
