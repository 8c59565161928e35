"""The program: a pipeline as a graph of chains of operators, as frozen data, to and from its protobuf form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NewType, TypeAlias, assert_never

import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.proto import program_pb2 as proto

NodeKey = NewType("NodeKey", str)
"""Names a node of one program; not the id of a node service."""
OperatorKey = NewType("OperatorKey", str)
"""Names an operator, the same for the same place in a changed query: its state is found by it."""

INPUT: Final = "input"
"""What an ArrowValue's SQL calls the rows that come in."""


class EdgeKind(Enum):
    """How rows find their subtask downstream."""

    FORWARD = proto.EDGE_KIND_FORWARD
    SHUFFLE = proto.EDGE_KIND_SHUFFLE


class Output(Enum):
    """Which of a node's outputs an edge carries."""

    ROWS = proto.OUTPUT_ROWS
    DEAD_LETTERS = proto.OUTPUT_DEAD_LETTERS


@dataclass(frozen=True, slots=True)
class ConnectorSource:
    """Reads a table; it is the first of its chain."""

    connector: str
    table: str
    options: Mapping[str, str]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConnectorSink:
    """Writes a table; it is the last of its chain."""

    connector: str
    table: str
    options: Mapping[str, str]
    input: pa.Schema


@dataclass(frozen=True, slots=True)
class ArrowValue:
    """Stateless work: one Spark query over `input`."""

    sql: str


OperatorKind: TypeAlias = ConnectorSource | ConnectorSink | ArrowValue


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of a chain; `output` is the schema of the rows that leave it, and None for a sink."""

    key: OperatorKey
    description: str
    kind: OperatorKind
    output: pa.Schema | None


@dataclass(frozen=True, slots=True)
class Node:
    """A chain: operators that run in one subtask, in at most `parallelism` subtasks (0: as many as the job has)."""

    key: NodeKey
    description: str
    operators: tuple[Operator, ...]
    parallelism: int = 0

    @property
    def is_source(self) -> bool:
        return isinstance(self.operators[0].kind, ConnectorSource)

    @property
    def is_sink(self) -> bool:
        return isinstance(self.operators[-1].kind, ConnectorSink)


@dataclass(frozen=True, slots=True)
class Edge:
    """Rows on their way from one chain to another."""

    source: NodeKey
    target: NodeKey
    kind: EdgeKind = EdgeKind.FORWARD
    keys: tuple[str, ...] = ()
    output: Output = Output.ROWS


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """What SET said; 0 where it said nothing."""

    parallelism: int = 0
    checkpoint_interval_ms: int = 0
    updating_ttl_ms: int = 0
    allowed_lateness_ms: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes in topological order, and the edges between them."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    settings: ProgramSettings = field(default_factory=ProgramSettings)

    def node(self, key: NodeKey) -> Node:
        return next(node for node in self.nodes if node.key == key)

    def inputs_of(self, key: NodeKey) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target == key)

    def outputs_of(self, key: NodeKey) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == key)

    def at_parallelism(self, parallelism: int) -> Program:
        """Every node with the number of its subtasks: this, or fewer where the node cannot have as many. A forward edge
        between different numbers becomes a shuffle to any subtask."""
        nodes = tuple(
            replace(node, parallelism=min(node.parallelism or parallelism, parallelism)) for node in self.nodes
        )
        subtasks = {node.key: node.parallelism for node in nodes}
        edges = tuple(
            replace(edge, kind=EdgeKind.FORWARD if subtasks[edge.source] == subtasks[edge.target] else EdgeKind.SHUFFLE)
            if not edge.keys
            else edge
            for edge in self.edges
        )
        return replace(self, nodes=nodes, edges=edges)


def program_to_proto(program: Program) -> proto.Program:
    """The program as a message."""
    settings = program.settings
    return proto.Program(
        nodes=[
            proto.Node(
                id=node.key,
                description=node.description,
                parallelism=node.parallelism,
                operators=map(_operator_to_proto, node.operators),
            )
            for node in program.nodes
        ],
        edges=[
            proto.Edge(
                source=edge.source,
                target=edge.target,
                kind=edge.kind.value,
                keys=edge.keys,
                output=edge.output.value,
            )
            for edge in program.edges
        ],
        settings=proto.ProgramSettings(
            parallelism=settings.parallelism,
            checkpoint_interval_ms=settings.checkpoint_interval_ms,
            updating_ttl_ms=settings.updating_ttl_ms,
            allowed_lateness_ms=settings.allowed_lateness_ms,
        ),
    )


def program_from_proto(message: proto.Program) -> Program:
    """The program in a message."""
    settings = message.settings
    return Program(
        nodes=tuple(
            Node(
                NodeKey(node.id),
                node.description,
                tuple(map(_operator_from_proto, node.operators)),
                node.parallelism,
            )
            for node in message.nodes
        ),
        edges=tuple(
            Edge(NodeKey(edge.source), NodeKey(edge.target), EdgeKind(edge.kind), tuple(edge.keys), Output(edge.output))
            for edge in message.edges
        ),
        settings=ProgramSettings(
            settings.parallelism,
            settings.checkpoint_interval_ms,
            settings.updating_ttl_ms,
            settings.allowed_lateness_ms,
        ),
    )


def _operator_to_proto(operator: Operator) -> proto.Operator:
    message = proto.Operator(
        id=operator.key, description=operator.description, output=_schema_to_bytes(operator.output)
    )
    match operator.kind:
        case ConnectorSource(connector, table, options, metadata):
            message.source.CopyFrom(
                proto.ConnectorSource(connector=connector, table=table, options=dict(options), metadata=dict(metadata))
            )
        case ConnectorSink(connector, table, options, schema):
            message.sink.CopyFrom(
                proto.ConnectorSink(
                    connector=connector, table=table, options=dict(options), input=_schema_to_bytes(schema)
                )
            )
        case ArrowValue(sql):
            message.value.CopyFrom(proto.ArrowValue(sql=sql))
        case _:
            assert_never(operator.kind)
    return message


def _operator_from_proto(message: proto.Operator) -> Operator:
    output = _schema_from_bytes(message.output)
    return Operator(OperatorKey(message.id), message.description, _kind_from_proto(message), output)


def _kind_from_proto(message: proto.Operator) -> OperatorKind:
    match message.WhichOneof("kind"):
        case "source":
            source = message.source
            return ConnectorSource(source.connector, source.table, _frozen(source.options), _frozen(source.metadata))
        case "sink":
            sink = message.sink
            schema = _schema_from_bytes(sink.input)
            if schema is None:
                raise InternalError(f"the sink {sink.table} has no input schema")
            return ConnectorSink(sink.connector, sink.table, _frozen(sink.options), schema)
        case "value":
            return ArrowValue(message.value.sql)
        case other:
            raise InternalError(f"operator {message.id} is of an unknown kind: {other}")


def _schema_to_bytes(schema: pa.Schema | None) -> bytes:
    return b"" if schema is None else schema.serialize().to_pybytes()


def _schema_from_bytes(content: bytes) -> pa.Schema | None:
    return pa.ipc.read_schema(pa.py_buffer(content)) if content else None


def _frozen(strings: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(strings))
