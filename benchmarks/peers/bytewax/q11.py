from datetime import datetime, timedelta

import bytewax.operators as op
from bytewax.operators.windowing import SessionWindower, fold_window
from streams import ALIGNED, Dataflow, Path, Row, clock, instant, sink, source, text_of

GAP = timedelta(seconds=10)
Session = tuple[int, datetime, datetime]
NONE: Session = (0, ALIGNED.max.replace(tzinfo=ALIGNED.tzinfo), ALIGNED.min.replace(tzinfo=ALIGNED.tzinfo))


def bidders(rows: list[Row]) -> list[tuple[str, datetime]]:
    return [(str(row["bidder"]), instant(row["dateTime"])) for row in rows]


def merged(one: Session, other: Session) -> Session:
    return one[0] + other[0], min(one[1], other[1]), max(one[2], other[2])


def result(keyed: tuple[str, tuple[int, Session]]) -> Row:
    bidder, (_, (count, first, last)) = keyed
    return {
        "bidder": int(bidder),
        "bid_count": count,
        "starttime": text_of(first),
        "endtime": text_of(last + GAP),
    }


def build(flow: Dataflow, files: Path, into: Path | None) -> None:
    windows = fold_window(
        "sessions",
        source(flow, files, "bid", bidders),
        clock(lambda time: time),
        SessionWindower(gap=GAP),
        lambda: NONE,
        lambda session, time: merged(session, (1, time, time)),
        merged,
    )
    sink(op.map("named", windows.down, result), into)
