"""What requests and answers look like; the OpenAPI document is generated from here."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from penstock.api.settings import MAX_PARALLELISM
from penstock.common.errors import ErrorDomain
from penstock.common.jobs import JobState, StopMode
from penstock.common.quantities import format_duration, parse_duration
from penstock.common.udfs import Shape, Style

_QUERY_EXAMPLE = """\
CREATE TABLE events (counter BIGINT, subtask_index BIGINT)
WITH (connector = 'impulse', event_rate = '10', type = 'source');

SELECT counter, counter * 2 AS doubled FROM events WHERE counter % 2 = 0;
"""
_UDF_EXAMPLE = """\
def doubled(value: int) -> int:
    return value * 2
"""
_FALLBACK = "whether an older checkpoint will do when the newest is damaged, though sinks may then repeat rows"


def _interval(value: object) -> timedelta:
    duration = parse_duration(value)
    if duration < timedelta(milliseconds=1):
        raise ValueError("it must be at least 1ms")
    return duration


Interval = Annotated[
    timedelta,
    BeforeValidator(_interval),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["10s", "500ms", "1m"]}),
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
# As a folder of any storage can be called.
SavepointName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=100, strip_whitespace=True)
]
Query = Annotated[str, StringConstraints(min_length=1), Field(description="SQL", examples=[_QUERY_EXAMPLE])]
UdfSource = Annotated[str, StringConstraints(min_length=1), Field(description="Python", examples=[_UDF_EXAMPLE])]
UdfName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
Parallelism = Annotated[int, Field(ge=1, le=MAX_PARALLELISM)]


class Request(BaseModel):
    """The base of a body: a field that is not known is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Answer(BaseModel):
    """The base of an answer."""

    model_config = ConfigDict(frozen=True)


# Errors ---------------------------------------------------------------------------------------------------------------


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Span(Answer):
    """A stretch of the query; lines and columns count from 1, the end is the last character."""

    line: int
    column: int
    end_line: int
    end_column: int


class Diagnostic(Answer):
    """What the compiler says of a query."""

    severity: Severity
    code: str = Field(examples=["unknown_table"])
    message: str
    hint: str | None = None
    span: Span | None = Field(default=None, description="where it is; none when it is of the whole query")


class ErrorBody(Answer):
    code: str = Field(examples=["not_found"])
    message: str
    hint: str | None = Field(default=None, description="what to do about it")
    spans: list[Diagnostic] | None = Field(default=None, description="of a query: everything that is wrong with it")


class ErrorResponse(Answer):
    """The form of every error."""

    error: ErrorBody


# Collections ----------------------------------------------------------------------------------------------------------

Item = TypeVar("Item")


class Page(Answer, Generic[Item]):
    """A part of a collection, newest first; go on with `starting_after` set to the id of the last item."""

    data: list[Item]
    has_more: bool


class Collection(Answer, Generic[Item]):
    """A whole collection."""

    data: list[Item]
    has_more: Literal[False] = False


# Pipelines ------------------------------------------------------------------------------------------------------------


class PipelineUdf(Request):
    source: UdfSource
    name: UdfName | None = Field(default=None, description="which function of the source; else the only public one")


class CreatePipeline(Request):
    name: Name = Field(examples=["doubled"])
    query: Query
    udfs: list[PipelineUdf] = Field(
        default_factory=list, max_length=100, description="Python functions of this query, beside those of /udfs"
    )
    parallelism: Parallelism | None = Field(
        default=None, description="subtasks of each node; else as SET or the settings say"
    )
    checkpoint_interval: Interval | None = None
    preview: bool = Field(default=False, description="as POST /pipelines/preview does")
    from_savepoint: str | None = Field(
        default=None, description="the id of a savepoint to begin with, of this query or of one that it is a change of"
    )
    allow_fallback: bool = Field(default=False, description=_FALLBACK)

    @model_validator(mode="after")
    def _check_preview(self) -> Self:
        if self.preview and self.from_savepoint is not None:
            raise ValueError("a preview cannot begin with a savepoint")
        return self


