"""Errors across HTTP: which status and body one becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.schemas import Diagnostic, ErrorBody, ErrorResponse, Severity
from penstock.common.checkpoint.metadata import CorruptSnapshot
from penstock.common.errors import ErrorDomain, NotFound, PenstockError, UserError
from penstock.common.events import LogEvent

_STATUS_OF_DOMAIN: Mapping[ErrorDomain, HTTPStatus] = {
    ErrorDomain.USER: HTTPStatus.BAD_REQUEST,
    ErrorDomain.EXTERNAL: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorDomain.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_HINT_OF_STATUS: Mapping[int, str] = {
    HTTPStatus.NOT_FOUND: "/api/v1/openapi.json lists what is served",
    HTTPStatus.METHOD_NOT_ALLOWED: "the allow header of this answer lists the methods of this address",
}

log = structlog.get_logger(__name__)


class InvalidQuery(UserError):
    """SQL that the compiler refused, with all that it says of it."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        errors = [one for one in diagnostics if one.severity is Severity.ERROR]
        first = errors[0]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        super().__init__(f"{first.message}{more}", hint=first.hint)
        self.diagnostics = tuple(diagnostics)


class InvalidUdf(UserError):
    """A Python function that the compiler refused, with all that it says of its source."""

    def __init__(self, diagnostics: Sequence[Diagnostic], name: str | None = None) -> None:
        first = next(one for one in diagnostics if one.severity is Severity.ERROR)
        of = "" if name is None else f"function {name}: "
        super().__init__(f"{of}{first.message}", hint=first.hint)
        self.diagnostics = tuple(diagnostics)


class Conflict(UserError):
    """What was asked for does not go together with what is."""


class Unauthorized(UserError):
    """The token is missing or wrong."""


class ForbiddenHost(UserError):
    """A request that was sent to another name than this machine's own."""


class BodyTooLarge(UserError):
    """A request's body is over the limit."""


_STATUS_OF_CLASS: Mapping[type[PenstockError], HTTPStatus] = {
    NotFound: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    CorruptSnapshot: HTTPStatus.CONFLICT,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    ForbiddenHost: HTTPStatus.FORBIDDEN,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


def http_error(error: Exception) -> JSONResponse:
    """The answer that an error becomes."""
    match error:
        case InvalidQuery():
            body = _body("invalid_query", error.message, error.hint, error.diagnostics)
            return _answer(HTTPStatus.BAD_REQUEST, body)
        case InvalidUdf():
            return _answer(HTTPStatus.BAD_REQUEST, _body("invalid_udf", error.message, error.hint, error.diagnostics))
        case PenstockError():
            return _answer(_status_of(error), _body(_snake(type(error).__name__), error.message, error.hint))
        case RequestValidationError():
            return _answer(HTTPStatus.UNPROCESSABLE_ENTITY, _of_validation(error.errors()))
        case HTTPException():
            status = HTTPStatus(error.status_code)
            message = str(error.detail).lower()
            body = _body(_snake(status.name), message, _HINT_OF_STATUS.get(status))
            return _answer(status, body, error.headers)
        case _:
            message = f"the request failed unexpectedly with {type(error).__name__}"
            hint = "the api's log says more"
            return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, _body("internal_error", message, hint))


def install(app: FastAPI) -> None:
    """Answer every error of the app in the one form."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        response = http_error(error)
        if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error(LogEvent.REQUEST_FAILED, method=request.method, path=request.url.path, exc_info=error)
        return response

    for kind in (PenstockError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)
    app.add_middleware(_Unexpected)


class _Unexpected:
    """Answers what nobody foresaw, and logs it once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            log.exception(LogEvent.REQUEST_FAILED, method=scope.get("method"), path=scope.get("path"))
            if started:
                raise
            await http_error(error)(scope, receive, send)


def _status_of(error: PenstockError) -> HTTPStatus:
    for kind in type(error).__mro__:
        if kind in _STATUS_OF_CLASS:
            return _STATUS_OF_CLASS[kind]
    return _STATUS_OF_DOMAIN[error.domain]


def _of_validation(problems: Sequence[Any]) -> ErrorBody:
    """Every field that is wrong, in one message."""
    if any(problem["type"] == "json_invalid" for problem in problems):
        return _body("invalid_json", "the body is not JSON", "send an object, with content-type application/json")
    reasons = []
    for problem in problems:
        _source, *path = problem["loc"]
        field = ".".join(str(part) for part in path) or "body"
        reason = "unknown field" if problem["type"] == "extra_forbidden" else _lowered(problem["msg"])
        reasons.append(f"{field}: {reason}")
    return _body("invalid_request", "; ".join(reasons), "/api/v1/openapi.json describes each request")


def _lowered(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _body(code: str, message: str, hint: str | None = None, spans: Sequence[Diagnostic] | None = None) -> ErrorBody:
    return ErrorBody(code=code, message=message, hint=hint, spans=None if spans is None else list(spans))


def _answer(status: HTTPStatus, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    content = ErrorResponse(error=body).model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status, headers=dict(headers or {}))
