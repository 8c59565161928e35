"""Python functions: from a source to a function that programs can call, with its artifact in storage."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Final

from penstock.common.diagnostics import Diagnostic, Severity, Span
from penstock.common.errors import NotFound, ObjectNotFound, UserError
from penstock.common.program import Function
from penstock.common.quantities import format_size
from penstock.common.storage import Storage
from penstock.common.udfs import DEPENDENCIES, LOCK, SOURCE, Signature, artifact_folder, artifact_hash
from penstock.compiler.diagnostics import Refused, refusal
from penstock.compiler.udf_child import ChildLimits, Question, inspect
from penstock.compiler.udf_dependencies import install_dependencies, lock_dependencies
from penstock.compiler.udf_options import CallOptions, WrongOption, check_options, read_options
from penstock.udf.scripts import ScriptBlock, WrongBlock, script_block

_KEPT: Final = 256
_MOST_CHARACTERS: Final = 256 * 1024
_HASH_IN_KEY: Final = 12


@dataclass(frozen=True, slots=True)
class UdfLimits:
    """What building a function may take."""

    child: ChildLimits = field(default_factory=lambda: ChildLimits(timedelta(seconds=10), 4 << 30))
    install_timeout: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class BuiltUdf:
    """A function, and what its source says of how it is called."""

    function: Function
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def name(self) -> str:
        """What SQL calls it."""
        return self.function.signature.name.lower()

    @property
    def calls(self) -> CallOptions:
        return read_options(self.options)


@dataclass(frozen=True, slots=True)
class _Artifact:
    signature: Signature
    source: str
    lock: str = ""
    dependencies: bytes = b""

    @property
    def hash(self) -> str:
        return artifact_hash(self.source, self.lock)

    def key(self, catches: bool) -> str:
        """What operators call the function by."""
        name = self.signature.name.lower()
        told = hashlib.sha256(f"{self.hash}\0{name}\0{self.signature.shape}\0{catches}".encode()).hexdigest()
        return f"{name}__{told[:_HASH_IN_KEY]}"


class Udfs:
    """Builds functions. Without a storage they are only looked at, and nothing can run them."""

    def __init__(self, storage: Storage | None = None, limits: UdfLimits | None = None) -> None:
        self._storage = storage
        self._limits = limits or UdfLimits()
        self._kept: OrderedDict[tuple[str, str | None, str | None], _Artifact] = OrderedDict()

    async def build(
        self, source: str, name: str | None, options: Mapping[str, str] | None = None, *, store: bool = True
    ) -> BuiltUdf:
        """The function of a source; `options` go before those of its block. Raises Refused, with spans in the source,
        and WrongOption for one of `options`."""
        if len(source) > _MOST_CHARACTERS:
            raise refusal("too_complex", f"the source is longer than {format_size(_MOST_CHARACTERS)}")
        block = _block(source)
        merged = MappingProxyType({**block.options, **(options or {})})
        calls = _read(merged, options or {}, block)
        artifact = await self._artifact(source, name, block, calls)
        _check(merged, options or {}, block, artifact.signature)
        catches = calls.dead_letter is not None
        function = Function(artifact.key(catches), artifact.signature, artifact.hash, catches=catches)
        if store and self._storage is not None:
            folder = self._storage.child(artifact_folder(artifact.hash))
            await _stored(folder, artifact)
            function = replace(function, url=folder.url)
        return BuiltUdf(function, merged)

    async def get(self, hash: str) -> tuple[str, str]:
        """The source and the lock of an artifact; raises NotFound."""
        if self._storage is None:
            raise UserError("the compiler has no storage", hint="set checkpoints.url")
        if not hash.isalnum():
            raise NotFound(f"there is no function {hash!r}")
        folder = self._storage.child(artifact_folder(hash))
        try:
            source = (await folder.get(SOURCE)).decode()
        except ObjectNotFound:
            raise NotFound(f"there is no function {hash!r}") from None
        lock = (await folder.get(LOCK)).decode() if await folder.exists(LOCK) else ""
        return source, lock

    async def _artifact(self, source: str, name: str | None, block: ScriptBlock, calls: CallOptions) -> _Artifact:
        known = (source, name, calls.kind)
        if (found := self._kept.get(known)) is not None:
            self._kept.move_to_end(known)
            return found
        artifact = await self._made(source, name, block, calls)
        self._kept[known] = artifact
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return artifact

    async def _made(self, source: str, name: str | None, block: ScriptBlock, calls: CallOptions) -> _Artifact:
        if not block.dependencies:
            signature = await inspect(Question(source, name, calls.kind, ()), self._limits.child)
            return _Artifact(signature, source)
        with _at(block):
            lock = await lock_dependencies(block.dependencies, self._limits.install_timeout)
            with tempfile.TemporaryDirectory(prefix="penstock-udf-") as name_of_folder:
                folder = Path(name_of_folder) / "dependencies"
                await install_dependencies(lock, folder, self._limits.install_timeout)
                signature = await inspect(Question(source, name, calls.kind, (folder,)), self._limits.child)
                return _Artifact(signature, source, lock, await asyncio.to_thread(_zipped, folder))


class _at:
    """Gives errors about dependencies the place of the block that names them."""

    def __init__(self, block: ScriptBlock) -> None:
        self._block = block

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused) and error.diagnostic.code == "udf_dependency" and error.diagnostic.span is None:
            raise Refused(replace(error.diagnostic, span=_line(self._block.line))) from error


def _block(source: str) -> ScriptBlock:
    try:
        return script_block(source)
    except WrongBlock as error:
        raise refusal("udf_block", str(error), _line(error.line)) from None


def _line(line: int) -> Span:
    return Span(line, 1, line, len("# /// script"))


def _read(merged: Mapping[str, str], given: Mapping[str, str], block: ScriptBlock) -> CallOptions:
    try:
        return read_options(merged)
    except WrongOption as error:
        raise _of_block(error, given, block) from None


def _check(merged: Mapping[str, str], given: Mapping[str, str], block: ScriptBlock, signature: Signature) -> None:
    try:
        check_options(merged, signature)
    except WrongOption as error:
        raise _of_block(error, given, block) from None


def _of_block(error: WrongOption, given: Mapping[str, str], block: ScriptBlock) -> Refused | WrongOption:
    """Options that were given have a place that the caller knows."""
    if error.name in given:
        return error
    return Refused(Diagnostic(Severity.ERROR, "invalid_option", error.message, error.hint, _line(block.line)))


async def _stored(folder: Storage, artifact: _Artifact) -> None:
    """Writes an artifact unless it is there; the source is written last."""
    if await folder.exists(SOURCE):
        return
    if artifact.lock:
        await folder.put(DEPENDENCIES, artifact.dependencies)
        await folder.put(LOCK, artifact.lock.encode())
    await folder.put(SOURCE, artifact.source.encode())


def _zipped(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return content.getvalue()
