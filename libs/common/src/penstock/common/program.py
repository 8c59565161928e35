"""The program: a pipeline as a graph of chains of operators, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NewType, TypeAlias

import pyarrow as pa

from penstock.common.proto import program_pb2 as proto
from penstock.common.udfs import Signature, caught

NodeKey = NewType("NodeKey", str)
"""Names a node of one program; not the id of a node service."""
OperatorKey = NewType("OperatorKey", str)
"""Names an operator, the same for the same place in a changed query: its state is found by it."""

INPUT: Final = "input"
"""What the SQL of an operator calls the rows that come in."""
LEFT: Final = "left"
RIGHT: Final = "right"
"""What the SQL of a join calls the rows of its two sides."""

OP_COLUMN: Final = "_op"
"""Of rows that are changes: +1 for one that comes, -1 for one that goes."""
WATERMARK_COLUMN: Final = "_watermark"
"""The watermark of a row's source partition just before the row."""
WINDOW_COLUMN: Final = "_window"
WINDOW_END_COLUMN: Final = "_window_end"
FIRST_WINDOW_COLUMN: Final = "_first"
"""Of a row that came too late for some of the windows that it is in: where the first one begins that it counts in."""
HASH_COLUMN: Final = "_hash"
"""The hash of the keys by which state is found."""
COUNT_COLUMN: Final = "_n"
"""Of rows that are kept once: how often they are there."""
LAST_COLUMN: Final = "_last"
"""Of versions: whether a key has no later one."""


class EdgeKind(Enum):
    """How rows find their subtask downstream."""

    FORWARD = proto.EDGE_KIND_FORWARD
    SHUFFLE = proto.EDGE_KIND_SHUFFLE
    SHUFFLE_LEFT = proto.EDGE_KIND_SHUFFLE_LEFT  # to the left side of a join
    SHUFFLE_RIGHT = proto.EDGE_KIND_SHUFFLE_RIGHT


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
    idle_ms: int = 0
    """A partition that gives no row for so long holds no watermark back; 0: it always does."""


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
    observes: bool = False
    """It observes event times, from which watermarks are made."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """A GROUP BY that Spark computes in stages: `SELECT keys…, aggregates… FROM input GROUP BY keys…`."""

    sql: str
    input: pa.Schema
    """The rows that it is of."""
    partial: pa.Schema
    """Its partial results: the keys, then what the aggregates hold."""


class Stage(Enum):
    """A part of an aggregation."""

    PARTIAL = proto.STAGE_PARTIAL  # rows to partial results
    MERGE = proto.STAGE_MERGE  # partial results to fewer partial results
    FINAL = proto.STAGE_FINAL  # partial results to rows


@dataclass(frozen=True, slots=True)
class StageQuery:
    """Spark SQL over `input`, then perhaps a stage of an aggregation, then perhaps SQL over what that gives."""

    before: str = ""
    aggregation: Aggregation | None = None
    stage: Stage | None = None
    after: str = ""


@dataclass(frozen=True, slots=True)
class ArrowKey:
    """What is done before a shuffle: a query whose rows or partial results are told apart by the edge's keys."""

    query: StageQuery
    observes: bool = False


@dataclass(frozen=True, slots=True)
class TumblingWindowAggregate:
    """Windows of one width, one after the other; the column `_window` is where a window begins."""

    width_us: int
    merge: StageQuery
    final: StageQuery
    lateness_us: int = 0
    """How long a closed window can still be corrected; its results are then changes, with `_op`."""


@dataclass(frozen=True, slots=True)
class SlidingWindowAggregate:
    """Windows that overlap, made of panes: `_window` is where a pane begins, and for `final` where a window begins.

    A row is in no earlier window than its `_first`, if it has that; for `final` it is that of the window."""

    slide_us: int
    width_us: int
    merge: StageQuery
    final: StageQuery
    lateness_us: int = 0


@dataclass(frozen=True, slots=True)
class SessionWindowAggregate:
    """Windows that end when a key has been quiet for a gap, from `_window` to `_window_end`."""

    gap_us: int
    merge: StageQuery
    """Joins what touches, and hashes the keys into `_hash`."""
    final: StageQuery


class TtlTime(Enum):
    """By which time keys and rows that nothing touches grow old."""

    EVENT = proto.TTL_TIME_EVENT
    PROCESSING = proto.TTL_TIME_PROCESSING  # the worker's clock


