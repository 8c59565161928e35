"""Reads the query files: each query in Penstock's SQL, and the same question for an engine that has all rows at once.

A file is read line by line; lines that begin with `---` part it:

    --- name_of_the_query
    --- updating: user          its results are changes; at most one a key for each batch, if the key is said
    --- approximate: n m        these columns may be 20 % off
    SELECT …                    Penstock's SQL, over the tables of `data`
    --- duckdb                  or spark
    SELECT …                    the same question
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("sql")


class Oracle(StrEnum):
    """Who answers the question in one batch."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True)
class Query:
    """A question, in two languages."""

    theme: str
    name: str
    sql: str
    oracle: Oracle
    oracle_sql: str
    updating: bool = False
    key: tuple[str, ...] | None = None
    """The columns that tell the changes of an updating query apart, where its last step is an aggregate."""
    approximate: frozenset[str] = frozenset()


@dataclass
class _Draft:
    theme: str
    name: str
    lines: list[str] = field(default_factory=list)
    oracle_lines: list[str] = field(default_factory=list)
    oracle: Oracle | None = None
    options: dict[str, list[str] | None] = field(default_factory=dict)

    def take(self, line: str) -> None:
        (self.lines if self.oracle is None else self.oracle_lines).append(line)

    def finished(self) -> Query:
        sql, oracle_sql = "\n".join(self.lines).strip(), "\n".join(self.oracle_lines).strip()
        assert sql and oracle_sql and self.oracle is not None, f"{self.theme}.sql: {self.name} lacks a part"
        key = self.options.get("updating")
        return Query(
            self.theme,
            self.name,
            sql,
            self.oracle,
            oracle_sql,
            "updating" in self.options,
            None if key is None else tuple(key),
            frozenset(self.options.get("approximate") or ()),
        )


@cache
def queries() -> tuple[Query, ...]:
    """All queries of all files."""
    found = tuple(query for path in sorted(FOLDER.glob("*.sql")) for query in _read(path))
    names = [query.name for query in found]
    assert len(set(names)) == len(names), f"names that are there twice: {[n for n in names if names.count(n) > 1]}"
    return found


def _read(path: Path) -> Iterator[Query]:
    draft: _Draft | None = None
    for line in path.read_text().splitlines():
        word, colon, rest = line.removeprefix("--- ").partition(":")
        if not line.startswith("--- "):
            if draft is not None:
                draft.take(line)
        elif word in ("updating", "approximate"):
            assert draft is not None, f"{path.name}: {line} belongs to no query"
            draft.options[word] = rest.split() if colon else None
        elif word in tuple(Oracle):
            assert draft is not None, f"{path.name}: {line} belongs to no query"
            draft.oracle = Oracle(word)
        else:
            if draft is not None:
                yield draft.finished()
            draft = _Draft(path.stem, word)
    if draft is not None:
        yield draft.finished()
