"""One file as the target of staged rows: each epoch's are written where they belong, behind those before them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from penstock.connectors import durable
from penstock.connectors.errors import FileError
from penstock.connectors.files import folder_error
from penstock.connectors.staging import Commit, Piece, check_committed

_HINT: Final = "while a job runs, nobody else may write to its file"


class FileTarget:
    """A file of which this job knows, at each epoch, how long it is."""

    def __init__(self, path: str, *, append: bool, opened_at_ns: int) -> None:
        self.path = path
        self._append = append
        self._opened_at_ns = opened_at_ns
        self._modified_at_ns = 0
        self._length = 0

    def look(self) -> None:
        with suppress(FileNotFoundError):
            found = os.stat(self.path)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError
            if not stat.S_ISREG(found.st_mode):
                raise FileError(self.path, "is not a regular file, and rows cannot be staged for it")
            self._modified_at_ns = found.st_mtime_ns

    def begin(self) -> None:
        with _opened(self.path) as file:
            self._length = os.fstat(file).st_size if self._append else 0
            self._forget_behind(file, self._length)
            durable.sync(file)
        durable.sync_folder(os.path.dirname(self.path) or ".")

    def resume(self, commit: Commit) -> None:
        """A file to which others add keeps what is behind."""
        with _opened(self.path) as file:
            size = os.fstat(file).st_size
            if size < commit.reached:
                raise _shorter(self.path, size, commit.reached)
            self._length = size if self._append else commit.reached
            self._forget_behind(file, self._length)
            durable.sync(file)

    def place(self, epoch: int, staged: str, length: int) -> Piece:
        piece = Piece(staged=staged, target=self.path, offset=self._length, length=length)
        self._length += length
        return piece

    def reached(self, epoch: int) -> int:
        return self._length

    def commit(self, piece: Piece) -> None:
        """Writes over what is there, if anything: the same rows, of a commit that was cut short."""
        try:
            staged = os.open(piece.staged, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            check_committed(piece, _size(piece.target) >= piece.offset + piece.length)
            return
        try:
            self._copy(staged, piece)
        finally:
            os.close(staged)
        durable.remove(piece.staged)

    def _copy(self, staged: int, piece: Piece) -> None:
        with _opened(piece.target) as target:
            if (size := os.fstat(target).st_size) < piece.offset:
                raise _shorter(piece.target, size, piece.offset)
            if durable.copy(staged, target, piece.offset, piece.length) < piece.length:
                raise FileError(piece.staged, f"the file has become shorter: it had {piece.length} bytes")
            durable.sync(target)

    def _forget_behind(self, file: int, length: int) -> None:
        """What another process has written since this one began is not old: it is the one that goes on."""
        if os.fstat(file).st_size > length:
            if self._modified_at_ns >= self._opened_at_ns:
                raise FileError(self.path, "another process writes to the file", hint=_HINT)
            durable.truncate(file, length)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _shorter(path: str, size: int, written: int) -> FileError:
    message = f"the file has become shorter: it has {size} bytes, and the job had written {written}"
    return FileError(path, message, hint=_HINT)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError as error:
        raise folder_error(path, error) from error
    try:
        yield file
    finally:
        os.close(file)
