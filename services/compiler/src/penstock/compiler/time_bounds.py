"""How far apart in event time rows of two sides can be and still meet, by the conditions of a join."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from penstock.common.program import JoinKind
from penstock.compiler.intervals import parse_interval


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """A row of the left is at least `earliest_us` and at most `latest_us` after a row of the right that it meets."""

    earliest_us: int
    latest_us: int

    def retention_us(self, kind: JoinKind) -> tuple[int, int]:
        """How long after their time rows of the left and of the right are of use; 0 where nothing bounds that.

        A row is of use while it can meet one that still comes. Where rows of a side are in the result by whether they
        have met any, those that they have met are of use for as long as they are themselves."""
        left, right = max(1, -self.earliest_us), max(1, self.latest_us)
        both = max(1, self.latest_us - self.earliest_us)
        match kind:
            case JoinKind.INNER:
                return left, right
            case JoinKind.LEFT | JoinKind.SEMI | JoinKind.ANTI:
                return left, max(right, both)
            case JoinKind.RIGHT:
                return max(left, both), right
            case JoinKind.FULL:
                return 0, 0


@dataclass(frozen=True, slots=True)
class _Moment:
    """The event time of a side, and some microseconds."""

    is_left: bool
    shift_us: int


def time_bounds(conditions: Iterable[exp.Expr], left: Mapping[str, int], right: Mapping[str, int]) -> TimeBounds | None:
    """The bounds that conditions set, if they set both; `left` and `right` are the columns that are event times, or
    always so many microseconds after them."""
    earliest, latest = [], []
    for smaller, greater in _orders(conditions):
        below, above = _moment(smaller, left, right), _moment(greater, left, right)
        if below is None or above is None or below.is_left == above.is_left:
            continue
        if above.is_left:
            earliest.append(below.shift_us - above.shift_us)
        else:
            latest.append(above.shift_us - below.shift_us)
    return TimeBounds(max(earliest), min(latest)) if earliest and latest else None


def _orders(conditions: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Pairs of which the first is not greater than the second."""
    for condition in conditions:
        match condition:
            case exp.Between():
                yield condition.args["low"], condition.this
                yield condition.this, condition.args["high"]
            case exp.LTE() | exp.LT():
                yield condition.this, condition.expression
            case exp.GTE() | exp.GT():
                yield condition.expression, condition.this


def _moment(tree: exp.Expr, left: Mapping[str, int], right: Mapping[str, int]) -> _Moment | None:
    match tree:
        case exp.Paren():
            return _moment(tree.this, left, right)
        case exp.Add() | exp.Sub():
            moment, length = _moment(tree.this, left, right), _microseconds(tree.expression)
            if moment is None or length is None:
                return None
            return _Moment(moment.is_left, moment.shift_us + (length if isinstance(tree, exp.Add) else -length))
        case exp.Column() if len(tree.parts) == 1 and tree.name in left:
            return _Moment(True, left[tree.name])
        case exp.Column() if len(tree.parts) == 1 and tree.name in right:
            return _Moment(False, right[tree.name])
    return None


def _microseconds(tree: exp.Expr) -> int | None:
    if not isinstance(tree, exp.Interval) or not isinstance(tree.this, exp.Literal):
        return None
    unit = tree.args.get("unit")
    interval = parse_interval(tree.this.name, unit.name if unit is not None else None)
    return None if interval is None or interval.months else interval.microseconds
