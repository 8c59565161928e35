from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry import trace
from structlog.testing import capture_logs

from penstock.common.config import load_config
from penstock.common.errors import (
    ExternalError,
    FencedError,
    InternalError,
    NotFound,
    PeerUnavailable,
    PenstockError,
    RetryHint,
    SettingsError,
    UserError,
)
from penstock.common.rpc import RpcServer, RpcSettings, calling, connect, serve
from penstock.common.testing_certificates import write_certificates

Handler = Callable[[str], Awaitable[str]]


class LostThing(ExternalError):
    """A leaf that only this side knows."""

    retry = RetryHint.NEVER


def settings(**changes: object) -> RpcSettings:
    return load_config(environment={}).section("rpc", RpcSettings).model_copy(update=changes)


def register(server: grpc.aio.Server, handler: Handler) -> None:
    """A service of two methods: Ask answers once, and Stream answers twice before the handler's answer."""

    async def ask(request: StringValue, _context: Any) -> StringValue:
        return StringValue(value=await handler(request.value))

    async def stream(request: StringValue, _context: Any) -> AsyncIterator[StringValue]:
        for number in range(2):
            yield StringValue(value=str(number))
        yield StringValue(value=await handler(request.value))

    codec = (StringValue.FromString, StringValue.SerializeToString)
    handlers = {
        "Ask": grpc.unary_unary_rpc_method_handler(ask, *codec),
        "Stream": grpc.unary_stream_rpc_method_handler(stream, *codec),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))


async def start(handler: Handler, used: RpcSettings, port: int = 0) -> RpcServer:
    return await serve(lambda server: register(server, handler), host="127.0.0.1", port=port, settings=used)


async def ask(port: int, used: RpcSettings, text: str = "") -> str:
    async with connect(f"127.0.0.1:{port}", used) as channel, calling(used):
        method = channel.unary_unary("/test.Echo/Ask", StringValue.SerializeToString, StringValue.FromString)
        answer: StringValue = await method(StringValue(value=text))
        return answer.value


async def stream(port: int, used: RpcSettings) -> list[str]:
    received: list[str] = []
    async with connect(f"127.0.0.1:{port}", used) as channel, calling(used):
        method = channel.unary_stream("/test.Echo/Stream", StringValue.SerializeToString, StringValue.FromString)
        async for answer in method(StringValue()):
            received.append(answer.value)
    return received


async def echo(text: str) -> str:
    return f"echo {text}"


async def test_a_call_is_answered_once_or_as_a_stream() -> None:
    used = settings()
    server = await start(echo, used)
    try:
        assert await ask(server.port, used, "a") == "echo a"
        assert await stream(server.port, used) == ["0", "1", "echo "]
    finally:
        await server.close()


