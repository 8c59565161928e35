from streams import Dataflow, Path, sink, source

NAMES = ("auction", "bidder", "price", "dateTime", "extra")


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    bids = source(flow, files, "bid", lambda rows: [{name: row[name] for name in NAMES} for row in rows])
    sink(bids, into)
