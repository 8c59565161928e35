"""Groups rows by the same windows once, for all queries that do.

A query that joins the groups of a window with what it aggregates of them again, as one does that asks for the highest
of some counts, groups the same rows twice, and selects other columns each time. The step that gives all the columns
that the others do serves them as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, cast

import sqlglot
from sqlglot import exp

from penstock.common.program import (
    OperatorKey,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    TumblingWindowAggregate,
)
from penstock.compiler.analysis import Analyst
from penstock.compiler.plan import Input, Key, Plan, Query, Step, projections
from penstock.compiler.relations import column, select_from_input

_Windows: TypeAlias = TumblingWindowAggregate | SlidingWindowAggregate | SessionWindowAggregate
_RANDOM: Final = re.compile(r"\b(rand|randn|random|randstr|shuffle|uniform|uuid)\s*\(", re.IGNORECASE)
"""Functions that two queries call independently of each other."""


@dataclass(frozen=True, slots=True)
class _Grouping:
    """What two steps have in common that group the same rows by the same windows."""

    windows: _Windows
    """Without what is selected of the groups."""
    before: str
    rows: tuple[Input, ...]
    spread: tuple[Input, ...]
    """How partial results find their subtask; of no step."""
    where: str
    """Which groups are selected."""


async def share_windows(plan: Plan, _: Analyst) -> Plan:
    """The plan with one step for all that select columns of the same groups, if one of them selects all of these."""
    steps, readers = plan.by_key(), plan.readers()
    groups: dict[_Grouping, list[Step]] = {}
    for step in plan.steps:
        if isinstance(step.kind, _Windows) and len(readers[step.inputs[0].step]) == 1:
            grouping = _grouping_of(step, step.kind, steps[step.inputs[0].step])
            if grouping is not None:
                groups.setdefault(grouping, []).append(step)
    serving = {key: widest for alike in groups.values() if len(alike) > 1 for key, widest in _served(alike)}
    if not serving:
        return plan
    placed: dict[OperatorKey, Step] = {}
    for step in plan.steps:
        if step.key in serving:
            widest = serving[step.key]
            for one in (steps[widest.inputs[0].step], widest):  # it may stand behind those that it serves
                placed.setdefault(one.key, one)
            placed[step.key] = _selecting(step, widest)
        else:
            placed.setdefault(step.key, step)
    unread = {steps[key].inputs[0].step for key in serving}
    return replace(plan, steps=tuple(step for step in placed.values() if step.key not in unread))


def _grouping_of(step: Step, windows: _Windows, partial: Step) -> _Grouping | None:
    """What a step groups, of partial results that nobody else reads, if others may group it as well."""
    if not isinstance(partial.kind, Key) or _RANDOM.search(partial.kind.sql):
        return None
    (part,) = step.inputs
    bare = replace(windows, final=replace(windows.final, after=""))
    where = _selected(step).copy()
    where.set("expressions", [exp.Star()])
    return _Grouping(bare, partial.kind.sql, partial.inputs, (replace(part, step=OperatorKey("")),), where.sql())


def _served(alike: Sequence[Step]) -> Iterator[tuple[OperatorKey, Step]]:
    """The steps that another one serves, each with that."""
    columns = {step.key: _columns_of(step) for step in alike}
    widest = max(alike, key=lambda step: len(columns[step.key]))
    for step in alike:
        if step is not widest and columns[step.key].items() <= columns[widest.key].items():
            yield step.key, widest


def _columns_of(step: Step) -> Mapping[str, str]:
    return {name: value.sql() for name, value in projections(_selected(step))}


def _selected(step: Step) -> exp.Select:
    assert isinstance(step.kind, _Windows)
    return cast("exp.Select", sqlglot.parse_one(step.kind.final.after, read="spark"))


def _selecting(step: Step, widest: Step) -> Step:
    """The columns of a step as a choice among those of the one that serves it."""
    select = select_from_input([column(name) for name in step.schema.names])
    return replace(step, kind=Query(select), inputs=(Input(widest.key),))
