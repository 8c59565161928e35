from __future__ import annotations

import pyarrow as pa

from penstock.common.program import (
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
)
from penstock.common.program_text import mermaid, plan_text

SCHEMA = pa.schema([pa.field("a", pa.int64(), False), pa.field("j", pa.string(), True, {"penstock.type": "json"})])
SOURCE = Operator(
    OperatorKey("source_t"),
    't (kafka) "x"',
    ConnectorSource("kafka", "t", {"topic": "t", "sasl_password": "hunter2", "api_key": "{{ KEY }}"}, {"p": "part"}),
    SCHEMA,
)
VALUE = Operator(OperatorKey("value_1"), "select a", ArrowValue("SELECT a FROM input"), SCHEMA)
SINK = Operator(OperatorKey("sink_out"), "out", ConnectorSink("stdout", "out", {}, SCHEMA), None)
PROGRAM = Program(
    (Node(NodeKey("n"), "", (SOURCE, VALUE)), Node(NodeKey("m"), "", (SINK,), 1)),
    (
        Edge(NodeKey("n"), NodeKey("m"), EdgeKind.SHUFFLE, ("a",)),
        Edge(NodeKey("n"), NodeKey("m"), output=Output.DEAD_LETTERS),
    ),
    ProgramSettings(parallelism=3),
)


def test_plan_text_tells_all_of_a_program_but_its_secrets() -> None:
    assert plan_text(PROGRAM) == (
        "set parallelism = 3\n"
        "node n\n"
        "  source source_t: kafka t api_key='{{ KEY }}' sasl_password='***' topic='t'\n"
        "    metadata p = part\n"
        "    -> a int64 not null, j json\n"
        "  value value_1: select a\n"
        "    SELECT a FROM input\n"
        "    -> a int64 not null, j json\n"
        "node m (at most 1)\n"
        "  from n shuffle a\n"
        "  from n dead letters\n"
        "  sink sink_out: stdout out\n"
        "    <- a int64 not null, j json\n"
    )


def test_mermaid_has_a_box_for_each_chain_and_escapes_text() -> None:
    assert mermaid(PROGRAM) == (
        "flowchart LR\n"
        '    n0["t (kafka) #34;x#34;<br/>select a"]\n'
        '    n1["out<br/><i>at most 1</i>"]\n'
        "    n0 -->|shuffle a| n1\n"
        "    n0 -->|dead letters| n1\n"
    )


def test_plan_text_tells_what_is_looked_up_by_which_keys() -> None:
    url = "postgresql://me:hunter2@db/shop"
    join = LookupJoin("postgres", "users", {"url": url}, SCHEMA, ("_lookup0",), {"u.j": "j", "u.a": "a"}, outer=True)
    lookup = Operator(OperatorKey("lookup_1"), "look up users", join, SCHEMA)
    assert plan_text(Program((Node(NodeKey("n"), "", (lookup,)),), ())) == (
        "node n\n"
        "  lookup lookup_1: postgres users url='postgresql://***@db/shop' or nulls\n"
        "    by _lookup0\n"
        "    of a int64 not null, j json\n"
        "    u.a = a\n"
        "    u.j = j\n"
        "    -> a int64 not null, j json\n"
    )
