"""The events of the Nexmark benchmark, each a function of its number alone.

Proportions, ids, hot keys and distributions are those of the standard generator (50 events are 1 person, 3 auctions
and 46 bids). Its stateful random numbers are replaced by a hash of event number and field, so that any subtask can make
any event and only what is asked for; its texts are drawn from pools of a fixed size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.nexmark_texts import (
    CHANNELS,
    HOT_CHANNELS,
    cards,
    channels,
    cities,
    emails,
    extras,
    names,
    states,
    texts,
)
from penstock.connectors.shares import Numbers

_Random = npt.NDArray[np.uint64]

EPOCH_EVENTS: Final = 50
_AUCTIONS: Final = 3
_FIRST_PERSON: Final = 1000
_FIRST_AUCTION: Final = 1000
_FIRST_CATEGORY: Final = 10
_CATEGORIES: Final = 5
_ID_LEAD: Final = 10
"""How far bids and sellers may run ahead of the persons and auctions that there are."""
_HOT_GROUP: Final = 100
"""Of so many neighbouring ids one is hot."""
_SHUFFLES: Final = (953, 967, 971, 977)
"""The standard's multiplier for the order inside a group of events that are out of order, and primes for the groups
whose size is a multiple of it: these it would not shuffle, but repeat some events and leave out others."""


def _columns(*columns: tuple[str, pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(name, kind) for name, kind in columns])


_TIME: Final = pa.timestamp("us")
COLUMNS: Final = pa.schema(
    [
        (
            "person",
            _columns(
                ("id", pa.int64()),
                ("name", pa.string()),
                ("email_address", pa.string()),
                ("credit_card", pa.string()),
                ("city", pa.string()),
                ("state", pa.string()),
                ("datetime", _TIME),
                ("extra", pa.string()),
            ),
        ),
        (
            "auction",
            _columns(
                ("id", pa.int64()),
                ("item_name", pa.string()),
                ("description", pa.string()),
                ("initial_bid", pa.int64()),
                ("reserve", pa.int64()),
                ("datetime", _TIME),
                ("expires", _TIME),
                ("seller", pa.int64()),
                ("category", pa.int64()),
                ("extra", pa.string()),
            ),
        ),
        (
            "bid",
            _columns(
                ("auction", pa.int64()),
                ("bidder", pa.int64()),
                ("price", pa.int64()),
                ("channel", pa.string()),
                ("url", pa.string()),
                ("datetime", _TIME),
                ("extra", pa.string()),
            ),
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When events happen, in microseconds."""

    start: int
    interval: float
    out_of_order: int = 1
    """Events come in groups of so many, of which each is shuffled."""
    total: int | None = None
    """How many events there are; the last group is shuffled only if it is whole, or others would be among them."""

    def numbers(self, positions: Numbers) -> Numbers:
        """The numbers of the events at given places of the stream."""
        size = self.out_of_order
        if size == 1:
            return positions
        shuffle = next(prime for prime in _SHUFFLES if size % prime)
        numbers = positions // size * size + positions * shuffle % size
        return numbers if self.total is None else np.where(positions < self.total // size * size, numbers, positions)

    def times(self, numbers: Numbers) -> Numbers:
        return self.start + (numbers * self.interval).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Shape:
    """How values are distributed; of what is hot, a ratio of 4 leaves one in 4 to all others."""

    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    auctions_in_flight: int = 100
    active_people: int = 1000
    seed: int = 0


STANDARD: Final = Shape()


class Events:
    """The events of given numbers; each value is computed when it is first asked for."""

    def __init__(self, numbers: Numbers, timeline: Timeline, shape: Shape = STANDARD) -> None:
        self.numbers = numbers
        self.timeline = timeline
        self.shape = shape

    @cached_property
    def times(self) -> Numbers:
        return self.timeline.times(self.numbers)

    @cached_property
    def offsets(self) -> Numbers:
        """The place in its 50 events: 0 is a person, 1 to 3 are auctions, the rest are bids."""
        return self.numbers - self.last_person * EPOCH_EVENTS

    @cached_property
    def last_person(self) -> Numbers:
        """The newest person so far, counted from 0."""
        return self.numbers // EPOCH_EVENTS

    @cached_property
    def last_auction(self) -> Numbers:
        """The newest auction so far, counted from 0; -1 before the first."""
        return self.last_person * _AUCTIONS + np.minimum(self.offsets, _AUCTIONS) - 1

    def random(self, field: str) -> _Random:
        """A random number per event that depends on the event's number and the field only (splitmix64)."""
        mixed = self.numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += np.uint64(_salt(field, self.shape.seed))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed ^= mixed >> np.uint64(shift)
            mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return mixed

    def below(self, field: str, limit: int | Numbers) -> Numbers:
        """A random number from 0 up to a limit of less than 2^31."""
        return ((self.random(field) >> np.uint64(33)).view(np.int64) * limit) >> 31

    def pick(self, field: str, pool: pa.Array) -> pa.Array:
        return pool.take(pa.array(self.below(field, len(pool))))

    def any_person(self, field: str) -> Numbers:
        """One of the persons that are active, or a few that are still to come."""
        count = self.last_person + 1
        active = np.minimum(count, self.shape.active_people)
        return count - active + self.below(field, active + _ID_LEAD)

    def any_auction(self, field: str) -> Numbers:
        """One of the auctions in flight, or a few that are still to come."""
        oldest = np.maximum(self.last_auction - self.shape.auctions_in_flight, 0)
        return oldest + self.below(field, self.last_auction - oldest + 1 + _ID_LEAD)

    def price(self, field: str) -> Numbers:
        """From 1 to 1,000,000 in cents, its logarithm evenly distributed: round(100 · 10^6u).

        By two tables and a product, which give the same on every machine; a vectorised power need not.
        """
        coarse, fine = _powers()
        mixed = self.random(field)
        high = coarse[(mixed >> np.uint64(48)).view(np.int64)]
        return np.rint(high * fine[(mixed >> np.uint64(32) & np.uint64(0xFFFF)).view(np.int64)]).astype(np.int64)


def _seller(events: Events) -> Numbers:
    hot = events.last_person // _HOT_GROUP * _HOT_GROUP
    return (
        np.where(events.below("seller.hot", events.shape.hot_seller_ratio) > 0, hot, events.any_person("seller"))
        + _FIRST_PERSON
    )


def _bidder(events: Events) -> Numbers:
    hot = events.last_person // _HOT_GROUP * _HOT_GROUP + 1
    return (
        np.where(events.below("bidder.hot", events.shape.hot_bidder_ratio) > 0, hot, events.any_person("bidder"))
        + _FIRST_PERSON
    )


def _bid_auction(events: Events) -> Numbers:
    hot = events.last_auction // _HOT_GROUP * _HOT_GROUP
    return (
        np.where(events.below("auction.hot", events.shape.hot_auction_ratio) > 0, hot, events.any_auction("auction"))
        + _FIRST_AUCTION
    )


def _expires(events: Events) -> Numbers:
    """Auctions last up to twice as long as it takes until there are as many as can be in flight."""
    events_ahead = events.shape.auctions_in_flight * EPOCH_EVENTS // _AUCTIONS
    horizon = int(events_ahead * events.timeline.interval) // 1000
    return events.times + (1 + events.below("expires", min(max(horizon * 2, 1), (1 << 31) - 1))) * 1000


def _channel(events: Events) -> Numbers:
    """Half of the bids come by one of four channels; these are the last of the pool."""
    hot = CHANNELS + events.below("channel", len(HOT_CHANNELS))
    return np.where(events.below("channel.hot", 2) > 0, hot, events.below("channel", CHANNELS))


_Column = Callable[[Events], Any]
_TIMESTAMPS: Final = {"datetime", "expires"}
_GENERATORS: Final[Mapping[str, Mapping[str, _Column]]] = {
    "person": {
        "id": lambda events: events.last_person + _FIRST_PERSON,
        "name": lambda events: events.pick("name", names()),
        "email_address": lambda events: events.pick("email", emails()),
        "credit_card": lambda events: events.pick("card", cards()),
        "city": lambda events: events.pick("city", cities()),
        "state": lambda events: events.pick("state", states()),
        "datetime": lambda events: events.times,
        "extra": lambda events: events.pick("person.extra", extras("person", 120)),
    },
    "auction": {
        "id": lambda events: events.last_auction + _FIRST_AUCTION,
        "item_name": lambda events: events.pick("item", texts("item", 20)),
        "description": lambda events: events.pick("description", texts("description", 100)),
        "initial_bid": lambda events: events.price("initial_bid"),
        "reserve": lambda events: events.price("initial_bid") + events.price("reserve"),
        "datetime": lambda events: events.times,
        "expires": _expires,
        "seller": _seller,
        "category": lambda events: events.below("category", _CATEGORIES) + _FIRST_CATEGORY,
        "extra": lambda events: events.pick("auction.extra", extras("auction", 380)),
    },
    "bid": {
        "auction": _bid_auction,
        "bidder": _bidder,
        "price": lambda events: events.price("price"),
        "channel": lambda events: channels()[0].take(pa.array(_channel(events))),
        "url": lambda events: channels()[1].take(pa.array(_channel(events))),
        "datetime": lambda events: events.times,
        "extra": lambda events: events.pick("bid.extra", extras("bid", 68)),
    },
}


def generate_column(column: pa.Field, events: Events) -> pa.Array:
    """One of the three columns, with the members that its type has; null where an event is of another kind."""
    offsets = events.offsets
    if column.name == "bid":  # nearly every event is one: values that are hidden cost less than leaving them out
        present = offsets > _AUCTIONS
        return _struct(column, events, present)
    present = offsets == 0 if column.name == "person" else (offsets > 0) & (offsets <= _AUCTIONS)
    some = Events(events.numbers[present], events.timeline, events.shape)
    values = _struct(column, some, np.ones(len(some.numbers), np.bool_))
    return values.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _struct(column: pa.Field, events: Events, present: npt.NDArray[np.bool_]) -> pa.Array:
    generators = _GENERATORS[column.name]
    members = [_array(generators[member.name](events), member.type) for member in column.type]
    validity = pa.array(present).buffers()[1]
    return pa.Array.from_buffers(column.type, len(present), [validity], children=members)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind) if isinstance(values, np.ndarray) else values


@cache
def _salt(field: str, seed: int) -> int:
    return random.Random(f"{field} {seed}" if seed else field).getrandbits(64)


@cache
def _powers() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    steps = range(1 << 16)
    coarse = [100 * 10 ** (6 * step / 2**16) for step in steps]
    return np.array(coarse), np.array([10 ** (6 * step / 2**32) for step in steps])
