"""A client of the api, with its errors as ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from penstock.api import schemas
from penstock.api.schemas import (
    Checkpoint,
    Collection,
    CreatePipeline,
    CreateSavepoint,
    CreateUdf,
    ErrorResponse,
    Job,
    JobEvent,
    JobMetrics,
    JobSummary,
    Node,
    OperatorCheckpoint,
    Page,
    Pipeline,
    PipelineSummary,
    RestartPipeline,
    Savepoint,
    Udf,
    UdfValidation,
    UpdateNode,
    UpdatePipeline,
    ValidateQuery,
    ValidateUdf,
    Validation,
)
from penstock.common import diagnostics
from penstock.common.errors import ExternalError, PeerUnavailable, UserError

_PREFIX: Final = "/api/v1"
_SECONDS: Final = 90.0  # a query's compilation included
_ROWS_MARK: Final = '"rows":['

Answer = TypeVar("Answer", bound=BaseModel)


class RequestRefused(UserError):
    """The api refused a request; `diagnostics` are those of a query."""

    def __init__(
        self, message: str, *, hint: str | None, code: str, found: tuple[diagnostics.Diagnostic, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.diagnostics = found


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Rows of a preview, each as the JSON text that it came as."""

    table: str
    rows: tuple[str, ...]


class Client:
    """Speaks to one api."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.AsyncClient(base_url=self._url + _PREFIX, headers=headers, timeout=_SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def create_pipeline(self, request: CreatePipeline) -> Pipeline:
        return await self._ask(Pipeline, "POST", "/pipelines", request)

    async def validate(self, request: ValidateQuery) -> Validation:
        return await self._ask(Validation, "POST", "/pipelines/validate", request)

    async def pipelines(self, limit: int, starting_after: str | None = None) -> Page[PipelineSummary]:
        return await self._ask(Page[PipelineSummary], "GET", "/pipelines", parameters=_paging(limit, starting_after))

    async def pipeline(self, pipeline_id: str) -> Pipeline:
        return await self._ask(Pipeline, "GET", f"/pipelines/{pipeline_id}")

    async def update_pipeline(self, pipeline_id: str, request: UpdatePipeline) -> Pipeline:
        return await self._ask(Pipeline, "PATCH", f"/pipelines/{pipeline_id}", request)

    async def restart_pipeline(self, pipeline_id: str, request: RestartPipeline) -> Pipeline:
        return await self._ask(Pipeline, "POST", f"/pipelines/{pipeline_id}/restart", request)

    async def rebalance_pipeline(self, pipeline_id: str) -> Pipeline:
        return await self._ask(Pipeline, "POST", f"/pipelines/{pipeline_id}/rebalance")

    async def delete_pipeline(self, pipeline_id: str) -> None:
        await self._request("DELETE", f"/pipelines/{pipeline_id}")

    async def jobs(self, limit: int, starting_after: str | None = None) -> Page[JobSummary]:
        return await self._ask(Page[JobSummary], "GET", "/jobs", parameters=_paging(limit, starting_after))

    async def job(self, job_id: str) -> Job:
        return await self._ask(Job, "GET", f"/jobs/{job_id}")

    async def job_errors(self, job_id: str, limit: int) -> Page[JobEvent]:
        return await self._ask(Page[JobEvent], "GET", f"/jobs/{job_id}/errors", parameters={"limit": limit})

    async def job_metrics(self, job_id: str) -> JobMetrics:
        return await self._ask(JobMetrics, "GET", f"/jobs/{job_id}/metrics")

    async def job_checkpoints(self, job_id: str, limit: int) -> Page[Checkpoint]:
        return await self._ask(Page[Checkpoint], "GET", f"/jobs/{job_id}/checkpoints", parameters={"limit": limit})

    async def checkpoint_operators(self, job_id: str, epoch: int) -> Collection[OperatorCheckpoint]:
        """How long each subtask took for a checkpoint."""
        return await self._ask(Collection[OperatorCheckpoint], "GET", f"/jobs/{job_id}/checkpoints/{epoch}/operators")

    async def create_savepoint(self, job_id: str, request: CreateSavepoint) -> Savepoint:
        return await self._ask(Savepoint, "POST", f"/jobs/{job_id}/savepoints", request)

    async def savepoints(self, limit: int, job_id: str | None = None) -> Page[Savepoint]:
        """Those of a job, or all."""
        path = "/savepoints" if job_id is None else f"/jobs/{job_id}/savepoints"
        return await self._ask(Page[Savepoint], "GET", path, parameters={"limit": limit})

    async def savepoint(self, savepoint_id: str) -> Savepoint:
        return await self._ask(Savepoint, "GET", f"/savepoints/{savepoint_id}")

    async def delete_savepoint(self, savepoint: Savepoint) -> None:
        await self._request("DELETE", f"/jobs/{savepoint.job_id}/savepoints/{savepoint.id}")

    async def create_udf(self, request: CreateUdf) -> Udf:
        return await self._ask(Udf, "POST", "/udfs", request)

    async def validate_udf(self, request: ValidateUdf) -> UdfValidation:
        return await self._ask(UdfValidation, "POST", "/udfs/validate", request)

    async def udfs(self, limit: int, starting_after: str | None = None) -> Page[Udf]:
        return await self._ask(Page[Udf], "GET", "/udfs", parameters=_paging(limit, starting_after))

    async def udf(self, udf_id: str) -> Udf:
        return await self._ask(Udf, "GET", f"/udfs/{udf_id}")

    async def delete_udf(self, udf_id: str) -> None:
        await self._request("DELETE", f"/udfs/{udf_id}")

    async def nodes(self) -> Collection[Node]:
        return await self._ask(Collection[Node], "GET", "/nodes")

    async def node(self, node_id: str) -> Node:
        return await self._ask(Node, "GET", f"/nodes/{node_id}")

    async def update_node(self, node_id: str, request: UpdateNode) -> Node:
        return await self._ask(Node, "PATCH", f"/nodes/{node_id}", request)

    async def output(self, job_id: str) -> AsyncIterator[OutputRows]:
        """The rows of a job's previews, until the job has ended."""
        try:
            async with self._http.stream("GET", f"/jobs/{job_id}/output", timeout=None) as response:
                if response.is_error:
                    raise _refusal(response.status_code, await response.aread())
                name = ""
                async for line in response.aiter_lines():
                    field, _, value = line.partition(": ")
                    if field == "event":
                        name = value
                    elif field == "data" and name == "error":
                        raise _refusal(200, value.encode())
                    elif field == "data" and not name:
                        yield _rows(value)
                    elif name == "end":
                        return
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    async def _ask(
        self,
        kind: type[Answer],
        method: str,
        path: str,
        body: BaseModel | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> Answer:
        content = await self._request(method, path, body, parameters)
        try:
            return kind.model_validate_json(content)
        except ValidationError as error:
            raise ExternalError(f"{self._url} does not answer as Penstock's api does", hint="look at --api") from error

    async def _request(
        self, method: str, path: str, body: BaseModel | None = None, parameters: Mapping[str, Any] | None = None
    ) -> bytes:
        content = None if body is None else body.model_dump_json(exclude_unset=True)
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            response = await self._http.request(method, path, content=content, headers=headers, params=parameters)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise _refusal(response.status_code, response.content)
        return response.content

    def _unreachable(self, error: httpx.HTTPError) -> PeerUnavailable:
        hint = "`penstock up` starts one here; --api or PENSTOCK_API names another"
        return PeerUnavailable(f"cannot reach the api at {self._url}: {str(error) or type(error).__name__}", hint=hint)


def _paging(limit: int, starting_after: str | None) -> dict[str, Any]:
    return {"limit": limit} if starting_after is None else {"limit": limit, "starting_after": starting_after}


def _refusal(status: int, content: bytes) -> RequestRefused | ExternalError:
    try:
        error = ErrorResponse.model_validate_json(content).error
    except ValidationError:
        return ExternalError(f"the api answered with status {status} and no reason", hint="look at --api")
    found = tuple(map(diagnostic_of, error.spans or ()))
    return RequestRefused(error.message, hint=error.hint, code=error.code, found=found)


def diagnostic_of(answer: schemas.Diagnostic) -> diagnostics.Diagnostic:
    """What the compiler said, in an answer of the api."""
    span = None if answer.span is None else diagnostics.Span(**dict(answer.span))
    severity = diagnostics.Severity[answer.severity.name]
    return diagnostics.Diagnostic(severity, answer.code, answer.message, answer.hint, span)


def _rows(data: str) -> OutputRows:
    """The rows as they were written: numbers that Python would round stay as they are."""
    decoder = json.JSONDecoder()
    position = data.index(_ROWS_MARK)
    table = json.loads(data[:position].rstrip(",") + "}")["table"]
    position += len(_ROWS_MARK)
    rows = []
    while data[position] != "]":
        _, end = decoder.raw_decode(data, position)
        rows.append(data[position:end])
        position = end + (data[end] == ",")
    return OutputRows(table, tuple(rows))
