from streams import Dataflow, Path, Row, sink, source


def selected(rows: list[Row]) -> list[Row]:
    return [{"auction": row["auction"], "price": row["price"]} for row in rows if row["auction"] % 123 == 0]


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    sink(source(flow, files, "bid", selected), into)
