"""The tables that every query is asked of: rows out of order within their watermark's bound, in several partitions.

The rows are the same in every run. They have what breaks windows: nulls in every column that may have them, keys that
are hot and keys that are rare, quiet stretches, equal times, times on the very edges of windows, times before 1970, a
partition without rows, and partitions that begin late or end early.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

PARTITIONS: Final = 6
"""Of every table; subtasks share them, so that what a partition's rows are does not depend on the parallelism."""

BOUND: Final = timedelta(seconds=10)
"""How far out of order rows are at most, and how far watermarks stay behind."""

EVENTS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("user", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("amount", pa.int64()),
        pa.field("price", pa.float64()),
        pa.field("cost", pa.decimal128(10, 2)),
        pa.field("ok", pa.bool_()),
        pa.field("ts", pa.timestamp("us"), nullable=False),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("city", pa.string()), ("zone", pa.int32())])),
    ]
)
REFUNDS: Final = pa.schema([EVENTS.field(name) for name in ("id", "user", "amount", "ts")])

TABLES: Final = """
CREATE TABLE events (
  id BIGINT NOT NULL, user TEXT, kind TEXT, amount BIGINT, price DOUBLE, cost DECIMAL(10, 2), ok BOOLEAN,
  ts TIMESTAMP NOT NULL, tags TEXT[], place STRUCT<city TEXT, zone INT>,
  WATERMARK FOR ts AS ts - INTERVAL '10 seconds'
) WITH (connector = 'single_file', path = 'events', type = 'source');

CREATE TABLE refunds (
  id BIGINT NOT NULL, user TEXT, amount BIGINT, ts TIMESTAMP NOT NULL,
  WATERMARK FOR ts AS ts - INTERVAL '10 seconds'
) WITH (connector = 'single_file', path = 'refunds', type = 'source');

CREATE TABLE ancient (
  id BIGINT NOT NULL, user TEXT, amount BIGINT, ts TIMESTAMP NOT NULL,
  WATERMARK FOR ts AS ts - INTERVAL '10 seconds'
) WITH (connector = 'single_file', path = 'ancient', type = 'source');

CREATE TABLE limits (
  id BIGINT NOT NULL, user TEXT, amount BIGINT, ts TIMESTAMP NOT NULL, PRIMARY KEY (user),
  WATERMARK FOR ts AS ts - INTERVAL '10 seconds'
) WITH (connector = 'single_file', path = 'limits', type = 'source');
"""
"""The connector is replaced when a program runs; the compiler only needs one that exists."""

TABLE_NAMES: Final = ("events", "refunds", "ancient", "limits")

_USERS: Final = ("ann", "ann", "ann", "ann", "bob", "bob", "cy", "dee", "Eve", "élan", "", None)
_KINDS: Final = ("view", "view", "view", "click", "click", "buy", None)
_CITIES: Final = ("Oslo", "Rome", None)
_TAGS: Final = ("a", "b", "c", "d")
_BEGIN: Final = datetime(2024, 3, 1, 9, 58, 30)  # noqa: DTZ001 - event times have no zone
_BEFORE_1970: Final = datetime(1969, 12, 31, 23, 57)  # noqa: DTZ001 - event times have no zone
_QUIET: Final = {0.25: timedelta(seconds=95), 0.5: timedelta(minutes=4, seconds=30), 0.8: timedelta(hours=1, minutes=3)}
_SPACING: Final = timedelta(minutes=20) / 4000

_SAME: Final = {"limits": "refunds"}
"""Tables that have the rows of another: each refund as the newest version of its user."""

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Dataset:
    """Tables as their partitions hold them, in the order of their arrival."""

    events: tuple[pa.Table, ...]
    refunds: tuple[pa.Table, ...]
    ancient: tuple[pa.Table, ...]

    def partitions(self, table: str) -> tuple[pa.Table, ...]:
        found: tuple[pa.Table, ...] = getattr(self, _SAME.get(table, table))
        return found

    def whole(self, table: str) -> pa.Table:
        return pa.concat_tables(self.partitions(table))


