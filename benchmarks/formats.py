"""JSON lines to rows and back, by Penstock and by the readers and writers that it could be made of, on one core."""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # polars reads it when it is imported

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from report import options, show

from penstock.connectors.formats.json import JsonDecoder, JsonEncoder
from penstock.connectors.formats.lines import Lines
from penstock.connectors.nexmark import generate_events
from penstock.connectors.nexmark_events import COLUMNS, Timeline
from penstock.spark import Engine
from penstock.spark.testing import spark_settings

BLOCK_ROWS = 50_000
BIDS = pa.schema(list(COLUMNS.field("bid").type))
TWO = pa.schema([BIDS.field("auction"), BIDS.field("price")])
DUCKDB_TYPES = {pa.int64(): "BIGINT", pa.string(): "VARCHAR", pa.timestamp("us"): "TIMESTAMP"}


def bids(count: int) -> list[pa.RecordBatch]:
    """Nexmark's bids in blocks, their filler cut so that a line has about 200 bytes."""
    timeline = Timeline(start=1_700_000_000_000_000, interval=100)
    events = generate_events(pa.schema([COLUMNS.field("bid")]), np.arange(count * 50 // 46 + 50), timeline)
    rows = pa.RecordBatch.from_struct_array(events.column("bid").drop_null())
    rows = rows.set_column(6, "extra", pc.utf8_slice_codeunits(rows.column("extra"), 0, 8))
    return [rows.slice(start, min(BLOCK_ROWS, count - start)) for start in range(0, count, BLOCK_ROWS)]


def decoders(schema: pa.Schema, engine: Engine) -> Mapping[str, Callable[[bytes], Any]]:
    """The others do less: none says which lines are bad and why, and only pyarrow notices a value of a wrong type."""
    connection = duckdb.connect(config={"threads": 1})
    structure = json.dumps({field.name: DUCKDB_TYPES[field.type] for field in schema})
    polars_schema = {field.name: pl.Int64 if field.type == pa.int64() else pl.String for field in schema}
    parse_options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def by_pyarrow(block: bytes) -> Any:
        read_options = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        return pa.json.read_json(pa.BufferReader(block), read_options=read_options, parse_options=parse_options)

    def by_duckdb(block: bytes) -> Any:
        offsets = np.append(Lines.split(block).starts, len(block))
        lines = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(block))
        connection.register("lines", pa.table({"line": lines}))
        return connection.sql(f"SELECT unnest(from_json(line, '{structure}')) FROM lines").to_arrow_table()

    return {
        "penstock": JsonDecoder(schema, parsers=engine).decode,
        "penstock (no engine)": JsonDecoder(schema).decode,
        "pyarrow.json": by_pyarrow,
        "polars (no timestamps)": lambda block: pl.read_ndjson(block, schema=polars_schema),
        "duckdb (from_json)": by_duckdb,
        "json (to dicts)": lambda block: [json.loads(line) for line in block.splitlines()],
    }


def encoders() -> Mapping[str, Callable[[pa.RecordBatch], Any]]:
    connection = duckdb.connect(config={"threads": 1})

    def by_duckdb(rows: pa.RecordBatch) -> Any:
        connection.register("rows", pa.Table.from_batches([rows]))
        return connection.sql("SELECT to_json(rows) FROM rows").to_arrow_table()

    return {
        "penstock": JsonEncoder(BIDS).encode,
        "polars (write_ndjson)": lambda rows: pl.DataFrame(rows).write_ndjson(),
        "polars (json_encode)": lambda rows: pl.DataFrame(rows).select(pl.struct(pl.all()).struct.json_encode()),
        "duckdb (to_json)": by_duckdb,
        "json (of dicts)": lambda rows: [json.dumps(row, default=str) for row in rows.to_pylist()],
    }


def best_seconds(
    ways: Mapping[str, Callable[[Any], Any]], blocks: Sequence[Any], repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """The least processor time of each way, taken in turns: a machine that is busy otherwise does not count."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            started = clock()
            for block in blocks:
                way(block)
            seconds[name] = min(seconds[name], clock() - started)
    return seconds


def clock_of(engine: Engine) -> Callable[[], float]:
    """Processor seconds of this process and of the engine's."""
    jvm = psutil.Process(engine.pid)

    def seconds() -> float:
        times = jvm.cpu_times()
        return float(time.process_time() + times.user + times.system)

    return seconds


async def main() -> None:
    arguments = options(__doc__)
    count, repeats = (100_000, 2) if arguments.quick else (1_000_000, 3)
    batches = bids(count)
    encoder = JsonEncoder(BIDS)
    blocks = [encoder.encode(batch) for batch in batches]
    size = sum(map(len, blocks))
    bad = [b"\n".join(_spoilt(block.split(b"\n"))) for block in blocks]
    rows: list[dict[str, Any]] = []
    async with await Engine.start(spark_settings()) as engine:
        tasks = {
            "decode 7 of 7": (decoders(BIDS, engine), blocks),
            "decode 2 of 7": (decoders(TWO, engine), blocks),
            "decode, 0.1% bad": ({"penstock": JsonDecoder(BIDS, parsers=engine).decode}, bad),
            "encode": (encoders(), batches),
        }
        for task, (ways, parts) in tasks.items():
            seconds = await asyncio.to_thread(best_seconds, ways, parts, repeats, clock_of(engine))
            for name, taken in seconds.items():
                figures = {"million_rows_s": count / taken / 1e6, "MB_s": size / taken / 1e6}
                rows.append({"task": task, "way": name, **figures, "ratio": seconds["penstock"] / taken})
    result = {"benchmark": "formats", "rows": rows, "line_bytes": size / count}
    columns = {"task": "", "way": "", "million_rows_s": ".2f", "MB_s": ".0f", "ratio": ".2f"}
    show(result, columns, arguments.json)


def _spoilt(lines: list[bytes]) -> list[bytes]:
    """Every thousandth line cut short."""
    return [line[:-20] if index % 1000 == 500 else line for index, line in enumerate(lines)]


if __name__ == "__main__":
    asyncio.run(main())
