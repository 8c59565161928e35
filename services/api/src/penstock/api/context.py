"""What the routes work with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Annotated, Protocol

from fastapi import Depends, Query, Request

from penstock.api.checkpoint_store import CheckpointStore
from penstock.api.cluster_store import ClusterStore
from penstock.api.peers import Compiler, Controller
from penstock.api.schemas import ErrorResponse
from penstock.api.settings import ApiSettings
from penstock.api.store import Store
from penstock.api.udf_store import UdfStore
from penstock.common import subjects
from penstock.common.bus import Message
from penstock.common.ids import JobId
from penstock.common.storage import Storage


class Notifications(Protocol):
    """Facts from and for others, best effort."""

    def publish(self, subject: str, payload: bytes) -> None: ...

    def subscribe(self, subject: str) -> AbstractAsyncContextManager[AsyncIterator[Message]]: ...


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of a running api."""

    settings: ApiSettings
    store: Store
    checkpoints: CheckpointStore
    cluster: ClusterStore
    udfs: UdfStore
    compiler: Compiler
    controller: Controller
    bus: Notifications
    storage: Storage | None
    """Where the folders of all jobs are; None when the api is not told."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def wake_controller(self, job: JobId) -> None:
        """Tell that a job's desired state changed; without it the controller finds out by looking."""
        self.bus.publish(subjects.job_desired(job), b"")


def _context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


InContext = Annotated[Context, Depends(_context_of)]
Limit = Annotated[int, Query(ge=1, le=100, description="the most items of the answer")]
StartingAfter = Annotated[str | None, Query(description="go on after the item of this id")]

Responses = dict[int | str, dict[str, object]]

_ERRORS = {
    400: "the request cannot be done as it is",
    401: "the token is missing or wrong",
    404: "there is no such thing",
    409: "it does not go together with the state of the job",
    422: "the request is not well-formed",
    503: "the database or another service cannot be reached",
}


def errors(*statuses: int) -> Responses:
    """The errors of a route, for its documentation."""
    return {
        status: {"model": ErrorResponse, "description": _ERRORS[status]}
        for status in sorted({*statuses, 401, 422, 503})
    }
