from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.common.checkpoint.matching import derive_fingerprint, match_state
from penstock.common.program import (
    Aggregation,
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    LookupJoin,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    OperatorKind,
    Program,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    Stage,
    StageQuery,
    TemporalJoin,
    TtlTime,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.proto.checkpoint_pb2 import OperatorMetadata

SCHEMA = pa.schema([("user", pa.string()), ("total", pa.int64())])


def aggregation(sql: str = "sum(cost)") -> Aggregation:
    return Aggregation(f"SELECT user, {sql} FROM input GROUP BY user", SCHEMA, SCHEMA)


MERGE = StageQuery(aggregation=aggregation(), stage=Stage.MERGE)
OTHER_MERGE = StageQuery(aggregation=aggregation("max(cost)"), stage=Stage.MERGE)
FINAL = StageQuery(aggregation=aggregation(), stage=Stage.FINAL, after="SELECT * FROM input")
OTHER_FINAL = replace(FINAL, after="SELECT user FROM input")
SOURCE = ConnectorSource("single_file", "clicks", {"path": "clicks.json"}, {})
SINK = ConnectorSink("single_file", "totals", {"path": "totals.json"}, SCHEMA)
WINDOW = TumblingWindowAggregate(60, MERGE, FINAL)
VERSIONED = TemporalJoin(SCHEMA, SCHEMA, "SELECT * FROM input", "SELECT * FROM left")


def operator(key: str, kind: OperatorKind) -> Operator:
    return Operator(OperatorKey(key), key, kind, None if isinstance(kind, ConnectorSink) else SCHEMA)


def program(**kinds: OperatorKind) -> Program:
    return Program((Node(NodeKey("all"), "", tuple(operator(key, kind) for key, kind in kinds.items())),), ())


def saved(made: Program) -> list[OperatorMetadata]:
    return [
        OperatorMetadata(operator_id=each.key, fingerprint=derive_fingerprint(each), parallelism=1)
        for node in made.nodes
        for each in node.operators
    ]


BEFORE = program(read=SOURCE, window=WINDOW, write=SINK)


def test_the_same_program_keeps_everything() -> None:
    match = match_state(saved(BEFORE), BEFORE)
    assert match.kept == ("read", "window", "write")
    assert not (match.dropped or match.new or match.incompatible)


def test_what_is_added_is_new_and_what_is_gone_is_dropped() -> None:
    lookup = LookupJoin("redis", "users", {}, SCHEMA, ("user",), {})
    after = program(
        read=SOURCE, keep=ArrowValue("SELECT 1"), ask=lookup, other=UpdatingAggregate(MERGE, FINAL), write=SINK
    )
    match = match_state(saved(BEFORE), after)
    assert (match.kept, match.dropped, match.new) == (("read", "write"), ("window",), ("other",))
    assert not match.incompatible


def test_an_operator_that_means_something_else_is_incompatible() -> None:
    after = program(read=SOURCE, window=replace(WINDOW, width_us=30), write=SINK)
    assert match_state(saved(BEFORE), after).incompatible == ("window",)


def test_a_sink_that_writes_elsewhere_needs_nothing_of_the_old_one() -> None:
    after = program(read=SOURCE, window=WINDOW, write=replace(SINK, options={"path": "elsewhere.json"}))
    match = match_state(saved(BEFORE), after)
    assert (match.dropped, match.incompatible) == (("write",), ())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SOURCE, replace(SOURCE, options={"path": "other.json"})),
        (SOURCE, replace(SOURCE, connector="filesystem")),
        (WINDOW, replace(WINDOW, merge=OTHER_MERGE)),
        (WINDOW, replace(WINDOW, lateness_us=1)),
        (WINDOW, SlidingWindowAggregate(60, 60, MERGE, FINAL)),
        (SlidingWindowAggregate(10, 60, MERGE, FINAL), SlidingWindowAggregate(20, 60, MERGE, FINAL)),
        (SessionWindowAggregate(5, MERGE, FINAL), SessionWindowAggregate(6, MERGE, FINAL)),
        (UpdatingAggregate(MERGE, FINAL), UpdatingAggregate(MERGE, OTHER_FINAL)),
        (UpdatingAggregate(MERGE, FINAL), UpdatingAggregate(OTHER_MERGE, FINAL)),
        (UpdatingAggregate(MERGE, FINAL), UpdatingAggregate(MERGE, FINAL, ttl_time=TtlTime.PROCESSING)),
        (WindowFunction("SELECT 1"), WindowFunction("SELECT 2")),
        (VERSIONED, replace(VERSIONED, versions="SELECT 1")),
        (VERSIONED, replace(VERSIONED, right=pa.schema([("user", pa.string())]))),
    ],
)
def test_state_that_is_made_otherwise_has_another_fingerprint(one: OperatorKind, other: OperatorKind) -> None:
    assert derive_fingerprint(operator("x", one)) != derive_fingerprint(operator("x", other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SOURCE, replace(SOURCE, options={"path": "clicks.json", "bad_data": "drop"}, idle_ms=5)),
        (WINDOW, replace(WINDOW, final=OTHER_FINAL)),
        (replace(WINDOW, lateness_us=1), replace(WINDOW, lateness_us=2)),
        (UpdatingAggregate(MERGE, FINAL), UpdatingAggregate(MERGE, FINAL, ttl_ms=5)),
        (VERSIONED, replace(VERSIONED, sql="SELECT 1", ttl_ms=5)),
    ],
)
def test_what_does_not_change_the_state_does_not_change_the_fingerprint(one: OperatorKind, other: OperatorKind) -> None:
    assert derive_fingerprint(operator("x", one)) == derive_fingerprint(operator("x", other))
