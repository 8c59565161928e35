"""Compares rows as multisets, numbers that are not whole within a tolerance, and folds changes into what they leave."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.common.program import OP_COLUMN
from penstock.connectors.base import TIMESTAMP_COLUMN
from penstock.connectors.errors import shorten

Row: TypeAlias = tuple[Any, ...]

_CHANGES: Final = {"append": 1, "retract": -1}
"""How a preview names the two."""
_APPROXIMATE: Final = 0.2
_SHOWN: Final = 5
_SHOWN_CHARACTERS: Final = 400


class Broken(AssertionError):
    """Changes that cannot be: a row is taken back that is not there."""


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Row]:
    """The rows with values that can be compared and hashed; without the columns that are hidden."""
    found: list[Row] = []
    for batch in batches:
        names = enumerate(batch.schema.names)  # by place: those of an answer may be there twice
        places = [place for place, name in names if name not in (OP_COLUMN, TIMESTAMP_COLUMN)]
        columns = [[_plain(value) for value in batch.column(place).to_pylist()] for place in places]
        found += zip(*columns, strict=True)
    return found


def fold(batches: Sequence[pa.RecordBatch]) -> list[Row]:
    """What is there when all changes were made, one after the other."""
    present: Counter[Row] = Counter()
    for batch in batches:
        for row, change in zip(rows_of([batch]), changes_of(batch), strict=True):
            present[row] += change
            if present[row] < 0:
                raise Broken(f"a row is taken back that is not there: {row}")
    return list(present.elements())


def changes_of(batch: pa.RecordBatch) -> list[int]:
    """+1 for each row that comes, -1 for each that is taken back."""
    if OP_COLUMN not in batch.schema.names:
        return [1] * batch.num_rows
    return [_CHANGES[change] for change in batch.column(OP_COLUMN).to_pylist()]


def appends_of_keys(batches: Sequence[pa.RecordBatch], key: Sequence[str]) -> Counter[Row]:
    """How often each key got a new result."""
    counts: Counter[Row] = Counter()
    for batch in batches:
        keys = zip(*(map(_plain, batch.column(name).to_pylist()) for name in key), strict=True) if key else ()
        changes = changes_of(batch)
        for found, change in zip(keys or [()] * len(changes), changes, strict=True):
            counts[found] += change > 0
    return counts


def difference(actual: Sequence[Row], expected: Sequence[Row], approximate: Collection[int] = ()) -> str | None:
    """The first rows that are in one and not in the other, as text; None when there are none."""
    widths = {len(row) for row in (*actual, *expected)}
    if len(widths) > 1:
        return f"rows have {sorted(widths)} columns"
    loose = _loose_columns([*actual, *expected]) | set(approximate)
    missing: list[Row] = []
    unexpected: list[Row] = []
    ours, theirs = _grouped(actual, loose), _grouped(expected, loose)
    for exact in {**ours, **theirs}:
        unmatched, unmet = _unmatched(ours.get(exact, []), theirs.get(exact, []), approximate)
        unexpected += unmatched
        missing += unmet
    if not missing and not unexpected:
        return None
    return "\n".join(
        [
            f"{len(actual)} rows instead of {len(expected)}",
            *_shown("missing", missing),
            *_shown("not expected", unexpected),
        ]
    )


def _shown(what: str, rows: Sequence[Row]) -> list[str]:
    first = sorted(rows, key=repr)[:_SHOWN]
    return [f"{len(rows)} {what}:", *(f"  {shorten(str(row), _SHOWN_CHARACTERS)}" for row in first)] if rows else []


def _grouped(rows: Iterable[Row], loose: Collection[int]) -> dict[Row, list[Row]]:
    """Rows by their columns that must be equal; of the others it only counts whether they are null."""
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        exact = tuple(value is None if place in loose else (type(value), value) for place, value in enumerate(row))
        groups[exact].append(row)
    return groups


def _unmatched(ours: list[Row], theirs: list[Row], approximate: Collection[int]) -> tuple[list[Row], list[Row]]:
    if len(ours) == len(theirs):
        pairs = list(zip(sorted(ours, key=_order), sorted(theirs, key=_order), strict=True))
        apart = [pair for pair in pairs if not _same_row(*pair, approximate)]
        return [mine for mine, _ in apart], [other for _, other in apart]
    left = list(theirs)
    unmatched = []
    for row in ours:
        found = next((place for place, other in enumerate(left) if _same_row(row, other, approximate)), None)
        if found is None:
            unmatched.append(row)
        else:
            left.pop(found)
    return unmatched, left


def _order(row: Row) -> list[Any]:
    return [(value is not None, value) for value in map(_sortable, row)]


def _sortable(value: Any) -> Any:
    match value:
        case tuple():
            return [(part is not None, _sortable(part)) for part in value]
        case bool() | None:
            return value
        case Decimal() | float() | int():
            return float(value)
        case _:
            return value


def _same_row(one: Row, other: Row, approximate: Collection[int]) -> bool:
    return all(
        _same(mine, theirs, _APPROXIMATE if place in approximate else 1e-9)
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True))
    )


def _same(one: Any, other: Any, tolerance: float) -> bool:
    match one, other:
        case (tuple(), tuple()):
            return len(one) == len(other) and all(map(lambda a, b: _same(a, b, tolerance), one, other))
        case (Decimal(), float()) | (float(), Decimal()):  # a mean of decimals has six digits behind the point in one
            return math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=1e-6)
        case (float() | Decimal() | int(), float() | Decimal() | int()):
            return one == other or math.isclose(float(one), float(other), rel_tol=tolerance, abs_tol=1e-9)
        case _:
            return bool(one == other)


def _loose_columns(rows: Iterable[Row]) -> set[int]:
    return {place for row in rows for place, value in enumerate(row) if _is_loose(value)}


def _is_loose(value: Any) -> bool:
    return any(map(_is_loose, value)) if isinstance(value, tuple) else isinstance(value, float | Decimal)


def _plain(value: Any) -> Hashable:
    """Structs and lists as tuples, and intervals as durations; not a number equals itself."""
    match value:
        case pa.MonthDayNano(months, days, nanoseconds):
            assert months == 0, "an interval of months has no length"
            return timedelta(days=days, microseconds=nanoseconds // 1000)
        case dict():
            return tuple(_plain(part) for part in value.values())
        case list() | tuple():
            return tuple(_plain(part) for part in value)
        case float() if math.isnan(value):
            return "not a number"
        case _:
            found: Hashable = value
            return found
