"""The Python functions of a job: their artifacts are loaded once, and made known to the engine."""

from __future__ import annotations

import asyncio
import io
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.common.errors import InternalError, UserError
from penstock.common.program import AsyncUdf, Function, Node
from penstock.common.storage import open_storage
from penstock.common.udfs import DEPENDENCIES, LOCK, SOURCE, Shape, artifact_hash
from penstock.spark import Udf, UdfKind
from penstock.udf.calling import SourceFunction


class FunctionEngine(Protocol):
    """What makes functions callable in queries."""

    async def register(self, udf: Udf) -> None:
        """Makes a Python function callable in fragments planned from now on."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedFunction:
    """A function whose artifact is here."""

    function: Function
    source: str
    path: tuple[Path, ...]
    """Where its dependencies are."""

    @property
    def file(self) -> str:
        """What tracebacks call its source."""
        return f"{self.function.signature.name}.py"


class JobFunctions:
    """The functions of one job."""

    def __init__(
        self, functions: Sequence[Function], engine: FunctionEngine, storage_options: Mapping[str, str]
    ) -> None:
        self._functions = functions
        self._engine = engine
        self._storage_options = storage_options
        self._loading = asyncio.Lock()
        self._loaded: dict[str, LoadedFunction] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def load(self) -> None:
        """Loads and registers them; the second time there is nothing to do."""
        async with self._loading:
            if self._loaded is None:
                found = [await self._load(function) for function in self._functions]
                for one in found:
                    if one.function.signature.shape is not Shape.ASYNC:
                        await self._engine.register(_registered(one))
                self._loaded = {one.function.key: one for one in found}

    def get(self, key: str) -> LoadedFunction:
        """One that was loaded."""
        found = (self._loaded or {}).get(key)
        if found is None:
            raise InternalError(f"the program has no function {key}")
        return found

    def are_called_by(self, node: Node) -> bool:
        """Whether the queries of a node call any."""
        kinds = [repr(operator.kind) for operator in node.operators if not isinstance(operator.kind, AsyncUdf)]
        return any(function.key in kind for function in self._functions for kind in kinds)

    def close(self) -> None:
        """Removes their files."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _load(self, function: Function) -> LoadedFunction:
        if not function.url:
            raise InternalError(f"the function {function.signature.name} was compiled, and not stored")
        storage = open_storage(function.url, self._storage_options)
        source = (await storage.get(SOURCE)).decode()
        lock = (await storage.get(LOCK)).decode() if await storage.exists(LOCK) else ""
        if artifact_hash(source, lock) != function.hash:
            hint = "workers and the compiler run the same version of Python"
            raise UserError(f"the artifact of function {function.signature.name} is not what was compiled", hint=hint)
        if not lock:
            return LoadedFunction(function, source, ())
        folder = self._root() / function.hash
        await asyncio.to_thread(_unzip, await storage.get(DEPENDENCIES), folder)
        return LoadedFunction(function, source, (folder,))

    def _root(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="penstock-udfs-")
        return Path(self._folder.name)


def _registered(loaded: LoadedFunction) -> Udf:
    signature = loaded.function.signature
    path = tuple(map(str, loaded.path))
    catches = loaded.function.catches
    called = SourceFunction(loaded.source, loaded.file, signature.name, signature.shape, path, catches)
    return Udf(loaded.function.key, called, loaded.function.gives, UdfKind.ARROW)


def _unzip(content: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)
