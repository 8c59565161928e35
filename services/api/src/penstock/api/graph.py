"""The program as users see it: without secrets, with its columns spelled out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import pyarrow as pa

from penstock.api.schemas import Column, Graph, GraphEdge, GraphEdgeKind, GraphNode, GraphOperator, QueriedKind
from penstock.common.program import (
    ArrowKey,
    ArrowValue,
    AsyncUdf,
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    InstantJoin,
    Join,
    LookupJoin,
    Node,
    Operator,
    Output,
    Program,
    SessionWindowAggregate,
    SlidingWindowAggregate,
    StageQuery,
    TemporalJoin,
    TumblingWindowAggregate,
    UpdatingAggregate,
    WindowFunction,
)
from penstock.common.redaction import MASK, looks_secret, redact

_TEMPLATE = re.compile(r"\s*\{\{[^{}]*\}\}\s*")
_EDGE_KIND: Mapping[EdgeKind, GraphEdgeKind] = {
    EdgeKind.FORWARD: "forward",
    EdgeKind.SHUFFLE: "shuffle",
    EdgeKind.SHUFFLE_LEFT: "shuffle_left",
    EdgeKind.SHUFFLE_RIGHT: "shuffle_right",
}
Queried: TypeAlias = (
    ArrowValue
    | ArrowKey
    | TumblingWindowAggregate
    | SlidingWindowAggregate
    | SessionWindowAggregate
    | UpdatingAggregate
    | WindowFunction
    | InstantJoin
    | Join
    | TemporalJoin
    | AsyncUdf
)
_KIND: Mapping[type[Queried], QueriedKind] = {
    ArrowValue: "value",
    ArrowKey: "key",
    TumblingWindowAggregate: "tumbling_window",
    SlidingWindowAggregate: "sliding_window",
    SessionWindowAggregate: "session_window",
    UpdatingAggregate: "updating",
    WindowFunction: "window_function",
    InstantJoin: "instant_join",
    Join: "join",
    TemporalJoin: "temporal_join",
    AsyncUdf: "async_udf",
}
_OUTPUT: Mapping[Output, Literal["rows", "dead_letters"]] = {
    Output.ROWS: "rows",
    Output.DEAD_LETTERS: "dead_letters",
}


def graph_of(program: Program) -> Graph:
    """A program's graph."""
    return Graph(nodes=[_node(node) for node in program.nodes], edges=[_edge(edge) for edge in program.edges])


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options as they may be shown: a template stays, a secret that was written out does not."""
    return {name: _shown(name, value) for name, value in options.items()}


def _shown(name: str, value: str) -> str:
    if _TEMPLATE.fullmatch(value):
        return value
    return MASK if looks_secret(name) else str(redact(value))


def _node(node: Node) -> GraphNode:
    return GraphNode(
        id=node.key,
        description=node.description,
        parallelism=node.parallelism,
        operators=[_operator(operator) for operator in node.operators],
    )


def _operator(operator: Operator) -> GraphOperator:
    key, description = operator.key, operator.description
    match operator.kind:
        case ConnectorSource(connector, table, options, _metadata):
            return GraphOperator(
                id=key,
                description=description,
                kind="source",
                connector=connector,
                table=table,
                options=shown_options(options),
                columns=_columns(operator.output),
            )
        case ConnectorSink(connector, table, options, schema):
            return GraphOperator(
                id=key,
                description=description,
                kind="sink",
                connector=connector,
                table=table,
                options=shown_options(options),
                columns=_columns(schema),
            )
        case LookupJoin(connector, table, options):
            return GraphOperator(
                id=key,
                description=description,
                kind="lookup_join",
                connector=connector,
                table=table,
                options=shown_options(options),
                columns=_columns(operator.output),
            )
        case kind:
            columns = _columns(operator.output)
            return GraphOperator(
                id=key, description=description, kind=_KIND[type(kind)], options=None, sql=_sql(kind), columns=columns
            )


def _sql(kind: Queried) -> str:
    """The SQL that an operator runs, as one text."""
    match kind:
        case ArrowValue(sql) | WindowFunction(sql) | InstantJoin(sql=sql) | Join(sql=sql) | TemporalJoin(sql=sql):
            return sql
        case ArrowKey(query):
            return _staged(query)
        case AsyncUdf(function, arguments):
            return f"{function}({', '.join(arguments)})"
        case _:
            return _staged(kind.final)


def _staged(query: StageQuery) -> str:
    aggregation = query.aggregation.sql if query.aggregation is not None else ""
    return ";\n".join(filter(None, [query.before, aggregation, query.after]))


def _columns(schema: pa.Schema | None) -> list[Column]:
    return [Column(name=field.name, type=_type(field), nullable=field.nullable) for field in schema or ()]


def _type(field: pa.Field) -> str:
    """The type of the SQL where it is known, else Arrow's."""
    return (field.metadata or {}).get(b"penstock.type", b"").decode() or str(field.type)


def _edge(edge: Edge) -> GraphEdge:
    return GraphEdge(
        source=edge.source,
        target=edge.target,
        kind=_EDGE_KIND[edge.kind],
        keys=list(edge.keys),
        output=_OUTPUT[edge.output],
    )
