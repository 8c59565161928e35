"""Logs and traces: one line a log event, one renderer for all, trace ids on each, no secrets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TextIO
from urllib.parse import urlsplit

import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_NAMESPACE, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from pydantic import AfterValidator, Field
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor

from penstock.common.config import Settings
from penstock.common.ids import Generation, JobId, PipelineId
from penstock.common.redaction import redact

_HANDLER_NAME = "penstock"
_TRACES_PATH = "/v1/traces"
# How long one export may take, its retries included; what a collector that is away can cost at shutdown.
_EXPORT_TIMEOUT_SECONDS = 5


def _http_url_or_empty(text: str) -> str:
    if text and (urlsplit(text).scheme not in {"http", "https"} or not urlsplit(text).hostname):
        raise ValueError("it must be an http:// or https:// URL, or empty")
    return text


class LogSettings(Settings):
    level: Literal["debug", "info", "warning", "error"]
    format: Literal["auto", "console", "json"]


class TelemetrySettings(Settings):
    otlp_endpoint: Annotated[str, AfterValidator(_http_url_or_empty)]
    sample_ratio: Annotated[float, Field(ge=0, le=1)]


def configure_logging(settings: LogSettings, *, service: str, stream: TextIO | None = None) -> None:
    """Send the process's log events, those of `logging` included, to stderr or `stream`; the last call wins."""
    stream = sys.stderr if stream is None else stream
    console = settings.format == "console" or (settings.format == "auto" and stream.isatty())
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _add_trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(stream)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=_console_rendering(service, colors=stream.isatty()) if console else _json_rendering(service),
            foreign_pre_chain=[*before, structlog.stdlib.ExtraAdder()],
        )
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    _install(handler, settings.level)


def _install(handler: logging.Handler, level: str) -> None:
    root = logging.getLogger()
    # Others' handlers stay, as a test runner's must.
    for old in [old for old in root.handlers if old.get_name() == _HANDLER_NAME]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


def _json_rendering(service: str) -> list[Processor]:
    return [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _service_adder(service),
        # Locals hold rows and credentials.
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
        _mask_secrets,
        structlog.processors.JSONRenderer(),
    ]


def _console_rendering(service: str, *, colors: bool) -> list[Processor]:
    return [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _service_adder(service),
        structlog.processors.format_exc_info,
        _mask_secrets,
        structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
    ]


def _service_adder(service: str) -> Processor:
    def add_service(_logger: Any, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    return add_service


def _add_trace_ids(_logger: Any, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    masked = redact(event)
    assert isinstance(masked, MutableMapping)
    return masked


@contextmanager
def bind_job(*, job: JobId, pipeline: PipelineId, generation: Generation) -> Iterator[None]:
    """Put job, pipeline and generation on every log line of this task and those that it starts."""
    with structlog.contextvars.bound_contextvars(job=job, pipeline=pipeline, generation=generation):
        yield


class Tracing:
    """A service's traces, until `shutdown` sends the last of them."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._provider = provider

    def tracer(self, name: str) -> trace.Tracer:
        """A tracer of this service, whichever other services run in the process."""
        provider = self._provider or trace.NoOpTracerProvider()
        return provider.get_tracer(name)

    def shutdown(self) -> None:
        """Send what is pending and stop; a second call does nothing."""
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.shutdown()


def configure_tracing(settings: TelemetrySettings, *, service: str) -> Tracing:
    """Start sending traces when an endpoint is set.

    The first service of a process that does so also serves `opentelemetry.trace.get_tracer`, which libraries use.
    """
    if not settings.otlp_endpoint:
        return Tracing(None)
    # Here, since it makes start-up a fifth of a second longer and most services run without.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)),
        resource=Resource.create({SERVICE_NAME: service, SERVICE_NAMESPACE: "penstock"}),
    )
    exporter = OTLPSpanExporter(_traces_url(settings.otlp_endpoint), timeout=_EXPORT_TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(provider)
    return Tracing(provider)


def _traces_url(endpoint: str) -> str:
    base = endpoint.rstrip("/")
    return base if base.endswith(_TRACES_PATH) else base + _TRACES_PATH
