"""The queries of Nexmark, and the tables that they read and write: from the generator or from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from typing import Final

FOLDER: Final = Path(__file__).parent
RESULT: Final = "result"
"""The table that every query writes."""

_UPDATING: Final = "-- updating\n"
_INSERT: Final = f"INSERT INTO {RESULT}\n"
_SIDE_INPUT_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query over the tables `person`, `auction` and `bid`, or `side_input` as well, that inserts into `result`."""

    number: int
    sql: str
    batch_sql: str
    """The same question for Spark, once all events are there."""

    def __str__(self) -> str:
        return f"q{self.number}"

    @property
    def updating(self) -> bool:
        """Whether its results are changes."""
        return _UPDATING in self.sql

    @property
    def select_sql(self) -> str:
        """The same, with rows that are shown instead of inserted."""
        return self.sql.replace(_INSERT, "")

    @property
    def reads_side_input(self) -> bool:
        return "side_input" in self.sql


@cache
def nexmark_queries() -> tuple[NexmarkQuery, ...]:
    """All queries, by their numbers."""
    numbers = sorted(int(path.stem[1:]) for path in FOLDER.glob("q*.sql") if path.stem[1:].isdecimal())
    return tuple(map(_read, numbers))


def generator_tables(options: Mapping[str, str]) -> str:
    """The tables that queries read, generated with these options of the connector `nexmark`."""
    given = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    return _filled("generator.sql", options=given)


def file_tables(folder: Path) -> str:
    """The tables that queries read, from the files that `write_events` has written."""
    return _filled("files.sql", folder=str(folder))


def side_input_table(path: Path) -> str:
    """The table that query 13 looks up, from the file that `write_side_input` has written."""
    return _filled("side_input.sql", path=str(path))


def result_table(query: NexmarkQuery, folder: Path | None = None) -> str:
    """The table that a query writes: JSON lines in a folder, or nothing."""
    if folder is None:
        return f"CREATE TABLE {RESULT} WITH (connector = 'blackhole');\n"
    form = "debezium_json" if query.updating else "json"
    return f"CREATE TABLE {RESULT} WITH (connector = 'filesystem', path = '{folder}', format = '{form}');\n"


def write_side_input(path: Path) -> None:
    """A text for each key."""
    lines = [f"{key},value-{key}" for key in range(_SIDE_INPUT_ROWS)]
    path.write_text("\n".join(["key,value", *lines]) + "\n")


def _read(number: int) -> NexmarkQuery:
    """Where there is no other text for it, Spark is asked what Penstock is."""
    sql = (FOLDER / f"q{number}.sql").read_text()
    assert sql.count(_INSERT) == 1, f"q{number}.sql inserts into {RESULT} once, on a line of its own"
    batch = FOLDER / f"q{number}.batch.sql"
    batch_sql = batch.read_text() if batch.exists() else sql[sql.index(_INSERT) + len(_INSERT) :]
    return NexmarkQuery(number, sql, batch_sql.strip().removesuffix(";"))


def _filled(name: str, **values: str) -> str:
    return Template((FOLDER / name).read_text()).substitute(values) + "\n"
