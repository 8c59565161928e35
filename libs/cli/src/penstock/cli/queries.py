"""Queries from files and from standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.common.errors import UserError

STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class QueryText:
    """SQL, and what to call it where it is talked about."""

    sql: str
    source: str

    @property
    def name(self) -> str:
        """What its pipeline is called unless the user says otherwise."""
        return "query" if self.source == "stdin" else Path(self.source).stem


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user wants to be run."""

    query: QueryText
    name: str
    parallelism: int | None
    state_dir: Path | None


def read_query(file: str) -> QueryText:
    """The query in a file, or on standard input when the file is `-`."""
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        query = QueryText(content.decode("utf-8-sig"), "stdin" if file == STDIN else file)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}", hint="name a file of SQL, or - for stdin") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: byte {error.start} is not", hint="save it as UTF-8") from error
    if not query.sql.strip():
        raise UserError(f"{query.source} is empty", hint="it should hold SQL, such as SELECT … FROM …")
    return query
