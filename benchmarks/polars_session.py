"""Polars in a process of its own, in an environment of its own: a query of windows a line, over files of JSON lines.

Reads JSON objects with `files`, `slide_ms`, `width_ms`, `tumbles` and `into`, a file or null; answers each with its
`seconds`. Knows nothing of Penstock.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any


def query(pl: Any, job: dict[str, Any]) -> Any:
    """Windows that tumble are one aggregate; others are made of panes, which is the least work for it."""
    slide = job["slide_ms"]
    events = pl.scan_ndjson(job["files"], schema={"t": pl.Int64, "k": pl.Int64, "v": pl.Int64})
    grouped = events.group_by((pl.col("t") // slide * slide).alias("w"), "k")
    count, value = pl.len().cast(pl.Int64).alias("n"), pl.col("v")
    if job["tumbles"]:
        return grouped.agg(count, value.sum().alias("s"), value.max().alias("m"))
    panes = grouped.agg(count)
    moved = [panes.with_columns(pl.col("w") - back) for back in range(0, job["width_ms"], slide)]
    return pl.concat(moved).group_by("w", "k").agg(pl.col("n").sum())


def answer(pl: Any, job: dict[str, Any]) -> dict[str, object]:
    """What is said of a query."""
    started = time.perf_counter()
    rows = query(pl, job).collect(engine="streaming")
    seconds = time.perf_counter() - started
    if job["into"] is not None:
        rows.with_columns(pl.from_epoch("w", time_unit="ms").dt.to_string("iso:strict")).write_ndjson(job["into"])
    return {"seconds": seconds}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pl = importlib.import_module("polars")
    print(json.dumps(pl.__version__), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(pl, json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
