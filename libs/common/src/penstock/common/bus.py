"""NATS: facts that others may want to know, best effort. Nothing here fails or waits because NATS is away.

async with bus.subscribe(subjects.all_jobs(JobTopic.DESIRED)) as messages:
    async for message in messages: ...
bus.publish(subjects.job_desired(job), payload)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError
from pydantic import Field

from penstock.common.config import Duration, Settings, Size
from penstock.common.events import LogEvent
from penstock.common.redaction import redact_message, without_credentials
from penstock.common.subjects import EVENT_STREAM, event_stream_subjects

__all__ = ["Bus", "Message", "NatsSettings"]

_PING_SECONDS = 10
_STREAM_RETRY_SECONDS = 1.0
_LAST_WORDS_SECONDS = 1.0  # for what is pending to be sent at close
_CANCEL_SECONDS = 0.1  # then once more: the client takes a cancellation for its own while it connects or flushes
_FAILURES = (NatsError, OSError, TimeoutError, EOFError)

log = structlog.get_logger(__name__)


class NatsSettings(Settings):
    url: str
    connect_timeout: Duration
    reconnect_wait: Duration
    pending_messages: Annotated[int, Field(ge=1)]
    event_timeout: Duration
    event_max_age: Duration
    event_max_size: Size


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    data: bytes


@dataclass(eq=False, slots=True)
class _Subscription:
    """One reader's messages, and where they come from at the moment."""

    subject: str
    queue_group: str
    received: asyncio.Queue[Message]
    client: Client | None = None
    handle: NatsSubscription | None = None