class PreviewPipeline(Request):
    query: Query
    udfs: list[PipelineUdf] = Field(default_factory=list, max_length=100)
    name: Name = "preview"
    parallelism: Parallelism | None = None


class UpdatePipeline(Request):
    """What is left out stays as it is."""

    stop: StopMode | None = Field(default=None, description="how to stop the job; none makes it run again")
    parallelism: Parallelism | None = None
    checkpoint_interval: Interval | None = None
    allow_fallback: bool | None = Field(default=None, description=_FALLBACK)


class RestartPipeline(Request):
    force: bool = Field(default=False, description="restart at once, without a checkpoint first")
    ignore_state: bool = Field(
        default=False, description="begin anew: no checkpoint, and not the savepoint that the pipeline began with"
    )
    allow_fallback: bool | None = Field(default=None, description=f"{_FALLBACK}; from now on")


class ValidateQuery(Request):
    query: Query
    udfs: list[PipelineUdf] = Field(default_factory=list, max_length=100)
    from_savepoint: str | None = Field(
        default=None, description="the id of a savepoint; the answer's `state` is what would become of it"
    )


class Column(Answer):
    name: str
    type: str = Field(examples=["int64"])
    nullable: bool


QueriedKind: TypeAlias = Literal[
    "value",
    "key",
    "tumbling_window",
    "sliding_window",
    "session_window",
    "updating",
    "window_function",
    "instant_join",
    "join",
    "temporal_join",
    "async_udf",
]
GraphEdgeKind: TypeAlias = Literal["forward", "shuffle", "shuffle_left", "shuffle_right"]


class GraphOperator(Answer):
    id: str
    description: str
    kind: Literal["source", "sink", "lookup_join"] | QueriedKind
    connector: str | None = None
    table: str | None = None
    options: dict[str, str] | None = Field(
        None, description="with secrets left out; {{ NAME }} is filled in by workers"
    )
    sql: str | None = None
    columns: list[Column] = Field(description="of the rows that leave it, or that a sink writes")


class GraphNode(Answer):
    """A chain of operators, which run in one subtask."""

    id: str
    description: str
    parallelism: int = Field(description="the most subtasks that it can have; 0 for any number")
    operators: list[GraphOperator]


class GraphEdge(Answer):
    source: str
    target: str
    kind: GraphEdgeKind
    keys: list[str]
    output: Literal["rows", "dead_letters"]


class Graph(Answer):
    """The program that a query was compiled to."""

    nodes: list[GraphNode] = Field(description="in topological order")
    edges: list[GraphEdge]


class OperatorState(Answer):
    operator: str
    description: str | None = Field(description="none of an operator whose pipeline is gone")
    bytes: int = Field(description="of its state in the savepoint")


class RestoredState(Answer):
    """What a query would make of a savepoint; with anything incompatible, it cannot begin with it."""

    kept: list[OperatorState] = Field(description="they go on with their state")
    dropped: list[OperatorState] = Field(description="the query has no such operator, or it writes elsewhere")
    new: list[OperatorState] = Field(description="they begin without state")
    incompatible: list[OperatorState] = Field(description="the query has them, and they mean something else")


class Validation(Answer):
    """What the compiler makes of a query; there is no graph when a diagnostic is an error."""

    valid: bool
    diagnostics: list[Diagnostic]
    graph: Graph | None
    state: RestoredState | None = Field(default=None, description="of the savepoint; none without one, or a graph")


class PipelineSummary(Answer):
    id: str = Field(examples=["pl_01k9z0w7qj3v5x8y2b4c6d7e8f"])
    name: str
    query: str
    job_id: str = Field(examples=["job_01k9z0w7qj3v5x8y2b4c6d7e8f"])
    state: JobState = Field(description="of the job")
    stop: StopMode = Field(description="how the user wants the job to stop; none wants it to run")
    parallelism: int
    checkpoint_interval: Interval
    preview: bool
    from_savepoint: str | None = Field(description="the savepoint that the job began with")
    allow_fallback: bool = Field(description=_FALLBACK)
    created_at: datetime