@cache
def dataset(rows: int) -> Dataset:
    """A dataset of about so many rows; the spacing of times is that of 4,000 rows in 20 minutes, or wider."""
    events = list(_events(random.Random(rows), rows))
    refunds = list(_refunds(random.Random(rows + 1), rows // 4))
    ancient = [
        row | {"ts": _BEFORE_1970 + (row["ts"] - _BEGIN)} for row in _refunds(random.Random(rows + 2), rows // 4)
    ]
    return Dataset(
        dealt(arrived(events, random.Random(rows + 3)), EVENTS),
        dealt(arrived(refunds, random.Random(rows + 4)), REFUNDS),
        dealt(arrived(ancient, random.Random(rows + 5)), REFUNDS),
    )


def arrived(rows: Sequence[Row], dice: random.Random, bound: timedelta = BOUND) -> list[Row]:
    """Rows in an order of arrival, each delayed by the bound at most; of two at once the one on time comes first."""
    delays = [dice.choice((timedelta(0), bound, bound * dice.random())) for _ in rows]
    order = sorted(range(len(rows)), key=lambda place: (rows[place]["ts"] + delays[place], delays[place]))
    return [rows[place] for place in order]


def dealt(rows: Sequence[Row], schema: pa.Schema) -> tuple[pa.Table, ...]:
    """Rows in partitions, each in the order of arrival: the last one is empty, others start or stop midway."""
    hands: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    for place, row in enumerate(rows):
        share = place / len(rows)
        ended, unborn = {1} if share > 0.4 else set(), {2} if share < 0.6 else set()
        open_hands = [hand for hand in range(PARTITIONS - 1) if hand not in ended | unborn]
        hands[open_hands[place % len(open_hands)]].append(row)
    return tuple(pa.Table.from_pylist(hand, schema) for hand in hands)


def _events(dice: random.Random, count: int) -> Iterator[Row]:
    for number, ts in enumerate(_times(dice, count)):
        yield {
            "id": number,
            "user": dice.choice(_USERS) if dice.random() > 0.02 else f"rare{number}",
            "kind": dice.choice(_KINDS),
            "amount": _maybe(dice, dice.randint(-40, 160)),
            "price": _maybe(dice, round(dice.uniform(0.01, 99.99), 2)),
            "cost": _maybe(dice, Decimal(dice.randint(-5_000, 99_999)) / 100),
            "ok": _maybe(dice, dice.random() < 0.7),
            "ts": ts,
            "tags": _maybe(dice, dice.sample(_TAGS, dice.randint(0, 3))),
            "place": _maybe(dice, {"city": dice.choice(_CITIES), "zone": dice.randint(1, 3)}),
        }


def _refunds(dice: random.Random, count: int) -> Iterator[Row]:
    for number, ts in enumerate(_times(dice, count, spacing=_SPACING * 4)):
        yield {
            "id": number,
            "user": dice.choice(_USERS),
            "amount": _maybe(dice, dice.randint(1, 60)),
            "ts": ts,
        }


def _times(dice: random.Random, count: int, spacing: timedelta = _SPACING) -> Iterator[datetime]:
    """Times that advance with quiet stretches: many on whole seconds, some just before, some equal, others anywhere."""
    # Few rows are spread wider, so that there are windows to close.
    step = spacing * max(1.0, 4000 / (8 * count))
    now = _BEGIN
    quiet = {round(share * count): pause for share, pause in _QUIET.items()}
    for number in range(count):
        now += quiet.get(number, timedelta(0)) + step * dice.choice((0.0, 0.5, 1.0, 2.5))
        second = now.replace(microsecond=0)
        yield dice.choice((second, second - timedelta(microseconds=1), now, now, now))


def _maybe(dice: random.Random, value: object) -> object:
    return value if dice.random() > 0.08 else None
