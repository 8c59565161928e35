"""Structured Streaming: a micro-batch a file, two shuffle partitions, its state in memory, into `noop`.

It has the Spark and the Java of Penstock, in a JVM of its own with a heap as large as all memory of Penstock's.
Where it has no way to say a query, the text is the nearest that a user would try, and the reason is Spark's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from peers.base import ResultForm
from peers.events import Files
from peers.queries import Query
from sessions import Command

_BENCHMARKS: Final = Path(__file__).parents[1]
_TEXTS: Final = Path(__file__).with_name("spark")
_SCHEMAS: Final = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, dateTime TIMESTAMP, "
    "expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime TIMESTAMP, extra STRING",
}


class StructuredStreaming:
    """Spark's own streams."""

    name = "spark"
    version = f"pyspark=={version('pyspark')}, Structured Streaming"
    form = ResultForm.STEPS

    def __init__(self, heap_bytes: int) -> None:
        self._heap_bytes = heap_bytes

    def prepare(self) -> Command:
        arguments = [sys.executable, "-m", "peers.spark_session", str(self._heap_bytes)]
        return Command(arguments, {"PYTHONPATH": str(_BENCHMARKS)})

    def job(self, query: Query, files: Files, into: Path | None) -> Mapping[str, object]:
        text = (_TEXTS / f"{query.name}.sql").read_text()
        mode = re.match(r"-- (append|update|complete)\b", text)
        assert mode is not None, f"the first line of {query.name}.sql is its output mode"
        tables = {table: {"schema": _SCHEMAS[table], "path": str(files.by_time / table)} for table in query.tables}
        return {
            "tables": tables,
            "sql": text,
            "mode": mode[1],
            "columns": [column.name for column in query.columns],
            "into": into and str(into),
        }