@dataclass(frozen=True, slots=True)
class UpdatingAggregate:
    """Keyed state whose results are changes: what `final` was of a key's rows is replaced by what it is now."""

    merge: StageQuery
    """The rows to keep of those kept so far and new ones, with the hash of their keys, `_hash`."""
    final: StageQuery
    ttl_ms: int = 0
    """Keys that nothing has touched for so long are forgotten; 0: as the worker's settings say."""
    ttl_time: TtlTime = field(default=TtlTime.EVENT, repr=False)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A query over all rows of one event time, which are complete when the watermark has passed it."""

    sql: str


@dataclass(frozen=True, slots=True)
class InstantJoin:
    """Two inputs joined when the watermark has passed an event time: `left` and `right` are all rows of it."""

    left: pa.Schema
    """The sides are told apart by the names of their columns."""
    right: pa.Schema
    sql: str


class JoinKind(Enum):
    """Which rows of two sides a join gives."""

    INNER = proto.JOIN_KIND_INNER
    LEFT = proto.JOIN_KIND_LEFT
    RIGHT = proto.JOIN_KIND_RIGHT
    FULL = proto.JOIN_KIND_FULL
    SEMI = proto.JOIN_KIND_SEMI  # rows of the left that have a match
    ANTI = proto.JOIN_KIND_ANTI  # rows of the left that have none


@dataclass(frozen=True, slots=True)
class JoinSide:
    """What one side of a join keeps."""

    rows: pa.Schema
    """The rows that come in: where they are kept as they come, the last column is the hash of their keys, `_hash`."""
    counted: str = ""
    """Where rows can be taken back, SQL over `input`: those that are kept and that came, each once with how often it is
    there, and with the hash of their keys, `_hash`."""
    retention_us: int = 0
    """Rows are of no use any more when they are so much older than the watermark; 0: by the time to live."""

    @property
    def joined(self) -> pa.Schema:
        """The rows that are joined: without the hash."""
        return self.rows if self.counted else self.rows.remove(len(self.rows) - 1)


@dataclass(frozen=True, slots=True)
class Join:
    """Two inputs joined as their rows come, by the SQL over `left` and `right`; both sides are kept by their keys."""

    left: JoinSide
    right: JoinSide
    sql: str
    kind: JoinKind
    ttl_ms: int = 0
    """Rows that nothing has touched for so long are forgotten; 0: as the worker's settings say."""
    ttl_time: TtlTime = TtlTime.EVENT


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Rows of the left beside the version that the right had of their key at their event time. They are joined when the
    watermark has passed it; of the right, the version of each key is kept that is valid then."""

    left: pa.Schema
    """Both sides have the hash of their keys, `_hash`."""
    right: pa.Schema
    """Versions that come and, by `_op`, go."""
    versions: str
    """SQL over `input`, changes of some keys and the versions kept of them: what is valid from which time on, one row
    for each key and time, and whether it is the `_last` of its key. With an `_op` below 0, it says that there is none.
    """
    sql: str
    """Over `left`, and `right`: such versions."""
    ttl_ms: int = 0
    """Versions that are older than so long are forgotten; 0: as the worker's settings say."""


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Rows beside those that a table has for their keys: looked up when they come, and not kept."""

    connector: str
    table: str
    options: Mapping[str, str]
    looked_up: pa.Schema
    """What is read of the table, its key first."""
    keys: tuple[str, ...]
    """The columns of the rows that are looked up, one for each of the table's key."""
    names: Mapping[str, str]
    """Columns of the output to those of the table; the others are of the rows that come in."""
    outer: bool = False
    """A row without a match stays, with nulls."""


@dataclass(frozen=True, slots=True)
class AsyncUdf:
    """Calls an async Python function for each row; it is the first of its chain."""

    function: str
    """The key of a function of the program."""
    arguments: tuple[str, ...]
    """Columns that come in, and do not leave."""
    result: str
    """The column that the function's values leave in."""
    ordered: bool
    in_flight: int
    timeout_ms: int
    retries: int


OperatorKind: TypeAlias = (
    ConnectorSource
    | ConnectorSink
    | ArrowValue
    | ArrowKey
    | TumblingWindowAggregate
    | SlidingWindowAggregate
    | SessionWindowAggregate
    | UpdatingAggregate
    | WindowFunction
    | InstantJoin
    | Join
    | TemporalJoin
    | LookupJoin
    | AsyncUdf
)


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
    updating_ttl_time: TtlTime = TtlTime.EVENT


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a Python function; operators call it by its key, which no other version has."""

    key: str
    signature: Signature
    hash: str
    """Of its artifact."""
    url: str = ""
    """The artifact's folder; empty: it was not stored."""
    catches: bool = False
    """Whether it gives a struct of the value and how the call failed, instead of failing."""

    @property
    def gives(self) -> pa.DataType:
        """The type of what comes back of a call."""
        return caught(self.signature.returns) if self.catches else self.signature.returns


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes in topological order, the edges between them, and the Python functions that they call."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    settings: ProgramSettings = field(default_factory=ProgramSettings)
    functions: tuple[Function, ...] = ()

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
