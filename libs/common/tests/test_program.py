from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InternalError
from penstock.common.program import (
    Aggregation,
    ArrowKey,
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    LookupJoin,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    Output,
    Program,
    ProgramSettings,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    Stage,
    StageQuery,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.program_proto import program_from_proto, program_to_proto
from penstock.common.proto import program_pb2 as proto

NAMES = st.text(min_size=1, max_size=8)
STRINGS = st.dictionaries(NAMES, st.text(max_size=12), max_size=3)
SCHEMAS = st.lists(
    st.builds(
        pa.field,
        NAMES,
        st.sampled_from([pa.int64(), pa.string(), pa.timestamp("us"), pa.struct([("x", pa.list_(pa.int8()))])]),
        st.booleans(),
        st.just({b"penstock.type": b"json"}) | st.none(),
    ),
    max_size=4,
    unique_by=lambda field: field.name,
).map(pa.schema)
MILLISECONDS = st.integers(0, 2**64 - 1)
AGGREGATIONS = st.builds(Aggregation, st.text(), SCHEMAS, SCHEMAS)
QUERIES = st.builds(StageQuery, st.text(), AGGREGATIONS, st.sampled_from(Stage), st.text()) | st.builds(
    StageQuery, before=st.text(), after=st.text()
)
KINDS = (
    st.builds(ConnectorSource, NAMES, NAMES, STRINGS, STRINGS, MILLISECONDS)
    | st.builds(ConnectorSink, NAMES, NAMES, STRINGS, SCHEMAS)
    | st.builds(ArrowValue, st.text(), st.booleans())
    | st.builds(ArrowKey, QUERIES, st.booleans())
    | st.builds(TumblingWindowAggregate, MILLISECONDS, QUERIES, QUERIES, MILLISECONDS)
    | st.builds(SlidingWindowAggregate, MILLISECONDS, MILLISECONDS, QUERIES, QUERIES, MILLISECONDS)
    | st.builds(SessionWindowAggregate, MILLISECONDS, QUERIES, QUERIES)
    | st.builds(UpdatingAggregate, QUERIES, QUERIES, MILLISECONDS)
    | st.builds(WindowFunction, st.text())
    | st.builds(
        LookupJoin, NAMES, NAMES, STRINGS, SCHEMAS, st.lists(NAMES, max_size=2).map(tuple), STRINGS, st.booleans()
    )
)
OPERATORS = st.builds(Operator, NAMES.map(OperatorKey), st.text(), KINDS, st.none() | SCHEMAS)
NODES = st.builds(Node, NAMES.map(NodeKey), st.text(), st.lists(OPERATORS, max_size=3).map(tuple), st.integers(0, 1024))
EDGES = st.builds(
    Edge,
    NAMES.map(NodeKey),
    NAMES.map(NodeKey),
    st.sampled_from(EdgeKind),
    st.lists(NAMES, max_size=2).map(tuple),
    st.sampled_from(Output),
)
SETTINGS = st.builds(ProgramSettings, st.integers(0, 1024), MILLISECONDS, MILLISECONDS, MILLISECONDS)
PROGRAMS = st.builds(Program, st.lists(NODES, max_size=3).map(tuple), st.lists(EDGES, max_size=3).map(tuple), SETTINGS)


@given(PROGRAMS)
def test_program_survives_its_protobuf_form(program: Program) -> None:
    message = proto.Program.FromString(program_to_proto(program).SerializeToString())
    assert program_from_proto(message) == program


def test_operator_of_an_unknown_kind_is_refused() -> None:
    message = proto.Program(nodes=[proto.Node(id="n", operators=[proto.Operator(id="o")])])
    with pytest.raises(InternalError, match="operator o is of an unknown kind"):
        program_from_proto(message)


def a_node(key: str, parallelism: int = 0) -> Node:
    return Node(NodeKey(key), key, (), parallelism)


def test_nodes_get_the_jobs_parallelism_or_the_most_that_they_can_have() -> None:
    program = Program((a_node("a"), a_node("b", 1), a_node("c", 8)), ())
    assert [node.parallelism for node in program.at_parallelism(4).nodes] == [4, 1, 4]


def test_edge_between_different_parallelisms_becomes_a_shuffle_to_any_subtask() -> None:
    edge = Edge(NodeKey("a"), NodeKey("b"))
    program = Program((a_node("a"), a_node("b", 1)), (edge,))
    assert program.at_parallelism(4).edges[0].kind is EdgeKind.SHUFFLE
    assert program.at_parallelism(1).edges[0].kind is EdgeKind.FORWARD


def test_shuffle_by_key_stays_one_at_any_parallelism() -> None:
    edge = Edge(NodeKey("a"), NodeKey("b"), EdgeKind.SHUFFLE, ("k",))
    program = Program((a_node("a"), a_node("b")), (edge,))
    assert program.at_parallelism(1).edges == (edge,)
