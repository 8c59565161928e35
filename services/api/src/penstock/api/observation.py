"""What is seen of every request: a span that continues its sender's trace, its count and its duration."""

from __future__ import annotations

import time
from http import HTTPStatus

from opentelemetry import propagate, trace
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RequestMetrics:
    """The figures of requests, by route."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._count = Counter(
            "penstock_api_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "penstock_api_request_seconds",
            "How long requests took to be answered; for streams, until their first byte.",
            ["method", "route"],
            registry=registry,
        )

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._count.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)


class Observe:
    """Sees every request."""

    def __init__(self, app: ASGIApp, *, tracer: trace.Tracer, metrics: RequestMetrics) -> None:
        self._app = app
        self._tracer = tracer
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.monotonic()
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
        context = propagate.extract(dict(Headers(scope=scope)))
        with self._tracer.start_as_current_span(
            scope["method"], context, kind=trace.SpanKind.SERVER, attributes=attributes
        ) as span:

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._note_answer(span, scope, message["status"], time.monotonic() - started_at)
                await send(message)

            await self._app(scope, receive, sending)

    def _note_answer(self, span: trace.Span, scope: Scope, status: int, seconds: float) -> None:
        # Paths that lead nowhere are one, or whoever tries many would fill the memory.
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.observe(scope["method"], route, status, seconds)
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
        span.set_attribute("http.response.status_code", status)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(trace.StatusCode.ERROR)