@pytest.mark.parametrize(
    ("raised", "expected", "status"),
    [
        (UserError("bad query", hint="fix it"), UserError, grpc.StatusCode.INVALID_ARGUMENT),
        (SettingsError("bad setting"), SettingsError, grpc.StatusCode.INVALID_ARGUMENT),
        (NotFound("no such job"), NotFound, grpc.StatusCode.NOT_FOUND),
        (ExternalError("storage is away"), ExternalError, grpc.StatusCode.UNAVAILABLE),
        (LostThing("gone for good"), ExternalError, grpc.StatusCode.UNAVAILABLE),
        (InternalError("broken invariant"), InternalError, grpc.StatusCode.INTERNAL),
        (UserError("ünïcode 流 " * 2000, hint="長" * 4000), UserError, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PenstockError) else "",
)
@pytest.mark.parametrize("call", [ask, stream])
async def test_an_error_arrives_as_it_was_raised(
    call: Callable[..., Awaitable[object]],
    raised: PenstockError,
    expected: type[PenstockError],
    status: grpc.StatusCode,
) -> None:
    async def fail(_text: str) -> str:
        raise raised

    used = settings()
    server = await start(fail, used)
    try:
        with pytest.raises(PenstockError) as caught:
            await call(server.port, used)
    finally:
        await server.close()
    error = caught.value
    assert type(error) is expected
    assert error.message == raised.message[:4000]
    assert error.hint == (raised.hint[:2000] if raised.hint else None)
    assert error.retry == raised.retry
    assert isinstance(error.__cause__, grpc.aio.AioRpcError)
    assert error.__cause__.code() == status


async def test_an_unexpected_exception_is_logged_once_and_shows_no_internals() -> None:
    async def fail(_text: str) -> str:
        raise KeyError("password=hunter2")

    used = settings()
    server = await start(fail, used)
    with capture_logs() as logs:
        try:
            with pytest.raises(InternalError, match="KeyError") as caught:
                await ask(server.port, used)
        finally:
            await server.close()
    assert "hunter2" not in str(caught.value)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["rpc_failed"]


async def test_a_call_of_a_generation_that_is_over_is_logged() -> None:
    async def refuse(_text: str) -> str:
        raise FencedError("generation 1 is over")

    used = settings()
    server = await start(refuse, used)
    with capture_logs() as logs:
        try:
            with pytest.raises(FencedError):
                await ask(server.port, used)
        finally:
            await server.close()
    (refused,) = [entry for entry in logs if entry["event"] == "call_refused"]
    assert (refused["method"], refused["reason"]) == ("Ask", "generation 1 is over")
    assert "127.0.0.1" in refused["peer"]


async def test_a_peer_that_is_away_is_unavailable_and_found_again_once_it_is_back() -> None:
    used = settings()
    server = await start(echo, used)
    port = server.port
    async with connect(f"127.0.0.1:{port}", used) as channel:
        method = channel.unary_unary("/test.Echo/Ask", StringValue.SerializeToString, StringValue.FromString)
        async with calling(used):
            await method(StringValue())
        await server.close(0)
        with pytest.raises(PeerUnavailable) as caught:
            async with calling(used):
                await method(StringValue())
        assert caught.value.retry is RetryHint.BACKOFF
        again = await start(echo, used, port)
        try:
            async with calling(used):
                answer = await method(StringValue(value="b"), wait_for_ready=True)
            assert answer.value == "echo b"
        finally:
            await again.close()


async def test_a_call_ends_at_its_limit() -> None:
    cancelled = asyncio.Event()

    async def hang(_text: str) -> str:
        try:
            return await asyncio.Future()
        finally:
            cancelled.set()

    used = settings(call_timeout=timedelta(milliseconds=200))
    server = await start(hang, used)
    try:
        with pytest.raises(PeerUnavailable, match="within 200ms"):
            await ask(server.port, used)
        async with asyncio.timeout(5):
            await cancelled.wait()
    finally:
        await server.close(0)


async def test_a_timeout_within_the_block_is_not_the_call_s() -> None:
    with pytest.raises(TimeoutError):
        async with calling(settings()):
            raise TimeoutError


@pytest.mark.parametrize("token", ["", "wrong"])
@pytest.mark.parametrize("call", [ask, stream])
async def test_a_call_without_the_token_is_refused(call: Callable[..., Awaitable[object]], token: str) -> None:
    used = settings(token="right")
    server = await start(echo, used)
    try:
        await call(server.port, used)
        with pytest.raises(SettingsError, match="token") as caught:
            await call(server.port, settings(token=token))
        assert caught.value.hint is not None
    finally:
        await server.close()


async def test_health_is_told_without_the_token() -> None:
    server = await start(echo, settings(token="right"))
    try:
        async with connect(f"127.0.0.1:{server.port}", settings()) as channel, calling(settings()):
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        await server.close()


async def test_serving_beyond_loopback_needs_a_token() -> None:
    with pytest.raises(SettingsError, match="without a token") as caught:
        await serve(lambda _server: None, host="0.0.0.0", port=0, settings=settings())
    assert "rpc.token" in (caught.value.hint or "")


async def test_a_port_in_use_is_a_settings_error() -> None:
    server = await start(echo, settings())
    try:
        with pytest.raises(SettingsError, match="cannot serve"):
            await start(echo, settings(), server.port)
    finally:
        await server.close()


async def test_with_tls_only_who_has_a_certificate_of_the_authority_is_answered(tmp_path: Path) -> None:
    write_certificates(tmp_path, "service")
    authority = str(tmp_path / "ca.pem")
    pair = {"tls_cert": str(tmp_path / "service.pem"), "tls_key": str(tmp_path / "service.key")}
    used = settings(tls_ca=authority, **pair)
    server = await start(echo, used)
    try:
        assert await ask(server.port, used, "a") == "echo a"
        for refused in (settings(), settings(tls_ca=authority)):
            with pytest.raises(PeerUnavailable):
                await ask(server.port, refused)
    finally:
        await server.close()


async def test_an_unreadable_certificate_is_a_settings_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(SettingsError, match="tls_key"):
        await start(echo, settings(tls_cert=missing, tls_key=missing))
    with pytest.raises(SettingsError, match="tls_ca"):
        connect("127.0.0.1:1", settings(tls_ca=missing))


async def test_half_of_a_tls_pair_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="tls_key"):
        await serve(lambda _server: None, host="127.0.0.1", port=0, settings=settings(tls_cert="cert.pem"))


async def test_a_message_beyond_the_limit_is_refused() -> None:
    used = settings(max_message=1024)
    server = await start(echo, used)
    try:
        with pytest.raises(InternalError, match="RESOURCE_EXHAUSTED"):
            await ask(server.port, used, "x" * 2000)
    finally:
        await server.close()


async def test_a_method_that_is_not_served_is_an_internal_error() -> None:
    used = settings()
    server = await serve(lambda _server: None, host="127.0.0.1", port=0, settings=used)
    try:
        with pytest.raises(InternalError, match="UNIMPLEMENTED"):
            await ask(server.port, used)
    finally:
        await server.close()


@pytest.mark.parametrize("call", [ask, stream])
async def test_the_caller_s_trace_is_continued(call: Callable[..., Awaitable[object]]) -> None:
    seen: list[int] = []

    async def note(_text: str) -> str:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        return ""

    used = settings()
    server = await start(note, used)
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=trace.TraceFlags(1))
    try:
        with trace.use_span(trace.NonRecordingSpan(context)):
            await call(server.port, used)
    finally:
        await server.close()
    assert seen == [0xABC]
