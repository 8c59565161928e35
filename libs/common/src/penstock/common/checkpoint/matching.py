"""Which state of a checkpoint a program can go on with: found by an operator's id, of use if it means the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa

from penstock.common.program import (
    ArrowKey,
    ArrowValue,
    AsyncUdf,
    ConnectorSink,
    ConnectorSource,
    InstantJoin,
    Join,
    JoinSide,
    LookupJoin,
    Operator,
    OperatorKey,
    Program,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.proto.checkpoint_pb2 import OperatorMetadata

# How a source reads, and not what: a position means the same whatever these say.
_MANNERS: Final = frozenset({"bad_data", "dead_letter", "max_line_bytes", "event_rate"})


@dataclass(frozen=True, slots=True)
class StateMatch:
    """What becomes of each operator's state, by the operators' ids in their order."""

    kept: tuple[OperatorKey, ...]
    dropped: tuple[OperatorKey, ...]
    """The program has no such operator, or it is a sink that writes elsewhere: nothing of it is needed."""
    new: tuple[OperatorKey, ...]
    """They start without state."""
    incompatible: tuple[OperatorKey, ...]
    """They are still there and have come to mean something else: the program cannot start from this."""


def match_state(operators: Iterable[OperatorMetadata], program: Program) -> StateMatch:
    """Compare the operators of a checkpoint with those of a program; only what is kept is to be restored."""
    found = {operator.key: operator for node in program.nodes for operator in node.operators}
    saved = {OperatorKey(each.operator_id): each.fingerprint for each in operators}
    kept, dropped, incompatible = [], [], []
    for key, fingerprint in sorted(saved.items()):
        operator = found.get(key)
        if operator is None:
            dropped.append(key)
        elif derive_fingerprint(operator) == fingerprint:
            kept.append(key)
        elif isinstance(operator.kind, ConnectorSink):
            dropped.append(key)
        else:
            incompatible.append(key)
    new = sorted(key for key, operator in found.items() if key not in saved and _has_state(operator))
    return StateMatch(tuple(kept), tuple(dropped), tuple(new), tuple(incompatible))


def derive_fingerprint(operator: Operator) -> str:
    """Equal for operators that can go on with each other's state."""
    return hashlib.sha256(repr(_meaning(operator)).encode()).hexdigest()[:16]


def _has_state(operator: Operator) -> bool:
    return not isinstance(operator.kind, ArrowValue | ArrowKey | LookupJoin | AsyncUdf | ConnectorSink)


def _meaning(operator: Operator) -> tuple[object, ...]:
    """What the rows of an operator's state are made by."""
    kind = operator.kind
    match kind:
        case ConnectorSource():
            places = {name: value for name, value in kind.options.items() if name not in _MANNERS}
            return "source", kind.connector, sorted(places.items())
        case ConnectorSink():
            return "sink", kind.connector, sorted(kind.options.items())
        case ArrowValue() | ArrowKey() | LookupJoin() | AsyncUdf():
            return ("rows",)
        case TumblingWindowAggregate():
            return "tumbling", kind.width_us, _stage(kind.merge), _given(operator, kind.final, kind.lateness_us > 0)
        case SlidingWindowAggregate():
            given = _given(operator, kind.final, kind.lateness_us > 0)
            return "sliding", kind.slide_us, kind.width_us, _stage(kind.merge), given
        case SessionWindowAggregate():
            return "session", kind.gap_us, _stage(kind.merge)
        case UpdatingAggregate():
            given = _given(operator, kind.final, remembered=True)
            return "updating", _stage(kind.merge), given, *_aged(kind.ttl_time)
        case WindowFunction():
            return "window function", kind.sql
        case InstantJoin():
            return "instant join", _columns(kind.left), _columns(kind.right)
        case Join():
            sides = _kept(kind.left), _kept(kind.right)
            return "join", kind.kind.name, *sides, kind.sql, _columns(operator.output), *_aged(kind.ttl_time)
        case TemporalJoin():
            return "temporal join", _columns(kind.left), _columns(kind.right), kind.versions
        case _:
            assert_never(kind)


def _aged(time: TtlTime) -> tuple[object, ...]:
    """By which time rows are dated, where that is not their own."""
    return () if time is TtlTime.EVENT else (time.name,)


def _kept(side: JoinSide) -> tuple[object, ...]:
    return _columns(side.rows), side.counted


def _given(operator: Operator, final: StageQuery, remembered: bool) -> object:
    """What an operator gives, if it remembers that to take it back."""
    return (_stage(final), _columns(operator.output)) if remembered else None


def _stage(query: StageQuery) -> tuple[object, ...]:
    aggregation = query.aggregation
    stage = None if query.stage is None else query.stage.name
    if aggregation is None:
        return query.before, stage, query.after
    return query.before, stage, aggregation.sql, _columns(aggregation.partial), query.after


def _columns(schema: pa.Schema | None) -> tuple[object, ...]:
    return () if schema is None else tuple((field.name, str(field.type)) for field in schema)
