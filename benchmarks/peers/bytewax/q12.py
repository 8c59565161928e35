from datetime import datetime, timedelta

import bytewax.operators as op
from bytewax.operators.windowing import TumblingWindower, fold_window
from streams import ALIGNED, Dataflow, Path, Row, clock, instant, sink, source, text_of

WIDTH = timedelta(seconds=10)


def bidders(rows: list[Row]) -> list[tuple[str, datetime]]:
    return [(str(row["bidder"]), instant(row["dateTime"])) for row in rows]


def result(keyed: tuple[str, tuple[int, int]]) -> Row:
    bidder, (window, count) = keyed
    start = ALIGNED + window * WIDTH
    return {
        "bidder": int(bidder),
        "bid_count": count,
        "starttime": text_of(start),
        "endtime": text_of(start + WIDTH),
    }


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    windows = fold_window(
        "windows",
        source(flow, files, "bid", bidders),
        clock(lambda time: time),
        TumblingWindower(length=WIDTH, align_to=ALIGNED),
        lambda: 0,
        lambda count, _: count + 1,
        lambda one, other: one + other,
        ordered=False,
    )
    sink(op.map("named", windows.down, result), into)
