"""Server-sent events: how one is written, and a response that sends them until they end or its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta

from starlette.responses import StreamingResponse

MEDIA_TYPE = "text/event-stream"
_KEEP_ALIVE = b": keep-alive\n\n"
# Proxies would else hold rows back until they have a page of them.
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


def encode_event(data: bytes, *, name: str | None = None, event_id: int | None = None) -> bytes:
    """One event; the data is one line."""
    lines = [b"data: " + data]
    if name is not None:
        lines.insert(0, b"event: " + name.encode())
    if event_id is not None:
        lines.insert(0, b"id: %d" % event_id)
    return b"\n".join(lines) + b"\n\n"


class EventStream(StreamingResponse):
    """Sends events, and a comment whenever there was none for a while; ends when the service stops."""

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncGenerator[bytes, None], *, keep_alive: timedelta, stopping: asyncio.Event) -> None:
        super().__init__(_with_keep_alive(events, keep_alive.total_seconds(), stopping), headers=_HEADERS)


async def _with_keep_alive(
    events: AsyncGenerator[bytes, None], seconds: float, stopping: asyncio.Event
) -> AsyncIterator[bytes]:
    stop = asyncio.create_task(stopping.wait(), name="sse-stop")
    following: asyncio.Task[bytes | None] | None = None
    try:
        # Sends the headers, so that a client knows at once that it is heard.
        yield _KEEP_ALIVE
        while True:
            following = following or asyncio.create_task(_next(events), name="sse-next")
            done, _ = await asyncio.wait((following, stop), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if following in done:
                event = following.result()
                following = None
                if event is None:
                    return
                yield event
            elif stop in done:
                return
            else:
                yield _KEEP_ALIVE
    finally:
        tasks = [task for task in (stop, following) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await events.aclose()


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(events, None)
