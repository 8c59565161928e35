"""The graph that users see tells all of a program but its secrets."""

from __future__ import annotations

import pyarrow as pa

from penstock.api.graph import graph_of
from penstock.common.program import LookupJoin, Node, NodeKey, Operator, OperatorKey, Program

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])


def test_a_lookup_is_shown_with_its_table_and_without_secrets() -> None:
    options = {"url": "redis://me:hunter2@db", "prefix": "users:", "password": "{{ PASSWORD }}"}
    join = LookupJoin("redis", "users", options, SCHEMA, ("_lookup0",), {"u.id": "id"})
    operator = Operator(OperatorKey("lookup_1"), "look up users", join, SCHEMA)
    [node] = graph_of(Program((Node(NodeKey("n"), "", (operator,)),), ())).nodes
    [shown] = node.operators
    assert (shown.kind, shown.connector, shown.table, shown.sql) == ("lookup_join", "redis", "users", None)
    assert shown.options == {"url": "redis://***@db", "prefix": "users:", "password": "{{ PASSWORD }}"}
    assert [column.name for column in shown.columns] == ["id"]
