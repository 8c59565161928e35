"""A worker's port for rows, and its way to the ports of others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

import structlog

from penstock.common.errors import InternalError, PeerUnavailable, PenstockError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.common.rpc import RpcSettings, is_loopback
from penstock.worker.network import handshake
from penstock.worker.network.frames import BadFrame
from penstock.worker.network.handshake import Claim, Identity
from penstock.worker.network.link import Link
from penstock.worker.network.settings import NetworkSettings
from penstock.worker.network.tls import client_context, server_context

_HANDSHAKE_SECONDS: Final = 5.0
_MAX_STRANGERS: Final = 256
"""Connections at a time of whom it is not known yet who they are."""
_FIRST_DELAY_SECONDS: Final = 0.02
_LONGEST_DELAY_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Expected:
    """Whose connections are welcome, and who takes them."""

    job: JobId
    generation: Generation
    dialers: frozenset[WorkerId]
    take: Callable[[WorkerId, Link], None]


class Network:
    """Listens from `open` to `close`. Connections that come before the worker knows its job wait for it."""

    def __init__(self, worker: WorkerId, rpc: RpcSettings, settings: NetworkSettings) -> None:
        self.worker = worker
        self.settings = settings
        self._token = rpc.token
        self._client_context = client_context(rpc)
        self._expected: Expected | None = None
        self._knows_job = asyncio.Event()
        self._taken: set[WorkerId] = set()
        self._admitting: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.refused = 0
        """Connections that were closed since they were not what they should be."""

    @classmethod
    async def open(cls, worker: WorkerId, *, host: str, port: int, rpc: RpcSettings, settings: NetworkSettings) -> Self:
        """Listens; port 0 takes a free one."""
        if not rpc.token and not is_loopback(host):
            hint = "set rpc.token to a secret that all services of the cluster share, or serve on 127.0.0.1"
            raise SettingsError(f"refusing to take rows on {host} without a token", hint=hint)
        network = cls(worker, rpc, settings)
        await network._listen(host.strip("[]"), port, server_context(rpc))
        return network

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Takes no more connections; those that are taken belong to their takers."""
        if self._server is not None:
            self._server.close()
        for task in self._admitting:
            task.cancel()
        await asyncio.gather(*self._admitting, return_exceptions=True)

    @contextmanager
    def expecting(self, expected: Expected) -> Iterator[None]:
        """Welcomes the workers of a job during the block."""
        if self._expected is not None:
            raise InternalError(f"the worker {self.worker} has a job already")
        self._expected = expected
        self._taken.clear()
        self._knows_job.set()
        try:
            yield
        finally:
            self._expected = None
            self._knows_job.clear()

    async def dial(self, address: str, identity: Identity) -> Link:
        """Connects to another worker, which may be starting; raises PeerUnavailable if it is not there in time."""
        deadline = asyncio.get_running_loop().time() + self.settings.connect_seconds
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._connect(address, identity)
            except (OSError, PenstockError) as error:  # of which TimeoutError and SSLError are
                left = deadline - asyncio.get_running_loop().time()
                if left <= delay or isinstance(error, BadFrame | InternalError):
                    reason = str(error) or type(error).__name__
                    raise PeerUnavailable(
                        f"worker {identity.acceptor} at {address} cannot be reached: {reason}",
                        hint="workers connect to each other: their data ports must be reachable from all of them",
                    ) from error
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY_SECONDS)

    async def _connect(self, address: str, identity: Identity) -> Link:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise InternalError(f"worker {identity.acceptor} has the data address {address!r}")
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(self._new_link, host.strip("[]"), int(port), ssl=self._client_context)
        try:
            await handshake.introduce(link, identity, self._token)
        except BaseException:
            link.abort()
            raise
        return link

    async def _listen(self, host: str, port: int, context: ssl.SSLContext | None) -> None:
        try:
            self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, ssl=context)
        except OSError as error:
            hint = "another process may be using the port; set another, or 0 for a free one"
            raise SettingsError(f"cannot take rows on {host}:{port}: {error.strerror}", hint=hint) from error

    def _new_link(self) -> Link:
        return Link(self.settings.max_frame_bytes, self.settings.silence_seconds)

    def _accept(self) -> asyncio.BufferedProtocol:
        link = self._new_link()
        task = asyncio.get_running_loop().create_task(self._admit(link), name="admission")
        self._admitting.add(task)
        task.add_done_callback(self._admitting.discard)
        return link

    async def _admit(self, link: Link) -> None:
        """Finds out who has connected, and hands the connection over or closes it."""
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                await link.made.wait()
                if len(self._admitting) > _MAX_STRANGERS:
                    raise BadFrame("too many connections at once")
                claim = await handshake.meet(link, self._token)
            await self._hand_over(link, claim)
        except (PenstockError, TimeoutError) as error:
            self._refuse(link, str(error) or "no handshake in time")
            link.abort()
        except asyncio.CancelledError:
            link.abort()
            raise

    async def _hand_over(self, link: Link, claim: Claim) -> None:
        if not self._knows_job.is_set() and not await self._wait_for_job(link):
            return
        expected, identity = self._expected, claim.identity
        reason = "the worker has ended" if expected is None else self._objection(expected, identity)
        if expected is None or reason is not None:
            self._refuse(link, f"{identity}: {reason}")
            handshake.refuse(link, reason or "")
            return
        self._taken.add(identity.dialer)
        handshake.welcome(link, claim)
        expected.take(identity.dialer, link)

    async def _wait_for_job(self, link: Link) -> bool:
        """Whether there is a job before the other side, or its time, is gone."""
        known = asyncio.ensure_future(self._knows_job.wait())
        gone = asyncio.ensure_future(link.closed.wait())
        try:
            await asyncio.wait(
                (known, gone), timeout=self.settings.connect_seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            known.cancel()
            gone.cancel()
        if self._knows_job.is_set() and not link.closed.is_set():
            return True
        if not link.closed.is_set():
            self._refuse(link, "there is no job yet")
            handshake.refuse(link, "there is no job yet")
        return False

    def _objection(self, expected: Expected, identity: Identity) -> str | None:
        if identity.acceptor != self.worker:
            return f"this is worker {self.worker}"
        if (identity.job, identity.generation) != (expected.job, expected.generation):
            return f"this worker runs generation {expected.generation} of job {expected.job}"
        if identity.dialer not in expected.dialers or identity.dialer in self._taken:
            return "a connection of that worker is not expected"
        return None

    def _refuse(self, link: Link, reason: str) -> None:
        self.refused += 1
        log.warning(LogEvent.CONNECTION_REFUSED, peer=link.peername, reason=reason)
