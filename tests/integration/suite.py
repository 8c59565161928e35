"""The reference queries on a whole cluster: from files into files that are committed, many queries in one pipeline.

Views, tables and functions of a query get names of its own; lookup tables are files that the workers look into.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from reference.comparison import Row, difference
from reference.data import TABLE_NAMES, TABLES, Dataset
from reference.lookups import LOOKUP_TABLES, declared
from reference.oracles import answer
from reference.queries import Query

from penstock.connectors.formats.json_encoder import JsonEncoder
from penstock.spark import Engine

MANY_TASKS: Final = {"SPARK__HEAP": "1GiB", "CONTROLLER__START_TIMEOUT": "280s"}
"""Settings for pipelines of a dozen queries: on a busy machine with few cores their hundreds of tasks take a while to
be planned, and to begin anew with cold workers would take no less."""
_CREATED: Final = re.compile(r"CREATE (?:VIEW|TABLE|FUNCTION) (\w+)")
_CENTURY: Final = "36500 days"
"""Rows of 1970 are joined with rows of 2024: with less, which of them meet would depend on which file is read first."""


def write_tables(data: Dataset, folder: Path) -> None:
    """A folder for each table, and in it a file for each partition; a file for each lookup table."""
    for table in TABLE_NAMES:
        (folder / table).mkdir(parents=True)
        for number, rows in enumerate(data.partitions(table)):
            encoder = JsonEncoder(rows.schema)
            lines = b"".join(map(encoder.encode, rows.to_batches()))
            (folder / table / f"{number}.json").write_bytes(lines)
    for table, rows in LOOKUP_TABLES.items():
        pyarrow.parquet.write_table(rows, folder / f"{table}.parquet")


def pipeline_of(queries: Sequence[Query], tables: Path, results: Path, *, checkpoint_interval: str) -> str:
    """All of the queries as one pipeline, each into a folder of its own."""
    sources = TABLES
    for table in TABLE_NAMES:
        sources = sources.replace(
            f"connector = 'single_file', path = '{table}'", f"connector = 'filesystem', path = '{tables / table}'"
        )
    lookups = declared(lambda table: f"connector = 'single_file', path = '{tables / table}.parquet'")
    statements = "\n".join(_statements(query, results) for query in queries)
    settings = f"SET checkpoint_interval = '{checkpoint_interval}';\nSET updating_ttl = '{_CENTURY}';"
    return f"{settings}\n{sources}\n{lookups}\n{statements}"


def _statements(query: Query, results: Path) -> str:
    """What a query says, with names of its own for the views, tables and functions that it makes."""
    sql = query.sql.strip().rstrip(";")
    for name in _CREATED.findall(sql):
        sql = re.sub(rf"\b{name}\b", f"{name}_of_{query.name}", sql)
    *before, asked = sql.split(";")
    form = "debezium_json" if query.updating else "json"
    sink = (
        f"CREATE TABLE result_{query.name} WITH (connector = 'filesystem', path = '{results / query.name}',"
        f" format = '{form}') AS {asked.strip()};"
    )
    return "".join(f"{statement.strip()};\n" for statement in before) + sink


async def check(queries: Sequence[Query], data: Dataset, results: Path, engine: Engine) -> None:
    """Compares the committed files of all queries with the answers of a batch engine."""
    found = {query.name: await _problem_of(query, data, results, engine) for query in queries}
    wrong = {name: problem for name, problem in found.items() if problem is not None}
    assert not wrong, "\n\n".join(f"{name}:\n{problem}" for name, problem in wrong.items())


async def _problem_of(query: Query, data: Dataset, results: Path, engine: Engine) -> str | None:
    """How the committed files of a query differ from the answer of a batch engine; None when they do not."""
    expected = _as_json(await answer(query, data, engine))
    lines = _lines(results / query.name)
    found = list(_left_by(lines)) if query.updating else list(map(_row, lines))
    names = (lines[0]["after"] or lines[0]["before"] if query.updating else lines[0]) if lines else ()
    approximate = [place for place, name in enumerate(names) if name in query.approximate]
    return difference(found, list(map(_row, expected)), approximate)


def _lines(folder: Path) -> list[Any]:
    """Numbers as decimals, which tells that they may have been cut behind the point."""
    parts = sorted(path for path in folder.glob("*") if not path.name.startswith("."))
    return [json.loads(line, parse_float=Decimal) for part in parts for line in part.read_bytes().splitlines()]


def _left_by(envelopes: Sequence[Any]) -> Iterator[Row]:
    """What changes leave, whichever file each is in."""
    present: Counter[Row] = Counter()
    for envelope in envelopes:
        if envelope["before"] is not None:
            present[_row(envelope["before"])] -= 1
        if envelope["after"] is not None:
            present[_row(envelope["after"])] += 1
    broken = [row for row, count in present.items() if count < 0]
    assert not broken, f"rows are taken back that are not there: {broken[:5]}"
    return present.elements()


def _as_json(table: pa.Table) -> list[Any]:
    table = table.rename_columns([f"c{place}" for place in range(table.num_columns)])  # a name may be there twice
    for place, field in enumerate(table.schema):
        if pa.types.is_interval(field.type):  # DuckDB's, which have months and days
            lengths = [_duration(length) for length in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(lengths, pa.duration("us")))
    encoder = JsonEncoder(table.schema)
    return [json.loads(line) for batch in table.to_batches() for line in encoder.encode(batch).splitlines()]


def _duration(length: pa.MonthDayNano | None) -> timedelta | None:
    if length is None:
        return None
    assert not length.months
    return timedelta(days=length.days, microseconds=length.nanoseconds // 1000)


def _row(value: dict[str, Any]) -> Row:
    """Columns by their places: the engines name them differently."""
    return tuple(map(_plain, value.values()))


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return tuple(map(_plain, value.values()))
        case list():
            return tuple(map(_plain, value))
        case _:
            return value