class Bus:
    """A connection to NATS that is made again whenever it is lost, with its subscriptions."""

    def __init__(self, url: str, settings: NatsSettings) -> None:
        self._url = url
        self._settings = settings
        self._pending: asyncio.Queue[Message] = asyncio.Queue(settings.pending_messages)
        self._subscriptions: set[_Subscription] = set()
        self._stream_wanted = asyncio.Event()
        self._stream_ready = asyncio.Event()
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._away = False
        self._last_failure = ""
        self._dropping = False
        self._dropped = 0
        self._runner: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, url: str, settings: NatsSettings) -> Bus:
        """A bus that is connected already, or will be once NATS is there."""
        bus = cls(url, settings)
        bus._runner = asyncio.create_task(bus._run(), name="bus")
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.connect_timeout.total_seconds()):
                await bus._connected.wait()
        return bus

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def dropped(self) -> int:
        """How many messages were lost to NATS being away, or to a reader being slow."""
        return self._dropped

    def publish(self, subject: str, payload: bytes) -> None:
        """Send a message, now or once NATS is back; beyond the limit of pending messages it is dropped."""
        try:
            self._pending.put_nowait(Message(subject, payload))
        except asyncio.QueueFull:
            self._drop(subject)

    async def publish_event(self, subject: str, payload: bytes) -> bool:
        """Send a message that the event stream keeps, and tell whether it was stored in time."""
        client, seconds = self._client, self._settings.event_timeout.total_seconds()
        try:
            if client is not None:
                async with asyncio.timeout(seconds):
                    await client.jetstream(timeout=seconds).publish(subject, payload)
                return True
        except _FAILURES as error:
            log.debug(LogEvent.BUS_FAILED, subject=subject, reason=_reason(error))
        self._drop(subject)
        return False

    @asynccontextmanager
    async def subscribe(self, subject: str, queue: str | None = None) -> AsyncIterator[AsyncIterator[Message]]:
        """The messages of a subject, wildcards included, while the block lasts.

        Readers of one `queue` share its messages. What is sent while NATS is away is not seen.
        """
        subscription = _Subscription(subject, queue or "", asyncio.Queue(self._settings.pending_messages))
        self._subscriptions.add(subscription)
        try:
            if self._client is not None:
                with suppress(*_FAILURES):
                    await self._attach(self._client, subscription)
            yield _messages(subscription)
        finally:
            self._subscriptions.discard(subscription)
            if subscription.handle is not None:
                with suppress(*_FAILURES):
                    await subscription.handle.unsubscribe()

    async def ensure_event_stream(self) -> None:
        """Have the event stream there, as soon as NATS is and after every reconnection."""
        self._stream_wanted.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.event_timeout.total_seconds()):
                await self._stream_ready.wait()

    async def close(self) -> None:
        """Send what is pending, if that is quickly done, and disconnect."""
        if self._runner is None:
            return
        if self.connected:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_SECONDS):
                    await self._pending.join()
        runner, self._runner = self._runner, None
        while not runner.done():
            runner.cancel()
            await asyncio.wait((runner,), timeout=_CANCEL_SECONDS)

    async def _run(self) -> None:
        while True:
            try:
                await self._hold_connection()
                self._note_away("the connection was closed")
            except _FAILURES as error:
                self._note_away(self._last_failure or _reason(error))
            await asyncio.sleep(self._settings.reconnect_wait.total_seconds())

    async def _hold_connection(self) -> None:
        """One connection, from its making to its end. The client's own reconnecting is off: it gives up at times."""
        client, ended = Client(), asyncio.Event()
        try:
            async with asyncio.timeout(self._settings.connect_timeout.total_seconds()):
                await self._open(client, ended)
            self._client = client
            for subscription in tuple(self._subscriptions):
                await self._attach(client, subscription)
            self._note_back()
            await self._serve(client, ended)
        finally:
            self._client = None
            self._connected.clear()
            self._stream_ready.clear()
            with suppress(*_FAILURES):
                await client.close()

    async def _open(self, client: Client, ended: asyncio.Event) -> None:
        async def closed() -> None:
            ended.set()

        async def failed(error: Exception) -> None:
            self._last_failure = _reason(error)

        await client.connect(
            [part.strip() for part in self._url.split(",")],
            name="penstock",
            allow_reconnect=False,
            max_reconnect_attempts=1,  # the fewest that it takes for a number
            reconnect_time_wait=self._settings.reconnect_wait.total_seconds(),  # type: ignore[arg-type]
            ping_interval=_PING_SECONDS,
            closed_cb=closed,
            error_cb=failed,
        )

    async def _serve(self, client: Client, ended: asyncio.Event) -> None:
        """Send what is pending, and keep the event stream, until the connection ends."""
        tasks = [
            asyncio.create_task(self._send(client), name="bus-send"),
            asyncio.create_task(self._keep_stream(client), name="bus-stream"),
        ]
        try:
            await ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, client: Client) -> None:
        while True:
            message = await self._pending.get()
            try:
                await client.publish(message.subject, message.data)
            except _FAILURES:
                self._drop(message.subject)
                if client.is_closed:
                    return
            finally:
                self._pending.task_done()

    async def _attach(self, client: Client, subscription: _Subscription) -> None:
        if subscription.client is client:
            return
        subscription.client = client

        async def deliver(message: Msg) -> None:
            try:
                subscription.received.put_nowait(Message(message.subject, message.data))
            except asyncio.QueueFull:
                self._drop(message.subject)

        subscription.handle = await client.subscribe(subscription.subject, subscription.queue_group, cb=deliver)
        # The server has it only once this is answered.
        await client.flush(int(self._settings.connect_timeout.total_seconds()) or 1)

    async def _keep_stream(self, client: Client) -> None:
        """JetStream may come up later than its server does."""
        await self._stream_wanted.wait()
        while not await self._try_add_stream(client):  # noqa: ASYNC110 - what is waited for is outside this process
            await asyncio.sleep(_STREAM_RETRY_SECONDS)
        self._stream_ready.set()

    async def _try_add_stream(self, client: Client) -> bool:
        config = StreamConfig(
            name=EVENT_STREAM,
            subjects=event_stream_subjects(),
            storage=StorageType.FILE,
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.OLD,
            max_age=self._settings.event_max_age.total_seconds(),
            max_bytes=self._settings.event_max_size,
        )
        manager = client.jetstream(timeout=self._settings.event_timeout.total_seconds())
        try:
            try:
                await manager.add_stream(config)
            except BadRequestError:  # it is there, with other settings
                await manager.update_stream(config)
        except _FAILURES as error:
            log.warning(LogEvent.BUS_FAILED, stream=EVENT_STREAM, reason=_reason(error))
            return False
        return True

    def _note_back(self) -> None:
        self._connected.set()
        self._dropping = False
        event = LogEvent.BUS_RECONNECTED if self._away else LogEvent.BUS_CONNECTED
        self._away = False
        self._last_failure = ""
        log.info(event, url=without_credentials(self._url), dropped=self._dropped)

    def _note_away(self, reason: str) -> None:
        if not self._away:
            log.warning(LogEvent.BUS_DISCONNECTED, url=without_credentials(self._url), reason=reason)
        self._away = True

    def _drop(self, subject: str) -> None:
        self._dropped += 1
        if not self._dropping:
            log.warning(LogEvent.BUS_DROPPED, subject=subject, dropped=self._dropped)
        self._dropping = True


async def _messages(subscription: _Subscription) -> AsyncIterator[Message]:
    while True:
        yield await subscription.received.get()


def _reason(error: BaseException) -> str:
    return redact_message(str(error)) or type(error).__name__
