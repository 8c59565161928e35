"""The connections of one execution with the other workers of its job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from penstock.common.errors import InternalError, PeerUnavailable, PenstockError
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.worker.channels import Inbox
from penstock.worker.network.channels import RemoteChannel
from penstock.worker.network.connection import Connection
from penstock.worker.network.counters import NetworkCounters
from penstock.worker.network.frames import Route
from penstock.worker.network.handshake import Identity
from penstock.worker.network.network import Expected, Network

_LAST_WORD_SECONDS: Final = 1.0


class Exchange:
    """Has a connection with every worker that a channel leads to or comes from. Of two workers, the one with the lesser
    id connects to the other."""

    def __init__(self, network: Network, job: JobId, generation: Generation, addresses: Mapping[WorkerId, str]) -> None:
        self.counters = NetworkCounters()
        self._network = network
        self._job = job
        self._generation = generation
        self._addresses = addresses
        self._connections: dict[WorkerId, Connection] = {}

    @property
    def is_needed(self) -> bool:
        """Whether any channel crosses."""
        return bool(self._connections)

    def sender(self, route: Route, worker: WorkerId) -> RemoteChannel:
        """A channel to a subtask of another worker."""
        return self._connection(worker).sender(route)

    def receive(self, route: Route, worker: WorkerId, inbox: Inbox, bound: int) -> None:
        """A channel from a subtask of another worker."""
        self._connection(worker).receive(route, inbox, bound)

    async def run(self) -> None:
        """Connects, and watches over the connections: raises why one can no longer be used. Cancelled, it leaves those
        that there are open, for `finish` or `end`."""
        me, others = self._network.worker, self._connections
        expected = Expected(
            self._job,
            self._generation,
            frozenset(worker for worker in others if worker < me),
            lambda worker, link: others[worker].attach(link),
        )
        with self._network.expecting(expected):
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._miss(), name="missing workers")
                    for worker, connection in others.items():
                        tasks.create_task(connection.failed(), name=f"connection {worker}")
                        if worker > me:
                            tasks.create_task(self._dial(connection), name=f"dial {worker}")
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None

    async def finish(self) -> None:
        """All subtasks have ended: says so, and waits until the others have heard it. `run` watches over that too."""
        await asyncio.gather(*(connection.finish() for connection in self._connections.values()))
        self._abort()

    async def end(self, failure: tuple[Route, PenstockError] | None = None) -> None:
        """Tells the others why this worker leaves: a failure of a subtask, or that it was stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await asyncio.gather(*(connection.end(failure) for connection in self._connections.values()))
        self._abort()

    def _abort(self) -> None:
        for connection in self._connections.values():
            connection.abort()

    async def _dial(self, connection: Connection) -> None:
        me = self._network.worker
        identity = Identity(self._job, self._generation, dialer=me, acceptor=connection.worker)
        connection.attach(await self._network.dial(self._addresses[connection.worker], identity))

    async def _miss(self) -> None:
        """Whoever should connect here has as long as this worker would have."""
        await asyncio.sleep(self._network.settings.connect_seconds)
        for connection in self._connections.values():
            if not connection.is_attached:
                raise PeerUnavailable(
                    f"worker {connection.worker} has not connected",
                    hint="workers connect to each other: their data ports must be reachable from all of them",
                )

    def _connection(self, worker: WorkerId) -> Connection:
        if worker not in self._addresses:
            raise InternalError(f"nobody has said where worker {worker} is")
        found = self._connections.get(worker)
        if found is None:
            settings = self._network.settings
            found = Connection(worker, self.counters, settings.max_frame_bytes, settings.compression)
            self._connections[worker] = found
        return found
