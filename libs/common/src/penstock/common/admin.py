"""The admin server that each service has: is it well, what does it measure, how is it set up."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.common.config import Config, Settings
from penstock.common.errors import PenstockError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.http_server import HttpServer as AdminServer
from penstock.common.http_server import serve_http
from penstock.common.rpc import RpcSettings, is_loopback

__all__ = ["AdminServer", "AdminSettings", "Check", "Facts", "serve_admin"]

Check = Callable[[], Awaitable[object]]
"""Raises when something that the service needs is not well."""

Facts = Callable[[], Mapping[str, object]]
"""What else /status tells."""

_CHECK_SECONDS = 5.0

log = structlog.get_logger(__name__)


class AdminSettings(Settings):
    host: str


async def serve_admin(
    service: str,
    *,
    host: str,
    port: int,
    config: Config,
    registry: CollectorRegistry,
    checks: Mapping[str, Check],
    facts: Facts = dict,
) -> AdminServer:
    """Serve /status, /metrics and /config; beyond loopback the last two ask for the cluster's token."""
    token = config.section("rpc", RpcSettings).token
    if not token and not is_loopback(host):
        hint = "set rpc.token to a secret that all services of the cluster share, or serve on 127.0.0.1"
        raise SettingsError(f"refusing to serve the admin pages on {host} without a token", hint=hint)
    pages = _Pages(service, config, registry, checks, facts, "" if is_loopback(host) else token)
    routes = [Route("/status", pages.status), Route("/metrics", pages.metrics), Route("/config", pages.config)]
    server = await serve_http(Starlette(routes=routes), host=host, port=port)
    log.info(LogEvent.ADMIN_SERVING, url=server.url)
    return server


class _Pages:
    def __init__(
        self,
        service: str,
        config: Config,
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        facts: Facts,
        token: str,
    ) -> None:
        self._service = service
        self._config = config
        self._registry = registry
        self._checks = checks
        self._facts = facts
        self._token = token

    async def status(self, _request: Request) -> Response:
        results = await asyncio.gather(*(_outcome(name, check) for name, check in self._checks.items()))
        well = all(result == "ok" for result in results)
        body = {
            "status": "ok" if well else "failing",
            "service": self._service,
            "checks": dict(zip(self._checks, results, strict=True)),
            **self._facts(),
        }
        return JSONResponse(body, 200 if well else 503)

    async def metrics(self, request: Request) -> Response:
        if not self._allowed(request):
            return _refusal()
        # Reading the collectors can take a while when there are many jobs.
        text = await asyncio.to_thread(generate_latest, self._registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def config(self, request: Request) -> Response:
        return JSONResponse(self._config.redacted()) if self._allowed(request) else _refusal()

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return not self._token or hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode())


async def _outcome(name: str, check: Check) -> str:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except PenstockError as error:
        return error.message
    except TimeoutError:
        return f"no answer within {_CHECK_SECONDS:g} s"
    except Exception as error:
        log.exception(LogEvent.CHECK_FAILED, check=name)
        return f"unexpected {type(error).__name__}"
    return "ok"


def _refusal() -> Response:
    message = {"error": {"code": "unauthenticated", "message": "the cluster's token is missing or wrong"}}
    return JSONResponse(message, 401, {"WWW-Authenticate": "Bearer"})