class Pipeline(PipelineSummary):
    graph: Graph
    warnings: list[Diagnostic] = Field(default=[], description="of the compiler, when the pipeline was created")


# Python functions -----------------------------------------------------------------------------------------------------


class ValidateUdf(Request):
    source: UdfSource
    name: UdfName | None = Field(default=None, description="which function of the source; else the only public one")


class CreateUdf(ValidateUdf):
    replace: bool = Field(default=False, description="whether it may take the place of one of its name")


class UdfSignature(Answer):
    """How SQL calls a function."""

    name: str
    kind: Shape
    style: Style
    parameters: list[Column] = Field(description="one that is not nullable is never given a null")
    returns: str
    options: dict[str, str] = Field(description="what its source says of how it is called")
    hash: str = Field(description="of its artifact: another for each version")


class Udf(UdfSignature):
    id: str
    source: str
    created_at: datetime
    updated_at: datetime


class UdfValidation(Answer):
    """What the compiler makes of a function: none when a diagnostic is an error. Spans are in the source."""

    valid: bool
    diagnostics: list[Diagnostic]
    udf: UdfSignature | None


# Jobs -----------------------------------------------------------------------------------------------------------------


class JobError(Answer):
    message: str
    hint: str | None = None
    domain: ErrorDomain | None = Field(default=None, description="whose fault it is")


class JobSummary(Answer):
    id: str
    pipeline_id: str
    pipeline_name: str
    state: JobState
    stop: StopMode
    generation: int = Field(description="grows by one each time that the job is started")
    parallelism: int = Field(description="what the job runs at; 0 before it first ran")
    tasks: int
    restarts: int = Field(description="after failures, since the job was last healthy for a while")
    preview: bool
    error: JobError | None = Field(default=None, description="why the job failed, or what it recovers from")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime | None


class Worker(Answer):
    id: str
    node_id: str | None = Field(description="none when no node started it")
    rpc_address: str
    job_id: str | None = Field(description="none for a standby")
    generation: int | None
    tasks: int
    registered_at: datetime
    seen_at: datetime


class Job(JobSummary):
    workers: list[Worker] = Field(description="which run its subtasks")


class JobEvent(Answer):
    id: int
    at: datetime
    kind: Literal["state", "error", "warning"]
    generation: int
    from_state: JobState | None
    to_state: JobState | None
    node: str | None = Field(description="of the program")
    subtask: int | None
    message: str | None
    hint: str | None
    domain: ErrorDomain | None


class Latency(Answer):
    """counts[i] rows took at most bounds_ms[i], and more than the bound before it; the last count has no bound."""

    bounds_ms: list[float]
    counts: list[int]


class Counters(Answer):
    """What was done since the job's generation began."""

    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    batches_in: int
    batches_out: int
    bad_rows: int
    late_rows: int = Field(description="dropped because they came behind the watermark")
    dropped_rows: int = Field(description="preview rows that nobody was there to see")
    queued_rows: int = Field(description="waiting in input channels now")
    backpressure: float = Field(description="share of the last seconds spent waiting for room downstream, 0 to 1")
    watermark: datetime | None = Field(description="event time; none before there is one")
    watermark_lag_seconds: float | None = Field(description="how long ago the watermark's event time was")
    state_rows: int = Field(description="kept by operators now")
    state_bytes: int
    latency: Latency | None = Field(description="at sinks, from a row's event time to its write")


class SubtaskMetrics(Counters):
    subtask: int


class NodeMetrics(Counters):
    """A node of the program: the sums of its subtasks, their worst backpressure and lag, and their least watermark."""

    node: str
    description: str
    is_source: bool
    is_sink: bool
    subtasks: list[SubtaskMetrics]


