"""The ends of previews: each is stopped after a while, and deleted a while after that."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from penstock.api.context import Context
from penstock.common.errors import DatabaseUnavailable
from penstock.common.events import LogEvent

_LONGEST_WAIT_SECONDS: Final = 30.0

log = structlog.get_logger(__name__)


async def end_previews(context: Context) -> None:
    """Look for previews to end, for ever; any number of apis may."""
    lifetime = context.settings.preview_lifetime
    wait_seconds = min(lifetime.total_seconds() / 4, _LONGEST_WAIT_SECONDS)
    while True:
        try:
            for job in await context.store.stop_previews(lifetime):
                context.wake_controller(job)
            await context.store.delete_previews(context.settings.preview_retention)
        except DatabaseUnavailable as error:
            log.warning(LogEvent.PREVIEWS_UNKNOWN, reason=error.message)
        await asyncio.sleep(wait_seconds)
