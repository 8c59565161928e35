"""What a batch costs a join whose sides keep few rows, and one whose sides keep many: 5,000 rows of either side come.

The operators are those of compiled queries, with their fragments in a real engine, and are driven as a worker drives
them. Those with few and with many rows are in one process and take turns, batch by batch. A row that comes is of a key
that no row has come for, and so meets one row in either: the one with few rows is filled anew when it has no such key
left. What does not fit the state's budget is in files.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from local_job import compiled, run
from report import options, show

from penstock.common.program import HASH_COLUMN, Join, JoinSide, Operator
from penstock.spark import Engine
from penstock.spark.testing import spark_settings
from penstock.worker.operators.base import ChainOperator
from penstock.worker.operators.opening import open_operator
from penstock.worker.state.budget import Budget

CAME: Final = 5000
FEW: Final = 50_000
MANY: Final = 5_000_000
FILLED: Final = 50_000
WARMING: Final = 20
BUDGET_BYTES: Final = 1 << 30
TABLES: Final = """
CREATE TABLE orders (id BIGINT NOT NULL, price BIGINT NOT NULL, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
WITH (connector = 'filesystem', path = '/nowhere');
CREATE TABLE payments (id BIGINT NOT NULL, paid BIGINT NOT NULL, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
WITH (connector = 'filesystem', path = '/nowhere');
"""
QUERIES: Final = {
    "rows that stay, inner": "SELECT o.id, o.price, p.paid FROM orders o JOIN payments p ON o.id = p.id",
    "rows that stay, left": "SELECT o.id, o.price, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.id",
}
COLUMNS: Final = {
    "join": "s",
    "rows_a_side": ",d",
    "came": ",d",
    "batches": ",d",
    "median_ms": ".2f",
    "mean_ms": ".2f",
    "p90_ms": ".2f",
    "state_MB": ".1f",
    "in_memory_MB": ".1f",
    "spilled_MB": ".1f",
}
_TIME: Final = 1_767_225_600_000_000


@dataclass
class Joined:
    """Operators of a compiled query, one after the other, each of which keeps so many rows of each side."""

    engine: Engine
    join: Operator
    rows: int
    folder: Path
    sides: Sequence[JoinSide] = field(init=False)
    operator: ChainOperator = field(init=False)
    budget: Budget = field(init=False)
    coming: list[npt.NDArray[np.int64]] = field(init=False)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    milliseconds: list[float] = field(default_factory=list)

    async def fill(self) -> None:
        """Opens an operator, and gives each side its rows."""
        assert isinstance(self.join.kind, Join)
        self.sides = (self.join.kind.left, self.join.kind.right)
        self.budget = Budget(BUDGET_BYTES, self.folder)
        self.operator = await open_operator(self.join, self.sides[0].rows, self.engine, budget=self.budget)
        for begin in range(0, self.rows, FILLED):
            for side in self.sides:
                await self.operator.process((_batch(side.rows, np.arange(begin, min(begin + FILLED, self.rows))),))
            await self.operator.flush()
        keys = self.random.permutation(self.rows)
        # One half of the keys is for rows of the left, the other for those of the right: none is met by what came.
        self.coming = np.split(keys[: self.rows // (2 * CAME) * 2 * CAME], self.rows // (2 * CAME) * 2)

    async def take(self) -> None:
        """Rows of keys that the other side has, of one side and then of the other."""
        if not self.coming:
            await self.operator.close()
            await self.fill()
            await self._timed(0)  # what a new operator does once is not counted
            await self._timed(1)
        self.milliseconds += [await self._timed(place) for place in (0, 1)]

    async def _timed(self, place: int) -> float:
        batch = _batch(self.sides[place].rows, self.coming.pop())
        started = time.perf_counter()
        left = [*await self.operator.process((batch,)), *await self.operator.flush()]
        taken = time.perf_counter() - started
        came = sum(rows.num_rows for rows in left)
        if came < CAME:
            raise SystemExit(f"{CAME} rows gave {came}")
        return taken * 1000

    def figures(self, name: str) -> dict[str, Any]:
        counted = self.milliseconds[WARMING:]
        return {
            "join": name,
            "rows_a_side": self.rows,
            "came": CAME,
            "batches": len(counted),
            "median_ms": statistics.median(counted),
            "mean_ms": statistics.mean(counted),
            "p90_ms": statistics.quantiles(counted, n=10)[-1],
            "state_MB": self.operator.state_bytes / 1e6,
            "in_memory_MB": self.budget.held_bytes / 1e6,
            "spilled_MB": self.budget.spilled_bytes / 1e6,
        }


def _batch(schema: pa.Schema, keys: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """A row of each key."""
    columns = [
        pa.array(np.full(keys.size, _TIME)).view(found.type) if pa.types.is_timestamp(found.type)
        else pa.array(np.ones(keys.size, np.int64)) if found.name == "_n"
        else pa.array(_hashes(keys)) if found.name == HASH_COLUMN
        else pa.array(keys.astype(np.int64))
        for found in schema
    ]  # fmt: skip
    return pa.record_batch(columns, schema=schema)


def _hashes(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers that follow each other, as far apart as hashes are (the finish of SplitMix64)."""
    mixed = keys.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).view(np.int64)


async def filled(engine: Engine, name: str, rows: int, folder: Path) -> Joined:
    """The operator of the compiled query with its rows; what does not fit its budget is in files."""
    program = await compiled(engine, TABLES + QUERIES[name] + ";")
    (join,) = (one for node in program.nodes for one in node.operators if isinstance(one.kind, Join))
    joined = Joined(engine, join, rows, folder)
    await joined.fill()
    return joined


async def main() -> None:
    arguments = options(__doc__)
    many, rounds = (500_000, 30) if arguments.quick else (MANY, 100)
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    async with await Engine.start(spark_settings()) as engine:
        for name in QUERIES:
            with tempfile.TemporaryDirectory() as folder:
                both = [await filled(engine, name, count, Path(folder)) for count in (FEW, many)]
                for _ in range(WARMING + rounds):
                    for joined in both:
                        await joined.take()
                figures = [joined.figures(name) for joined in both]
                rows += figures
                ratios[name] = figures[1]["median_ms"] / figures[0]["median_ms"]
                for joined in both:
                    await joined.operator.close()
    show({"benchmark": "joins", "rows": rows, **{f"ratio, {name}": value for name, value in ratios.items()}},
         COLUMNS, arguments.json)  # fmt: skip


if __name__ == "__main__":
    run(main())
