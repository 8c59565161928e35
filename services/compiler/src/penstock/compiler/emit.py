"""From the chained plan to the program."""

from __future__ import annotations

from penstock.common.program import (
    ArrowKey,
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    OperatorKind,
    Program,
    Stage,
    StageQuery,
)
from penstock.compiler.plan import Chain, Key, Plan, Query, Scan, Step, Write
from penstock.compiler.watermarks import observes


def emit(plan: Plan) -> Program:
    """The program of a plan: a node for each chain, which is called as its first operator."""
    node_of: dict[OperatorKey, NodeKey] = {
        step.key: NodeKey(chain.steps[0].key) for chain in plan.chains for step in chain.steps
    }
    nodes = tuple(map(_node, plan.chains))
    edges = tuple(
        Edge(
            node_of[part.step],
            NodeKey(chain.steps[0].key),
            part.edge if part.keys else EdgeKind.FORWARD,
            part.keys,
            part.output,
        )
        for chain in plan.chains
        for part in chain.steps[0].inputs
    )
    return Program(nodes, edges, plan.settings)


def _node(chain: Chain) -> Node:
    description = " → ".join(step.description for step in chain.steps)
    operators = tuple(map(_operator, chain.steps))
    return Node(NodeKey(chain.steps[0].key), description, operators, chain.max_parallelism or 0)


def _operator(step: Step) -> Operator:
    output = None if isinstance(step.kind, Write) else step.schema
    return Operator(step.key, step.description, _kind(step), output)


def _kind(step: Step) -> OperatorKind:
    match step.kind:
        case Scan(connector, table, options, metadata, _, idle_ms):
            return ConnectorSource(connector, table, options, metadata, idle_ms)
        case Write(connector, table, options, _):
            return ConnectorSink(connector, table, options, step.schema)
        case Query() as query:
            return ArrowValue(query.sql, observes(query.select))
        case Key(select, aggregation) as key:
            stage = None if aggregation is None else Stage.PARTIAL
            return ArrowKey(StageQuery(key.sql, aggregation, stage), observes(select))
        case _:
            return step.kind
