"""What requests and answers look like; the OpenAPI document is generated from here."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints, WithJsonSchema

from penstock.api.settings import MAX_PARALLELISM
from penstock.common.errors import ErrorDomain
from penstock.common.jobs import JobState, StopMode
from penstock.common.quantities import format_duration, parse_duration

_QUERY_EXAMPLE = """\
CREATE TABLE events (counter BIGINT, subtask_index BIGINT)
WITH (connector = 'impulse', event_rate = '10', type = 'source');

SELECT counter, counter * 2 AS doubled FROM events WHERE counter % 2 = 0;
"""


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
Query = Annotated[str, StringConstraints(min_length=1), Field(description="SQL", examples=[_QUERY_EXAMPLE])]
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


class CreatePipeline(Request):
    name: Name = Field(examples=["doubled"])
    query: Query
    parallelism: Parallelism | None = Field(
        default=None, description="subtasks of each node; else as SET or the settings say"
    )
    checkpoint_interval: Interval | None = None
    preview: bool = Field(default=False, description="as POST /pipelines/preview does")


class PreviewPipeline(Request):
    query: Query
    name: Name = "preview"
    parallelism: Parallelism | None = None


class UpdatePipeline(Request):
    """What is left out stays as it is."""

    stop: StopMode | None = Field(default=None, description="how to stop the job; none makes it run again")
    parallelism: Parallelism | None = None
    checkpoint_interval: Interval | None = None


class RestartPipeline(Request):
    force: bool = Field(default=False, description="restart at once, without a checkpoint first")


class ValidateQuery(Request):
    query: Query


class Column(Answer):
    name: str
    type: str = Field(examples=["int64"])
    nullable: bool


class GraphOperator(Answer):
    id: str
    description: str
    kind: Literal["source", "sink", "value"]
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
    kind: Literal["forward", "shuffle"]
    keys: list[str]
    output: Literal["rows", "dead_letters"]


class Graph(Answer):
    """The program that a query was compiled to."""

    nodes: list[GraphNode] = Field(description="in topological order")
    edges: list[GraphEdge]


class Validation(Answer):
    """What the compiler makes of a query; there is no graph when a diagnostic is an error."""

    valid: bool
    diagnostics: list[Diagnostic]
    graph: Graph | None


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
    created_at: datetime


class Pipeline(PipelineSummary):
    graph: Graph
    warnings: list[Diagnostic] = Field(default=[], description="of the compiler, when the pipeline was created")


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
    late_rows: int
    dropped_rows: int = Field(description="preview rows that nobody was there to see")
    queued_rows: int = Field(description="waiting in input channels now")
    backpressure: float = Field(description="share of the last seconds spent waiting for room downstream, 0 to 1")
    watermark: datetime | None = Field(description="event time; none before there is one")
    latency: Latency | None = Field(description="at sinks, from a row's event time to its write")


class SubtaskMetrics(Counters):
    subtask: int


class NodeMetrics(Counters):
    """A node of the program: the sums of its subtasks, their worst backpressure and their least watermark."""

    node: str
    description: str
    is_source: bool
    is_sink: bool
    subtasks: list[SubtaskMetrics]


class JobMetrics(Answer):
    job_id: str
    generation: int
    nodes: list[NodeMetrics]


# The cluster ----------------------------------------------------------------------------------------------------------


class Connector(Answer):
    name: str
    description: str
    source: dict[str, Any] | None = Field(description="of a source, as a JSON schema; none when it cannot be one")
    sink: dict[str, Any] | None = Field(description="of a sink, as a JSON schema; none when it cannot be one")
    metadata: list[Column] = Field(description="what METADATA FROM can name")
    columns: list[Column] | None = Field(description="of a source; none where CREATE TABLE must name them")


class Node(Answer):
    id: str
    rpc_address: str
    slots: int
    slots_used: int
    registered_at: datetime
    seen_at: datetime


class Ping(Answer):
    status: Literal["ok"] = "ok"
    version: str
