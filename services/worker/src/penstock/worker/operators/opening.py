"""Opens operators with state: plans their queries, and puts them together by their kind."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import (
    HASH_COLUMN,
    OP_COLUMN,
    Operator,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.operators.corrected_tumbling import CorrectedTumblingWindows
from penstock.worker.operators.panes import Slide
from penstock.worker.operators.queries import Planning
from penstock.worker.operators.session import SessionWindows
from penstock.worker.operators.sliding import SlidingWindows
from penstock.worker.operators.tumbling import TumblingWindows
from penstock.worker.operators.updating import UpdatingAggregates
from penstock.worker.operators.window_function import WindowFunctions
from penstock.worker.state.budget import UNLIMITED, Budget

_HASH = pa.field(HASH_COLUMN, pa.int64())


async def open_operator(
    operator: Operator,
    rows: pa.Schema,
    engine: Planner,
    *,
    updating_ttl_ms: int = 0,
    budget: Budget = UNLIMITED,
) -> ChainOperator:
    """An operator for rows of a schema. `updating_ttl_ms` is for those that say no time to live; 0 is for ever."""
    if operator.output is None:
        raise InternalError(f"the operator {operator.key} has no output")
    hashed = rows.append(_HASH)
    results = pa.schema([field for field in operator.output if field.name != OP_COLUMN])
    async with Planning(engine) as planning:
        match operator.kind:
            case TumblingWindowAggregate(width_us, merge, final, lateness_us):
                queries = await planning.plan(merge, rows, rows), await planning.plan(final, rows, results)
                if lateness_us:
                    return CorrectedTumblingWindows(width_us, lateness_us, *queries, budget)
                return TumblingWindows(width_us, *queries, budget)
            case SlidingWindowAggregate(slide_us, width_us, merge, final, lateness_us):
                queries = await planning.plan(merge, rows, rows), await planning.plan(final, rows, results)
                return SlidingWindows(Slide(slide_us, width_us), lateness_us, *queries, budget)
            case SessionWindowAggregate(gap_us, merge, final):
                queries = await planning.plan(merge, rows, hashed), await planning.plan(final, rows, results)
                return SessionWindows(gap_us, *queries, budget)
            case UpdatingAggregate(merge, final, ttl_ms):
                queries = await planning.plan(merge, rows, hashed), await planning.plan(final, rows, results)
                return UpdatingAggregates((ttl_ms or updating_ttl_ms) * 1000, *queries, budget)
            case WindowFunction(sql):
                return WindowFunctions(await planning.plan(StageQuery(sql), rows, results), budget)
            case other:
                raise InternalError(f"the operator {operator.key} keeps no state: {type(other).__name__}")
