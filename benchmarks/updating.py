"""What a batch costs an updating aggregate that keeps few keys, and one that keeps many: 5,000 keys of either touched.

The operator is a compiled query's, with its fragments in a real engine, and is driven as a worker drives it: partial
results of a batch go in, and a flush lets their changes out. Both are in one process and take turns, batch by batch.
Only the operator's own time counts, not that of making partial results, which does not know of any state.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from local_job import compiled, run
from report import options, show

from penstock.common.program import ArrowKey, Operator, UpdatingAggregate
from penstock.spark import Engine, Fragment
from penstock.spark.testing import spark_settings
from penstock.worker.fragments import fragment_spec
from penstock.worker.operators.base import ChainOperator
from penstock.worker.operators.opening import open_operator

TOUCHED: Final = 5000
FEW: Final = 10_000
MANY: Final = 2_000_000
FILLED: Final = 100_000
WARMING: Final = 30
SQL: Final = """
CREATE TABLE payments (k BIGINT NOT NULL, v BIGINT NOT NULL, ts TIMESTAMP NOT NULL, WATERMARK FOR ts)
WITH (connector = 'filesystem', path = '/nowhere');
SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM payments GROUP BY k;
"""
COLUMNS: Final = {
    "keys": ",d",
    "touched": ",d",
    "batches": ",d",
    "median_ms": ".2f",
    "mean_ms": ".2f",
    "p90_ms": ".2f",
    "state_MB": ".1f",
}


@dataclass
class Aggregate:
    """An operator that keeps so many keys."""

    keys: int
    partial: Fragment
    operator: ChainOperator
    milliseconds: list[float] = field(default_factory=list)

    async def fill(self) -> None:
        """Touches every key once."""
        for begin in range(0, self.keys, FILLED):
            await self.touch(np.arange(begin, min(begin + FILLED, self.keys)))
        self.milliseconds.clear()

    async def touch(self, keys: npt.NDArray[np.int64]) -> None:
        """A batch with a row of each of some keys."""
        changes = (await self.partial.observe([_payments(keys)], None)).batches
        started = time.perf_counter()
        await self.operator.process(changes)
        await self.operator.flush()
        self.milliseconds.append((time.perf_counter() - started) * 1000)

    def figures(self) -> dict[str, Any]:
        counted = self.milliseconds[WARMING:]
        return {
            "keys": self.operator.state_rows,
            "touched": TOUCHED,
            "batches": len(counted),
            "median_ms": statistics.median(counted),
            "mean_ms": statistics.mean(counted),
            "p90_ms": statistics.quantiles(counted, n=10)[-1],
            "state_MB": self.operator.state_bytes / 1e6,
        }


def _payments(keys: npt.NDArray[np.int64]) -> pa.RecordBatch:
    times = pa.array(np.full(keys.size, 1_767_225_600_000_000)).view(pa.timestamp("us"))
    return pa.record_batch({"k": keys, "v": keys % 1000, "ts": times, "_timestamp": times}, schema=_SCHEMA)


_TIME: Final = pa.timestamp("us")
_SCHEMA: Final = pa.schema(
    [pa.field(name, kind, nullable=False) for name, kind in
     (("k", pa.int64()), ("v", pa.int64()), ("ts", _TIME), ("_timestamp", _TIME))]
)  # fmt: skip


async def opened(engine: Engine, keys: int) -> Aggregate:
    """The operator of the compiled query and the fragment in front of it, filled."""
    aggregate = await planned(engine, keys)
    await aggregate.fill()
    return aggregate


async def planned(engine: Engine, keys: int = 0) -> Aggregate:
    """The same without any key."""
    program = await compiled(engine, SQL)
    operators = [operator for node in program.nodes for operator in node.operators]
    (partial,) = (one for one in operators if isinstance(one.kind, ArrowKey))
    (updating,) = (one for one in operators if isinstance(one.kind, UpdatingAggregate))
    return Aggregate(keys, await _planned(engine, partial), await _opened(engine, updating, partial))


async def _planned(engine: Engine, partial: Operator) -> Fragment:
    assert isinstance(partial.kind, ArrowKey)
    return await engine.plan(fragment_spec(partial.kind.query, _SCHEMA, partial.output))


async def _opened(engine: Engine, updating: Operator, partial: Operator) -> ChainOperator:
    assert partial.output is not None
    return await open_operator(updating, partial.output, engine)


async def main() -> None:
    arguments = options(__doc__)
    batches = 60 if arguments.quick else 300
    async with await Engine.start(spark_settings()) as engine:
        few, many = await opened(engine, FEW), await opened(engine, MANY)
        random = np.random.default_rng(batches)
        for _ in range(WARMING + batches):
            for aggregate in (few, many):
                await aggregate.touch(random.choice(aggregate.keys, TOUCHED, replace=False))
        rows = [few.figures(), many.figures()]
    # The mean has what is done only now and then: slabs of many keys that are written anew.
    ratios = {f"times_few_keys_{name}": rows[1][f"{name}_ms"] / rows[0][f"{name}_ms"] for name in ("median", "mean")}
    show({"benchmark": "updating", "rows": rows, **ratios}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
