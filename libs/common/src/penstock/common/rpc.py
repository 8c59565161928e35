"""gRPC between services: one way to serve and one way to call, with the cluster's token, TLS, limits and errors.

server = await serve(lambda server: add_NodeServiceServicer_to_server(handlers, server), host=…, port=0, …)
async with connect(address, settings) as channel, calling(settings):
    answer = await NodeServiceStub(channel).GetWorkers(request)
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health import aio as health  # type: ignore[attr-defined]
from opentelemetry import propagate
from opentelemetry.context import attach

from penstock.common.config import Duration, Settings, Size
from penstock.common.errors import FencedError, InternalError, PeerUnavailable, PenstockError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.fencing import GENERATION_KEY, Fence
from penstock.common.quantities import format_duration
from penstock.common.rpc_errors import (
    DETAIL_KEY,
    MAX_METADATA_BYTES,
    encode_error,
    remote_error,
    status_of,
    status_text,
)

__all__ = ["RpcServer", "RpcSettings", "calling", "connect", "is_loopback", "remote_error", "serve", "status_of"]

_HEALTH = "/grpc.health.v1.Health/"
_AUTHORIZATION = "authorization"
_KEEPALIVE_MS = 10_000
_KEEPALIVE_ANSWER_MS = 5_000

log = structlog.get_logger(__name__)


class RpcSettings(Settings):
    token: str
    tls_cert: str
    tls_key: str
    tls_ca: str
    call_timeout: Duration
    max_message: Size


class RpcServer:
    """A running server, until it is closed."""

    def __init__(self, server: grpc.aio.Server, checks: health.HealthServicer, port: int) -> None:
        self._server = server
        self._checks = checks
        self.port = port

    async def close(self, grace: float = 2.0) -> None:
        """Take no more calls, and end those that are still running after `grace` seconds."""
        await self._checks.enter_graceful_shutdown()
        await self._server.stop(grace)


async def serve(
    add: Callable[[grpc.aio.Server], None], *, host: str, port: int, settings: RpcSettings, fence: Fence | None = None
) -> RpcServer:
    """Serve what `add` registers, and health checks; port 0 takes a free one. With a fence, commands of a controller
    that no longer leads are refused."""
    if not settings.token and not is_loopback(host):
        hint = "set rpc.token to a secret that all services of the cluster share, or serve on 127.0.0.1"
        raise SettingsError(f"refusing to serve RPCs on {host} without a token", hint=hint)
    credentials = await asyncio.to_thread(_server_credentials, settings)
    server = grpc.aio.server(
        interceptors=(_Authorize(settings.token), _Obey(fence or Fence()), _MapErrors()),
        options=[
            *_limits(settings),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
            ("grpc.http2.max_ping_strikes", 0),
        ],
    )
    checks = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    add(server)
    bound = _bind(server, host, port, credentials)
    await server.start()
    log.info(LogEvent.RPC_SERVING, host=host, port=bound, tls=credentials is not None)
    return RpcServer(server, checks, bound)


def connect(address: str, settings: RpcSettings, *, leads: int = 0) -> grpc.aio.Channel:
    """A channel to `host:port`, which connects when it is first used and again after a loss; close it in the end. The
    calls of a controller that leads carry its generation."""
    options = [
        *_limits(settings),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Channels to one address would else share a connection, and so its backoff and its fate.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    # The stubs leave the type of an interceptor open.
    interceptors: Any = (_SendUnary(settings.token, leads), _SendStreaming(settings.token, leads))
    if not settings.tls_ca:
        return grpc.aio.insecure_channel(address, options, interceptors=interceptors)
    return grpc.aio.secure_channel(address, _channel_credentials(settings), options, interceptors=interceptors)


@asynccontextmanager
async def calling(settings: RpcSettings, *, within: timedelta | None = None) -> AsyncIterator[None]:
    """The block of one call: ends it in time, and raises the peer's error as the peer raised it."""
    limit = settings.call_timeout if within is None else within
    try:
        async with asyncio.timeout(limit.total_seconds()) as scope:
            yield
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise PeerUnavailable(f"the call was not answered within {format_duration(limit)}") from error
    except grpc.aio.AioRpcError as error:
        raise remote_error(error) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to a host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _limits(settings: RpcSettings) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_send_message_length", settings.max_message),
        ("grpc.max_receive_message_length", settings.max_message),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ]


def _bind(server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None) -> int:
    address = f"[{host}]:{port}" if ":" in host.strip("[]") and not host.startswith("[") else f"{host}:{port}"
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        hint = "another process may be using the port; set another, or 0 for a free one"
        raise SettingsError(f"cannot serve RPCs on {address}", hint=hint) from error


def _server_credentials(settings: RpcSettings) -> grpc.ServerCredentials | None:
    if not settings.tls_cert and not settings.tls_key:
        return None
    pair = (_read_pem("rpc.tls_key", settings.tls_key), _read_pem("rpc.tls_cert", settings.tls_cert))
    authority = _read_pem("rpc.tls_ca", settings.tls_ca) if settings.tls_ca else None
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)


