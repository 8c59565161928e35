"""A folder as the target of staged rows: each epoch of each subtask is a file, which gets its name when committed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from penstock.connectors import durable
from penstock.connectors.errors import FileError
from penstock.connectors.files import folder_error
from penstock.connectors.staging import Commit, Piece, check_committed


class Parts:
    """The files of a table in a folder, `part-0000012-003.json`: of the epoch 12 of the subtask 3.

    Without `append` all of them are the job's. With it their names have the job's id, and others are left alone."""

    def __init__(self, folder: str, job: str, *, append: bool) -> None:
        self.folder = folder
        self.append = append
        self._prefix = f"part-{job}-" if append else "part-"

    def path(self, number: int, subtask: int) -> str:
        return os.path.join(self.folder, f"{self._prefix}{number:07}-{subtask:03}.json")

    def direct_path(self, subtask: int) -> str:
        """Of rows that are not staged."""
        return os.path.join(self.folder, f"part-{subtask:03}.json")

    def make_folder(self) -> None:
        """Creates the folder, but none that it is in."""
        try:
            with suppress(FileExistsError):
                os.mkdir(self.folder)
        except FileNotFoundError as error:
            raise folder_error(self.folder, error) from error

    def make_ready(self, subtask: int, parallelism: int) -> None:
        """For rows that are not staged: without `append` a job's start removes what is there."""
        self.make_folder()
        if not self.append:
            for part in list(self.later_than(-1, subtask, parallelism)):
                durable.remove(part.path)

    def later_than(self, number: int, subtask: int, parallelism: int) -> Iterator[os.DirEntry[str]]:
        """Those of later epochs that a subtask is to remove, whatever the parallelism was that made them."""
        name = re.compile(re.escape(self._prefix) + r"(?:(\d{7,})-)?(\d{3,})\.json")
        with os.scandir(self.folder) as entries:
            for entry in entries:
                found = name.fullmatch(entry.name)
                if found and int(found[1] or 0) > number and int(found[2]) % parallelism == subtask:
                    yield entry


class FolderTarget:
    """A folder in which every epoch of this job has files of a higher number than all before it."""

    def __init__(self, parts: Parts, job: str, subtask: int, parallelism: int, opened_at_ns: int) -> None:
        self.path = parts.folder
        self._parts = parts
        self._job = job
        self._subtask = subtask
        self._parallelism = parallelism
        self._opened_at_ns = opened_at_ns
        self._shift = 0
        """What is added to epochs: a job that goes on from another's savepoint counts its own from the beginning."""

    def look(self) -> None:
        return

    def begin(self) -> None:
        self._parts.make_folder()
        if not self._parts.append:
            self._remove_later_than(-1)

    def resume(self, commit: Commit) -> None:
        self._parts.make_folder()
        self._remove_later_than(commit.reached)
        self._shift = commit.reached - (commit.epoch if commit.job == self._job else 0)

    def place(self, epoch: int, staged: str, length: int) -> Piece:
        return Piece(staged=staged, target=self._parts.path(self.reached(epoch), self._subtask), length=length)

    def reached(self, epoch: int) -> int:
        return epoch + self._shift

    def commit(self, piece: Piece) -> None:
        if not os.path.exists(piece.target):
            try:
                durable.move(piece.staged, piece.target)
            except FileNotFoundError:  # another process was faster
                check_committed(piece, os.path.exists(piece.target))
        elif os.path.exists(piece.staged):
            raise FileError(piece.target, "the file is there already", hint="no two tables may write to one folder")
        durable.sync_folder(os.path.dirname(piece.target) or ".")

    def _remove_later_than(self, number: int) -> None:
        """What another process has written since this one began is not old: it is the one that goes on."""
        later = list(self._parts.later_than(number, self._subtask, self._parallelism))
        for part in later:
            if part.stat().st_mtime_ns >= self._opened_at_ns:
                raise FileError(part.path, "another process writes to the folder")
        for part in later:
            durable.remove(part.path)
