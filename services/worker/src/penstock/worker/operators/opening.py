"""Opens operators with state: plans their queries, and puts them together by their kind."""

from __future__ import annotations

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import (
    HASH_COLUMN,
    LAST_COLUMN,
    LEFT,
    OP_COLUMN,
    RIGHT,
    InstantJoin,
    Join,
    Operator,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.operators.corrected_tumbling import CorrectedTumblingWindows
from penstock.worker.operators.instant_join import InstantJoins
from penstock.worker.operators.join import Joins, RowsThatChange, RowsThatStay, Side
from penstock.worker.operators.panes import Slide
from penstock.worker.operators.queries import Planning
from penstock.worker.operators.session import SessionWindows
from penstock.worker.operators.sides import Sides
from penstock.worker.operators.sliding import SlidingWindows
from penstock.worker.operators.temporal_join import TemporalJoins
from penstock.worker.operators.tumbling import TumblingWindows
from penstock.worker.operators.updating import UpdatingAggregates
from penstock.worker.operators.window_function import WindowFunctions
from penstock.worker.state.budget import UNLIMITED, Budget
from penstock.worker.state.lifetimes import Clock, Lifetime, SteadyClock, system_clock

_HASH = pa.field(HASH_COLUMN, pa.int64())
_LAST = pa.field(LAST_COLUMN, pa.bool_())


async def open_operator(
    operator: Operator,
    rows: pa.Schema,
    engine: Planner,
    *,
    updating_ttl_ms: int = 0,
    budget: Budget = UNLIMITED,
    clock: Clock = system_clock,
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
            case UpdatingAggregate(merge, final, ttl_ms, ttl_time):
                queries = await planning.plan(merge, rows, hashed), await planning.plan(final, rows, results)
                return UpdatingAggregates(_lifetime(ttl_ms or updating_ttl_ms, ttl_time, clock), *queries, budget)
            case WindowFunction(sql):
                return WindowFunctions(await planning.plan(StageQuery(sql), rows, results), budget)
            case InstantJoin(left, right, sql):
                sides = Sides(left, right)
                return InstantJoins(sides, await planning.plan_join(sql, sides, results), budget)
            case Join() as join:
                lifetime = _lifetime(join.ttl_ms or updating_ttl_ms, join.ttl_time, clock)
                return await _join(join, results, planning, lifetime, OP_COLUMN in operator.output.names, budget)
            case TemporalJoin(left, right, versions, sql, ttl_ms):
                sides = Sides(left, right)
                resolved = await planning.plan(StageQuery(versions), right, right.append(_LAST))
                joined = await planning.plan_join(sql, sides, results)
                return TemporalJoins(sides, resolved, joined, (ttl_ms or updating_ttl_ms) * 1000, budget)
            case other:
                raise InternalError(f"the operator {operator.key} keeps no state: {type(other).__name__}")


def _lifetime(ttl_ms: int, time: TtlTime, clock: Clock) -> Lifetime:
    return Lifetime(ttl_ms * 1000, None if time is TtlTime.EVENT else SteadyClock(clock))


async def _join(
    join: Join, results: pa.Schema, planning: Planning, lifetime: Lifetime, gives_changes: bool, budget: Budget
) -> Joins:
    kept: dict[str, Side] = {}
    for name, side in ((LEFT, join.left), (RIGHT, join.right)):
        kept_for = Lifetime(side.retention_us) if side.retention_us else lifetime
        if side.counted:
            count = await planning.plan(StageQuery(side.counted), side.rows, side.rows.append(_HASH))
            kept[name] = RowsThatChange(count, kept_for, budget)
        else:
            kept[name] = RowsThatStay(side.rows, kept_for, budget)
    query = await planning.plan_join(join.sql, Sides(join.left.joined, join.right.joined), results)
    sides = Sides(join.left.rows, join.right.rows)
    return Joins(join.kind, sides, kept, query, gives_changes=gives_changes)
