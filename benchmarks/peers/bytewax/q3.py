from typing import Any

import bytewax.operators as op
from streams import Dataflow, Path, Row, sink, source

Kept = tuple[Row | None, list[int]]


def sellers(rows: list[Row]) -> list[tuple[str, Any]]:
    return [(str(row["id"]), row) for row in rows if row["state"] in ("OR", "ID", "CA")]


def auctions(rows: list[Row]) -> list[tuple[str, Any]]:
    return [(str(row["seller"]), row["id"]) for row in rows if row["category"] == 10]


def meet(kept: Kept | None, item: Any) -> tuple[Kept, list[Row]]:
    """Keeps a person and the auctions before it; gives each pair when the second of the two comes."""
    person, waiting = kept or (None, [])
    if isinstance(item, dict):
        return (item, []), [_result(item, auction) for auction in waiting]
    if person is None:
        return (None, [*waiting, item]), []
    return (person, []), [_result(person, item)]


def _result(person: Row, auction: int) -> Row:
    return {"name": person["name"], "city": person["city"], "state": person["state"], "id": auction}


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    both = op.merge("both", source(flow, files, "person", sellers), source(flow, files, "auction", auctions))
    met = op.stateful_map("meet", both, meet)
    sink(op.flat_map("pairs", met, lambda keyed: keyed[1]), into)
