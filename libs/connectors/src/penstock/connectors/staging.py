"""Rows that are seen exactly once: each epoch's go to a hidden file, which is committed with the job's checkpoint.

A checkpoint may be given up after its rows were staged, without a word to the sink. So what commits an epoch also names
what was staged before it and has not been committed here: committing is the same however often it is done.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from penstock.common.errors import InternalError
from penstock.connectors import durable
from penstock.connectors.errors import FileError
from penstock.connectors.file_sink import Encode, FileSink
from penstock.connectors.files import errors_of


class Piece(BaseModel):
    """A hidden file of rows, and the place in the target that they are for."""

    model_config = ConfigDict(frozen=True)

    staged: str
    target: str
    offset: int = 0
    length: int


class Commit(BaseModel):
    """By what an epoch's rows are committed."""

    model_config = ConfigDict(frozen=True)

    path: str
    """The table's."""
    job: str
    epoch: int
    reached: int
    """How far the target is when all pieces are in it, as the target counts."""
    pieces: tuple[Piece, ...]


class Target(Protocol):
    """What rows are committed to. All but `place` and `reached` is called in threads, and may raise OSError."""

    @property
    def path(self) -> str: ...

    def look(self) -> None:
        """The first call: nothing has been done by this process yet."""
        ...

    def begin(self) -> None:
        """Makes ready for a job's beginning."""
        ...

    def resume(self, commit: Commit) -> None:
        """Makes ready to go on behind what a checkpoint has committed, and forgets what came later."""
        ...

    def place(self, epoch: int, staged: str, length: int) -> Piece:
        """Where the rows of an epoch belong: behind all that were placed before."""
        ...

    def reached(self, epoch: int) -> int:
        """How far the target is with all that has been placed."""
        ...

    def commit(self, piece: Piece) -> None:
        """Has rows seen, unless they are."""
        ...


def check_committed(piece: Piece, is_there: bool) -> None:
    """Raises for rows whose hidden file is gone, and which are not in the target either."""
    if not is_there:
        raise FileError(piece.target, f"the rows that were staged for it are gone: {piece.staged}")


@dataclass(frozen=True, slots=True)
class HiddenFiles:
    """The names of hidden files of one subtask, and which of them earlier processes have left behind."""

    folder: str
    prefix: str
    """Of this job's files, and of no other's."""
    subtask: int
    parallelism: int

    def unstaged(self) -> str:
        """Of rows whose epoch is not known yet; no other process has the name."""
        return self._path(f"{secrets.token_hex(8)}-{self.subtask:03}.rows")

    def staged(self, epoch: int) -> str:
        return self._path(f"{epoch:07}-{self.subtask:03}.staged")

    def older_than(self, time_ns: int) -> Iterator[str]:
        """Those that have not been written to since, and which this subtask is to remove.

        What others write now is left alone: they may be subtasks of the same job, or of one that took over from it."""
        name = re.compile(re.escape(self.prefix) + r"-[0-9a-f]+-(\d+)\.(rows|staged)")
        with os.scandir(self.folder) as entries:
            for entry in entries:
                found = name.fullmatch(entry.name)
                if found is not None and int(found[1]) % self.parallelism == self.subtask:
                    with suppress(FileNotFoundError):  # removed meanwhile
                        if entry.stat(follow_symlinks=False).st_mtime_ns < time_ns:
                            yield entry.path

    def _path(self, rest: str) -> str:
        return os.path.join(self.folder, f"{self.prefix}-{rest}")


class StagingFileSink:
    """One subtask's share of a table in files whose rows are committed with checkpoints."""

    def __init__(self, encode: Encode, hidden: HiddenFiles, target: Target, job: str, opened_at_ns: int) -> None:
        self._encode = encode
        self._hidden = hidden
        self._target = target
        self._job = job
        self._opened_at_ns = opened_at_ns
        self._rows: FileSink | None = None
        self._pending: tuple[Piece, ...] = ()
        self._is_ready = False
        self._has_failed = False

    async def recover(self, commits: Sequence[bytes]) -> None:
        known = [Commit.model_validate_json(commit) for commit in commits]
        await asyncio.to_thread(self._recover, known)
        self._is_ready = True

    async def write(self, batch: pa.RecordBatch) -> None:
        self._check()
        if self._rows is None:
            self._rows = FileSink(self._encode, self._hidden.unstaged(), append=False)
        await self._rows.write(batch)

    async def flush(self) -> None:
        if self._rows is not None:
            await self._rows.flush()

    async def stage(self, epoch: int) -> bytes:
        self._check()
        rows, self._rows = self._rows, None  # what is written from here on is of the next epoch
        if rows is not None:
            await self._stage(epoch, rows)
        reached = self._target.reached(epoch)
        commit = Commit(path=self._target.path, job=self._job, epoch=epoch, reached=reached, pieces=self._pending)
        return commit.model_dump_json().encode()

    async def commit(self, data: bytes) -> None:
        pieces = Commit.model_validate_json(data).pieces
        await asyncio.to_thread(self._commit, pieces)
        self._pending = tuple(piece for piece in self._pending if piece not in pieces)

    async def close(self) -> None:
        if self._rows is not None:
            await self._rows.close()
            await asyncio.to_thread(durable.remove, self._rows.path)

    def _check(self) -> None:
        if not self._is_ready or self._has_failed:
            when = "after staging has failed" if self._has_failed else "before recovery"
            raise InternalError(f"{self._target.path}: a sink takes no rows {when}")

    def _recover(self, commits: Sequence[Commit]) -> None:
        with errors_of(self._target.path):
            self._target.look()
        self._commit([piece for commit in commits for piece in commit.pieces])
        own = [commit for commit in commits if os.path.normpath(commit.path) == os.path.normpath(self._target.path)]
        with errors_of(self._target.path):
            if own:
                self._target.resume(max(own, key=lambda commit: commit.reached))
            else:
                self._target.begin()
            for path in list(self._hidden.older_than(self._opened_at_ns)):
                durable.remove(path)

    def _commit(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            with errors_of(piece.target):
                self._target.commit(piece)

    async def _stage(self, epoch: int, rows: FileSink) -> None:
        staged = self._hidden.staged(epoch)
        try:
            length = await rows.seal()
            await asyncio.to_thread(self._keep, rows.path, staged if length else None)
        except BaseException:
            self._has_failed = True  # trying again is no use: the system may have forgotten what it could not write
            self._rows = self._rows or rows
            raise
        if length:
            self._pending += (self._target.place(epoch, staged, length),)

    def _keep(self, path: str, staged: str | None) -> None:
        with errors_of(path):
            if staged is None:
                durable.remove(path)
            else:
                durable.move(path, staged)
                durable.sync_folder(self._hidden.folder)