class JobMetrics(Answer):
    job_id: str
    generation: int
    nodes: list[NodeMetrics]


# Checkpoints ----------------------------------------------------------------------------------------------------------


class Checkpoint(Answer):
    epoch: int = Field(description="grows over all generations of the job; `starting_after` takes it")
    generation: int
    state: Literal["inprogress", "committing", "ready", "abandoned", "deleted"] = Field(
        description="the job can go on from those that are committing or ready"
    )
    then_stop: bool = Field(description="whether the job's tasks end with it")
    savepoint_id: str | None = Field(description="of the savepoint that it was made for")
    started_at: datetime
    finished_at: datetime | None
    duration_seconds: float | None
    bytes: int = Field(description="written for it")
    error: str | None = Field(description="why it was abandoned")


class TimeSpan(Answer):
    started_at: datetime
    finished_at: datetime | None = Field(description="none when it is not over, or nobody heard of its end")
    duration_seconds: float | None


class SubtaskCheckpoint(Answer):
    """The spans are those of the subtask as a whole, which all operators of a node share."""

    subtask: int
    bytes: int = Field(description="written of this operator")
    alignment: TimeSpan | None = Field(description="from the first barrier to the last; none with a single input")
    frozen: TimeSpan | None = Field(description="while the stream stood still")
    written: TimeSpan | None = Field(description="the files, while the stream went on")
    committed_at: datetime | None = Field(description="of a sink that stages rows")


class OperatorCheckpoint(Answer):
    operator: str
    description: str | None = Field(description="none of an operator that the program no longer has")
    node: str
    bytes: int = Field(description="written by all subtasks")
    subtasks: list[SubtaskCheckpoint] = Field(description="those that have told something")


# Savepoints -----------------------------------------------------------------------------------------------------------


class CreateSavepoint(Request):
    name: SavepointName | None = Field(
        default=None,
        description="unlike those of the job's other savepoints; else its id",
        examples=["before the change"],
    )


class Savepoint(Answer):
    id: str = Field(examples=["sv_01k9z0w7qj3v5x8y2b4c6d7e8f"])
    name: str
    job_id: str = Field(description="of the job whose state it is, which may be gone")
    pipeline_id: str | None
    state: Literal["creating", "ready", "failed"] = Field(description="pipelines can begin with one that is ready")
    epoch: int | None = Field(description="of the checkpoint that it was made of")
    bytes: int = Field(description="of all its files, of which checkpoints may use some too")
    error: str | None = Field(description="why it could not be made")
    created_at: datetime


# The cluster ----------------------------------------------------------------------------------------------------------


class Connector(Answer):
    name: str
    description: str
    source: dict[str, Any] | None = Field(description="of a source, as a JSON schema; none when it cannot be one")
    sink: dict[str, Any] | None = Field(description="of a sink, as a JSON schema; none when it cannot be one")
    lookup: dict[str, Any] | None = Field(description="of a lookup table, as a JSON schema; none when it cannot be one")
    guarantee: Literal["exactly once", "at least once"] | None = Field(
        description="how often a row is seen in a sink, whatever fails; none when it cannot be one"
    )
    metadata: list[Column] = Field(description="what METADATA FROM can name")
    columns: list[Column] | None = Field(description="of a source; none where CREATE TABLE must name them")


class UpdateNode(Request):
    drain: bool = Field(description="have its jobs move elsewhere, and place nothing on it; false takes that back")


class Node(Answer):
    id: str
    rpc_address: str
    state: Literal["active", "draining", "drained"] = Field(
        description="nothing is left on one that is drained, and nothing comes: it can be stopped"
    )
    slots: int
    slots_used: int
    slots_free: int = Field(description="that jobs can have: none of a node that is, or just was, being drained")
    jobs: list[str] = Field(description="the ids of those that have workers on it")
    registered_at: datetime
    seen_at: datetime


class Ping(Answer):
    status: Literal["ok"] = "ok"
    version: str
