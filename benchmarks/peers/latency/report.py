"""Latencies as a table: a line for each case and engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from latencies import QUANTILES

_COLUMNS = ("query", "events/s", "engine", "samples", *(name.replace("_ms", " ms") for name in QUANTILES))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """All figures; where there are none, the reason."""
    lines = [_COLUMNS, *map(_cells, rows)]
    aligned = [line for line in lines if len(line) == len(_COLUMNS)]
    widths = [max(len(line[index]) for line in aligned) for index in range(len(_COLUMNS))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False)) for line in lines)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    place = (row["query"], f"{row['events_s']:,}", row["engine"])
    if "not_run" in row:
        return (*place, f"not run: {row['not_run']}")
    return (*place, f"{row['samples']:,}", *(f"{row[name]:,.2f}" for name in QUANTILES))
