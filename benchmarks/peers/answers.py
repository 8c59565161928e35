"""What an engine answered, read from the files that it wrote: changes are made, and the answers have a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
from peers.base import ResultForm
from peers.queries import Column, Query

_KINDS: Final = {"STRING": "VARCHAR"}


@dataclass(frozen=True, slots=True)
class Answers:
    """All results of a query, in any order."""

    rows: int
    digest: str


def read_answers(query: Query, form: ResultForm, folder: Path) -> Answers:
    """The answers in all files of a folder; DuckDB reads them, which shares nothing with the engines."""
    written = (path for path in folder.rglob("*.json") if path.stat().st_size)
    files = [str(path) for path in written if not path.name.startswith((".", "_"))]
    files += [str(path) for path in folder.glob("part-*") if not path.suffix and path.stat().st_size]
    if not files:
        return Answers(0, "")
    columns = ", ".join(_compared(column) for column in query.answers)
    kept = f"WHERE {query.counted}" if query.counted else ""
    digest = hashlib.sha256()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"SELECT {columns} FROM ({_folded(query, form, files)}) {kept} ORDER BY ALL")
        rows = 0
        while part := connection.fetchmany(100_000):
            rows += len(part)
            digest.update(repr(part).encode())
    return Answers(rows, digest.hexdigest())


def _compared(column: Column) -> str:
    """A column as it is compared: prices in thousandths, since engines have them as decimals or as floats."""
    return f'CAST(round("{column.name}" * 1000) AS BIGINT)' if column.kind == "DOUBLE" else f'"{column.name}"'


def _folded(query: Query, form: ResultForm, files: Sequence[str]) -> str:
    """The results that are left after all changes."""
    kinds = {column.name: _KINDS.get(column.kind, column.kind) for column in query.columns}
    if not query.updates:
        return f"SELECT * FROM {_lines(files, kinds)}"
    match form:
        case ResultForm.STEPS:
            rows = _lines(files, {**kinds, "_step": "BIGINT"})
            key = ", ".join(f'"{name}"' for name in query.key)
            return f"SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _step DESC) = 1"
        case ResultForm.CHANGES:
            row = "STRUCT(" + ", ".join(f'"{name}" {kind}' for name, kind in kinds.items()) + ")"
            lines = _lines(files, {"before": row, "after": row})
            return f"""
            SELECT unnest(row) FROM (
              SELECT row, sum(change)::BIGINT AS times FROM (
                SELECT before AS row, -1 AS change FROM {lines} WHERE before IS NOT NULL
                UNION ALL SELECT after, 1 FROM {lines} WHERE after IS NOT NULL
              ) GROUP BY row
            ), range(times)
            """


def _lines(files: Sequence[str], columns: dict[str, str]) -> str:
    return f"read_json({list(files)}, format = 'newline_delimited', columns = {columns})"