def _channel_credentials(settings: RpcSettings) -> grpc.ChannelCredentials:
    has_pair = settings.tls_cert and settings.tls_key
    return grpc.ssl_channel_credentials(
        _read_pem("rpc.tls_ca", settings.tls_ca),
        _read_pem("rpc.tls_key", settings.tls_key) if has_pair else None,
        _read_pem("rpc.tls_cert", settings.tls_cert) if has_pair else None,
    )


def _read_pem(setting: str, path: str) -> bytes:
    if not path:
        raise SettingsError(f"{setting} is missing", hint="TLS needs both rpc.tls_cert and rpc.tls_key")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {setting} {path}: {error.strerror}") from error


class _Authorize(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls without the cluster's token; health checks need none."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode() if token else None

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        if self._expected is None or handler_call_details.method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        given = _metadata(handler_call_details).get(_AUTHORIZATION, "")
        if hmac.compare_digest(given.encode(), self._expected):
            return await continuation(handler_call_details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the cluster's token is missing or wrong")


class _Obey(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses the commands of a controller that no longer leads."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        generation = _metadata(handler_call_details).get(GENERATION_KEY, "")
        if not generation.isdecimal():
            return await continuation(handler_call_details)
        try:
            self._fence.admit(int(generation), handler_call_details.method.rpartition("/")[2])
        except FencedError as error:
            refusal = error

            async def refuse(_request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
                await _abort(context, refusal)

            return grpc.unary_unary_rpc_method_handler(refuse)
        return await continuation(handler_call_details)


class _MapErrors(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Turns a handler's error into a status with its detail, and continues the caller's trace."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        method = handler_call_details.method
        if method in self._handlers:
            return self._handlers[method]
        handler = await continuation(handler_call_details)
        # The stubs promise a handler; there is none for a method that is not served.
        if handler is None or method.startswith(_HEALTH):  # type: ignore[redundant-expr]
            return handler
        self._handlers[method] = _mapped_handler(method, handler)
        return self._handlers[method]


def _mapped_handler(method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    codec = (handler.request_deserializer, handler.response_serializer)
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_mapped(method, handler.unary_unary), *codec)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_mapped(method, handler.unary_stream), *codec)
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(_mapped(method, handler.stream_unary), *codec)
    return grpc.stream_stream_rpc_method_handler(_mapped(method, handler.stream_stream), *codec)


def _mapped(method: str, behaviour: Any) -> Any:
    """A handler with its errors mapped; gRPC looks at whether it is a coroutine or a generator."""

    async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        async with _mapping(method, context):
            return await behaviour(request, context)

    async def streaming(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        async with _mapping(method, context), aclosing(behaviour(request, context)) as responses:
            async for response in responses:
                yield response

    return streaming if inspect.isasyncgenfunction(behaviour) else unary


@asynccontextmanager
async def _mapping(method: str, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    fields = propagate.get_global_textmap().fields
    trace = {key: value for key, value in context.invocation_metadata() or () if key in fields}
    if trace:
        # Never detached: the context is that of this call's own task.
        attach(propagate.extract(trace))
    try:
        yield
    except PenstockError as error:
        if isinstance(error, FencedError):
            log.warning(LogEvent.CALL_REFUSED, method=method.rpartition("/")[2], peer=context.peer(), reason=str(error))
        await _abort(context, error)
    except grpc.aio.AbortError:
        raise
    except Exception as error:
        log.exception(LogEvent.RPC_FAILED, method=method)
        await _abort(context, InternalError(f"{method} failed unexpectedly with {type(error).__name__}"))


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: PenstockError) -> NoReturn:
    await context.abort(status_of(error), status_text(error), ((DETAIL_KEY, encode_error(error)),))


def _metadata(details: grpc.HandlerCallDetails) -> dict[str, str]:
    return {key: value for key, value in details.invocation_metadata or () if isinstance(value, str)}


class _Send:
    """Adds the token, the generation of one that leads, and the current trace to a call."""

    def __init__(self, token: str, leads: int) -> None:
        authorization = ((_AUTHORIZATION, f"Bearer {token}"),) if token else ()
        self._always = (*authorization, *(((GENERATION_KEY, str(leads)),) if leads else ()))

    def details(self, call: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        trace: dict[str, str] = {}
        propagate.inject(trace)
        added = (*self._always, *trace.items())
        metadata = grpc.aio.Metadata(*(call.metadata or ()), *added)
        return grpc.aio.ClientCallDetails(call.method, call.timeout, metadata, call.credentials, call.wait_for_ready)


class _SendUnary(_Send, grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(self.details(client_call_details), request)


class _SendStreaming(_Send, grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        return await continuation(self.details(client_call_details), request)
