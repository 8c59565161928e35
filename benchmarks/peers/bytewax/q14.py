from collections.abc import Iterator

from streams import Dataflow, Path, Row, sink, source


def calculated(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        price = 0.908 * row["price"]
        if 1_000_000 < price < 50_000_000:
            yield {
                "auction": row["auction"],
                "bidder": row["bidder"],
                "price": price,
                "bidTimeType": time_type(int(row["dateTime"][11:13])),
                "dateTime": row["dateTime"],
                "extra": row["extra"],
                "c_counts": row["extra"].count("c"),
            }


def time_type(hour: int) -> str:
    if 8 <= hour <= 18:
        return "dayTime"
    return "nightTime" if hour <= 6 or hour >= 20 else "otherTime"


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    sink(source(flow, files, "bid", calculated), into)
