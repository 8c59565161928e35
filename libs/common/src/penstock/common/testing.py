"""In-memory twins of the ports, with crash injection; and how to wait for a condition."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from penstock.common.errors import StorageError
from penstock.common.storage import Data, ObjectInfo, Storage, open_storage

_SOME_PORTS = iter(random.SystemRandom().sample(range(15_000, 32_000), 10_000))

Operation = Literal["put", "put_if_absent", "get", "get_range", "head", "exists", "list", "delete"]


async def eventually(condition: Callable[[], Awaitable[bool]], within_seconds: float = 5.0) -> None:
    """Waits until a condition holds; raises TimeoutError when it does not in time."""
    async with asyncio.timeout(within_seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for is outside this process
            await asyncio.sleep(0.02)


def free_port() -> int:
    """A port of the loopback that nobody has. Not one of those that the system gives to connections: one of them could
    have it by the time that it is used."""
    for port in _SOME_PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise OSError("no port is free")


def memory_storage() -> Storage:
    """An empty storage in memory, which is obstore's own and so behaves as the others do."""
    return open_storage("memory://")


@dataclass(frozen=True, slots=True)
class Fault:
    """The nth call, counted from 1, of an operation or of any; `after` lets it take effect first."""

    nth: int
    operation: Operation | None = None
    moment: Literal["before", "after"] = "before"


@dataclass(slots=True)
class _Calls:
    """Counted for a storage and all its children together."""

    made: list[Operation]
    failed: bool = False


class FailingStorage:
    """A storage that raises StorageError at one call, as if the process or the network had died there."""

    def __init__(self, inner: Storage, fail_on: Fault) -> None:
        self._inner = inner
        self._fail_on = fail_on
        self._calls = _Calls([])

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def calls(self) -> tuple[Operation, ...]:
        """The calls so far, by which a test can fail each of them in turn."""
        return tuple(self._calls.made)

    @property
    def failed(self) -> bool:
        """Whether the fault has happened."""
        return self._calls.failed

    async def put(self, path: str, data: Data | AsyncIterator[bytes]) -> None:
        with self._call("put"):
            await self._inner.put(path, data)

    async def put_if_absent(self, path: str, data: Data) -> bool:
        with self._call("put_if_absent"):
            return await self._inner.put_if_absent(path, data)

    async def get(self, path: str) -> bytes:
        with self._call("get"):
            return await self._inner.get(path)

    async def get_range(self, path: str, *, start: int, length: int) -> bytes:
        with self._call("get_range"):
            return await self._inner.get_range(path, start=start, length=length)

    async def head(self, path: str) -> ObjectInfo:
        with self._call("head"):
            return await self._inner.head(path)

    async def exists(self, path: str) -> bool:
        with self._call("exists"):
            return await self._inner.exists(path)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        with self._call("list"):
            async for info in self._inner.list(prefix):
                yield info

    async def delete(self, *paths: str) -> None:
        with self._call("delete"):
            await self._inner.delete(*paths)

    def child(self, prefix: str) -> Storage:
        child = FailingStorage(self._inner.child(prefix), self._fail_on)
        child._calls = self._calls
        return child

    @contextmanager
    def _call(self, operation: Operation) -> Iterator[None]:
        made = self._calls.made
        made.append(operation)
        wanted = self._fail_on.operation
        count = len(made) if wanted is None else made.count(wanted)
        hit = wanted in {None, operation} and count == self._fail_on.nth
        if hit and self._fail_on.moment == "before":
            self._fail(operation)
        yield
        if hit:
            self._fail(operation)

    def _fail(self, operation: Operation) -> None:
        self._calls.failed = True
        fault = self._fail_on
        raise StorageError(f"injected failure {fault.moment} {operation}, call {fault.nth}")
