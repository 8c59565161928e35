from collections.abc import Iterator

from streams import Dataflow, Path, Row, sink, source


def in_euros(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        yield {
            "auction": row["auction"],
            "bidder": row["bidder"],
            "price": 0.908 * row["price"],
            "dateTime": row["dateTime"],
            "extra": row["extra"],
        }


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    sink(source(flow, files, "bid", in_euros), into)
