"""The queries of Nexmark that engines are compared by: what each reads, what its results look like, what is compared.

Results are compared as they are after the last change. Where the question leaves something open (which of two bids of
one millisecond is the last), only what it does say is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CLOSING_ID: Final = -1
"""Every id of the closing events, which no other event has."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result; `kind` is BIGINT, DOUBLE, STRING or TIMESTAMP, which every engine has a name for."""

    name: str
    kind: str = "BIGINT"


@dataclass(frozen=True, slots=True)
class Query:
    """A query, whatever language it is said in."""

    name: str
    question: str
    tables: tuple[str, ...]
    columns: tuple[Column, ...]
    updates: bool = False
    """Its results are changes of earlier ones; `key` then tells which."""
    key: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    """The columns that have one right answer; all, if none is named."""
    counted: str | None = None
    """A condition on results; those of closing events are nobody's answer."""

    @property
    def answers(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not self.compared or column.name in self.compared)


def _columns(text: str) -> tuple[Column, ...]:
    """`auction, price double`: BIGINT where nothing is said."""
    parts = (part.split() for part in text.split(","))
    return tuple(Column(part[0], part[1].upper() if part[1:] else "BIGINT") for part in parts)


_BID: Final = "auction, bidder, price, channel string, url string, dateTime timestamp, extra string"
_RANKS: Final = "total_bids, rank1_bids, rank2_bids, rank3_bids"
_DISTINCT: Final = ", ".join(
    f"{rank}_{what}" for what in ("bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")
)
_OF_AUCTIONS: Final = f"auction <> {CLOSING_ID}"
_OF_BIDDERS: Final = f"bidder <> {CLOSING_ID}"
_BIDS: Final = ("bid",)

QUERIES: Final[Sequence[Query]] = (
    Query(
        "q0",
        "every bid as it is",
        _BIDS,
        _columns("auction, bidder, price, dateTime timestamp, extra string"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q1",
        "prices in euros",
        _BIDS,
        _columns("auction, bidder, price double, dateTime timestamp, extra string"),
        counted=_OF_AUCTIONS,
    ),
    Query("q2", "bids on one auction of 123", _BIDS, _columns("auction, price"), counted=_OF_AUCTIONS),
    Query(
        "q3",
        "who sells in a category and lives in three states",
        ("auction", "person"),
        _columns("name string, city string, state string, id"),
        counted=f"id <> {CLOSING_ID}",
    ),
    Query(
        "q4",
        "the average closing price of each category",
        ("auction", "bid"),
        _columns("id, final"),
        updates=True,
        key=("id",),
        counted=f"id <> {CLOSING_ID}",
    ),
    Query(
        "q5",
        "the auctions with the most bids of the last 10 s, every 2 s",
        _BIDS,
        _columns("auction, num, starttime timestamp, endtime timestamp"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q7",
        "the highest bids of each 10 s",
        _BIDS,
        _columns("auction, bidder, price, dateTime timestamp, extra string"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q8",
        "persons who sell something in the 10 s in which they came",
        ("person", "auction"),
        _columns("id, name string, stime timestamp"),
        counted=f"id <> {CLOSING_ID}",
    ),
    Query(
        "q11",
        "bids of each bidder until a pause of 10 s",
        _BIDS,
        _columns("bidder, bid_count, starttime timestamp, endtime timestamp"),
        counted=_OF_BIDDERS,
    ),
    Query(
        "q12",
        "bids of each bidder in each 10 s",
        _BIDS,
        _columns("bidder, bid_count, starttime timestamp, endtime timestamp"),
        counted=_OF_BIDDERS,
    ),
    Query(
        "q14",
        "bids of a range of prices, with a time of day and a count of letters",
        _BIDS,
        _columns(
            "auction, bidder, price double, bidTimeType string, dateTime timestamp, extra string, c_counts",
        ),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q15",
        "bids, bidders and auctions of each day and range of prices",
        _BIDS,
        _columns(f"day string, {_RANKS}, {_DISTINCT}"),
        updates=True,
        key=("day",),
    ),
    Query(
        "q17",
        "bids of each auction and day",
        _BIDS,
        _columns(f"auction, day string, {_RANKS}, min_price, max_price, avg_price, sum_price"),
        updates=True,
        key=("auction", "day"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q18",
        "the last bid of each bidder on each auction",
        _BIDS,
        _columns(_BID),
        updates=True,
        key=("bidder", "auction"),
        compared=("bidder", "auction", "dateTime"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q19",
        "the ten highest bids on each auction",
        _BIDS,
        _columns(f"{_BID}, rank_number"),
        updates=True,
        key=("auction", "rank_number"),
        compared=("auction", "price", "dateTime", "rank_number"),
        counted=_OF_AUCTIONS,
    ),
    Query(
        "q20",
        "bids on auctions of a category, with the auction",
        ("bid", "auction"),
        _columns(
            f"{_BID}, itemName string, description string, initialBid, reserve, auctionDateTime timestamp, "
            "expires timestamp, seller, category, auctionExtra string"
        ),
        counted=_OF_AUCTIONS,
    ),
)
