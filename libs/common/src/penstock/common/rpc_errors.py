"""Errors across gRPC: which status one becomes, and which error a status becomes again."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from penstock.common import errors
from penstock.common.errors import (
    ErrorDomain,
    ExternalError,
    InternalError,
    NotFound,
    NotLeader,
    ObjectNotFound,
    PeerUnavailable,
    PenstockError,
    RetryHint,
    SettingsError,
    UserError,
)
from penstock.common.proto.error_pb2 import ErrorDetail

DETAIL_KEY = "penstock-error-bin"
# A message and a hint are trailing metadata, of which both sides take this much.
MAX_METADATA_BYTES = 64 * 1024
_LONGEST_MESSAGE = 4000
_LONGEST_HINT = 2000
_LONGEST_STATUS = 400

_STATUS_OF_DOMAIN = {
    ErrorDomain.USER: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorDomain.EXTERNAL: grpc.StatusCode.UNAVAILABLE,
    ErrorDomain.INTERNAL: grpc.StatusCode.INTERNAL,
}
_BRANCH_OF_DOMAIN: dict[str, type[PenstockError]] = {
    ErrorDomain.USER: UserError,
    ErrorDomain.EXTERNAL: ExternalError,
    ErrorDomain.INTERNAL: InternalError,
}
_UNREACHABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def status_of(error: PenstockError) -> grpc.StatusCode:
    """The gRPC status that an error becomes."""
    if isinstance(error, NotFound | ObjectNotFound):
        return grpc.StatusCode.NOT_FOUND
    return _STATUS_OF_DOMAIN[error.domain]


def status_text(error: PenstockError) -> str:
    """The status's own message, for tools that know nothing of the detail."""
    return error.message[:_LONGEST_STATUS]


def encode_error(error: PenstockError) -> bytes:
    """The detail that goes with the status."""
    detail = ErrorDetail(
        kind=_shared_class(type(error)).__name__,
        message=error.message[:_LONGEST_MESSAGE],
        hint=(error.hint or "")[:_LONGEST_HINT],
        domain=error.domain,
        retry=error.retry,
        leader=error.leader if isinstance(error, NotLeader) else "",
    )
    return detail.SerializeToString()


def decode_error(detail: bytes) -> PenstockError:
    """The error of a detail."""
    try:
        return _decode_error(ErrorDetail.FromString(detail))
    except (DecodeError, ValueError):
        return InternalError("a peer failed without a reason that can be read")


def remote_error(error: grpc.aio.AioRpcError) -> PenstockError:
    """What a failed call says: the peer's own error, else what became of the call."""
    trailing: Iterable[tuple[str, str | bytes]] = cast(Any, error.trailing_metadata()) or ()
    for key, value in trailing:
        if key == DETAIL_KEY and isinstance(value, bytes):
            try:
                return _decode_error(ErrorDetail.FromString(value))
            except (DecodeError, ValueError):
                break
    return _error_of_status(error.code(), error.details() or "no reason was given")


def _shared_class(kind: type[PenstockError]) -> type[PenstockError]:
    """The nearest class that every service knows: a library's own leaf travels as the one that it extends."""
    return next(base for base in kind.__mro__ if base.__module__ == errors.__name__)


def _decode_error(detail: ErrorDetail) -> PenstockError:
    named: Any = getattr(errors, detail.kind, None)
    known = inspect.isclass(named) and issubclass(named, PenstockError) and named is not PenstockError
    kind: type[PenstockError] = named if known else _BRANCH_OF_DOMAIN.get(detail.domain, InternalError)
    error = kind(detail.message, hint=detail.hint or None)
    if isinstance(error, NotLeader):
        error.leader = detail.leader
    # A leaf that this side does not know may differ from its class in this.
    vars(error)["retry"] = RetryHint(detail.retry)
    return error


def _error_of_status(code: grpc.StatusCode, details: str) -> PenstockError:
    reason = details[:1].lower() + details[1:]
    if code in _UNREACHABLE:
        return PeerUnavailable(f"the call was not answered: {reason}")
    match code:
        case grpc.StatusCode.UNAUTHENTICATED:
            return SettingsError(f"the call was refused: {reason}", hint="set the same rpc.token for all services")
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(reason)
        case _:
            return InternalError(f"the call failed with {code.name}: {reason}")
