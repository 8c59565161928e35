from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from penstock.common.config import load_config
from penstock.common.errors import SettingsError
from penstock.common.events import LogEvent
from penstock.common.ids import Generation, JobId, PipelineId
from penstock.common.telemetry import (
    LogSettings,
    TelemetrySettings,
    bind_job,
    configure_logging,
    configure_tracing,
)

JSON = LogSettings(level="info", format="json")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_the_defaults_are_valid_settings(tmp_path: Path) -> None:
    config = load_config(directory=tmp_path, environment={})
    assert config.section("log", LogSettings) == LogSettings(level="info", format="auto")
    assert config.section("telemetry", TelemetrySettings).otlp_endpoint == ""


def test_an_event_is_one_json_line_with_utc_time_level_logger_and_service(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    structlog.get_logger("engine").info(LogEvent.ENGINE_STARTED, duration_ms=7)
    [line] = lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "engine_started",
        "level": "info",
        "logger": "engine",
        "service": "worker",
        "duration_ms": 7,
    }


def test_the_last_configuration_wins_for_loggers_in_use_too(stream: io.StringIO) -> None:
    log = structlog.get_logger("engine")
    first = io.StringIO()
    configure_logging(JSON, service="worker", stream=first)
    log.info("before")
    configure_logging(JSON, service="node", stream=stream)
    log.info("after")
    assert [(line["event"], line["service"]) for line in lines(first)] == [("before", "worker")]
    assert [(line["event"], line["service"]) for line in lines(stream)] == [("after", "node")]


def test_stdlib_records_take_the_same_form(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    logging.getLogger("library").warning("took %d ms", 5, extra={"attempt": 2, "api_token": "hunter2"})
    [line] = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("took 5 ms", "warning", "library")
    assert (line["attempt"], line["api_token"]) == (2, "***")


def test_events_below_the_level_are_dropped(stream: io.StringIO) -> None:
    configure_logging(LogSettings(level="warning", format="json"), service="worker", stream=stream)
    structlog.get_logger("engine").info("quiet")
    logging.getLogger("library").info("quiet")
    structlog.get_logger("engine").warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_secrets_are_masked_by_name_at_any_depth_and_in_urls(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    structlog.get_logger("engine").info(
        "connected", password="hunter2", options={"secret_access_key": "hunter2"}, url="nats://me:hunter2@host"
    )
    assert "hunter2" not in stream.getvalue()
    assert lines(stream)[0]["options"] == {"secret_access_key": "***"}


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_is_logged_without_local_variables(stream: io.StringIO, form: Any) -> None:
    configure_logging(LogSettings(level="info", format=form), service="worker", stream=stream)
    _log_failure("hunter2")
    assert "ZeroDivisionError" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def _log_failure(local: str) -> None:
    try:
        len(local) // 0
    except ZeroDivisionError:
        structlog.get_logger("engine").exception("failed")


async def test_a_bound_job_is_on_the_lines_of_its_tasks_only(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    log = structlog.get_logger("engine")
    jobs = [JobId.new(), JobId.new()]

    async def run(job: JobId) -> None:
        with bind_job(job=job, pipeline=PipelineId.new(), generation=Generation(3)):
            await asyncio.create_task(step())

    async def step() -> None:
        await asyncio.to_thread(logging.getLogger("library").info, "step")

    await asyncio.gather(*(run(job) for job in jobs))
    log.info("outside")
    *steps, outside = lines(stream)
    assert {line["job"] for line in steps} == set(jobs)
    assert all(line["pipeline"].startswith("pl_") and line["generation"] == 3 for line in steps)
    assert not outside.keys() & {"job", "pipeline", "generation"}


def test_auto_is_console_on_a_terminal_and_json_elsewhere() -> None:
    settings = LogSettings(level="info", format="auto")
    terminal, pipe = Terminal(), io.StringIO()
    configure_logging(settings, service="worker", stream=terminal)
    structlog.get_logger("engine").info("hello")
    configure_logging(settings, service="worker", stream=pipe)
    structlog.get_logger("engine").info("hello")
    assert not terminal.getvalue().startswith("{") and "hello" in terminal.getvalue()
    assert lines(pipe)[0]["event"] == "hello"


@dataclass(frozen=True)
class Collector:
    """An OTLP receiver on loopback, which decodes what it is sent."""

    url: str
    received: list[ResourceSpans] = field(default_factory=list)

    def spans(self) -> dict[str, str]:
        """The name and trace id of each span."""
        scopes = [scope for resource in self.received for scope in resource.scope_spans]
        return {span.name: span.trace_id.hex() for scope in scopes for span in scope.spans}

    def services(self) -> set[str]:
        attributes = [item for resource in self.received for item in resource.resource.attributes]
        return {item.value.string_value for item in attributes if item.key == "service.name"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                found.received.extend(ExportTraceServiceRequest.FromString(body).resource_spans)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
def test_spans_reach_the_collector_by_shutdown(collector: Collector, path: str) -> None:
    settings = TelemetrySettings(otlp_endpoint=collector.url + path, sample_ratio=1.0)
    tracing = configure_tracing(settings, service="worker")
    with tracing.tracer("test").start_as_current_span("checkpoint"):
        pass
    tracing.shutdown()
    tracing.shutdown()
    assert collector.spans().keys() == {"checkpoint"}
    assert collector.services() == {"worker"}


def test_log_lines_within_a_span_carry_its_ids(collector: Collector, stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    tracing = configure_tracing(TelemetrySettings(otlp_endpoint=collector.url, sample_ratio=1.0), service="worker")
    log = structlog.get_logger("engine")
    with tracing.tracer("test").start_as_current_span("checkpoint"):
        log.info("inside")
    log.info("outside")
    tracing.shutdown()
    inside, outside = (line for line in lines(stream) if line["logger"] == "engine")
    assert inside["trace_id"] == collector.spans()["checkpoint"]
    assert len(inside["span_id"]) == 16
    assert "trace_id" not in outside


def test_a_ratio_of_zero_sends_nothing(collector: Collector) -> None:
    tracing = configure_tracing(TelemetrySettings(otlp_endpoint=collector.url, sample_ratio=0.0), service="worker")
    with tracing.tracer("test").start_as_current_span("checkpoint"):
        pass
    tracing.shutdown()
    assert collector.received == []


def test_without_an_endpoint_spans_cost_nothing_and_have_no_ids(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    tracing = configure_tracing(TelemetrySettings(otlp_endpoint="", sample_ratio=1.0), service="worker")
    with tracing.tracer("test").start_as_current_span("checkpoint") as span:
        structlog.get_logger("engine").info("inside")
    tracing.shutdown()
    assert not span.is_recording()
    assert "trace_id" not in lines(stream)[0]


def test_a_collector_that_is_away_does_not_hold_up_shutdown(stream: io.StringIO) -> None:
    configure_logging(JSON, service="worker", stream=stream)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
    tracing = configure_tracing(TelemetrySettings(otlp_endpoint=url, sample_ratio=1.0), service="worker")
    with tracing.tracer("test").start_as_current_span("checkpoint"):
        pass
    started = time.monotonic()
    tracing.shutdown()
    assert time.monotonic() - started < 10


LIBRARY = """
import sys
from opentelemetry import trace
from penstock.common.telemetry import TelemetrySettings, configure_tracing
tracer = trace.get_tracer("library")
tracing = configure_tracing(TelemetrySettings(otlp_endpoint=sys.argv[1], sample_ratio=1.0), service="worker")
with tracer.start_as_current_span("library work"):
    pass
tracing.shutdown()
"""


def test_libraries_trace_through_the_first_service_of_the_process(collector: Collector) -> None:
    # Its own process, since OpenTelemetry keeps the first provider for good.
    subprocess.run([sys.executable, "-c", LIBRARY, collector.url], check=True, timeout=60)
    assert collector.spans().keys() == {"library work"}


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://"])
def test_an_endpoint_that_is_not_http_is_refused(tmp_path: Path, endpoint: str) -> None:
    config = load_config(directory=tmp_path, environment={"PENSTOCK__TELEMETRY__OTLP_ENDPOINT": endpoint})
    with pytest.raises(SettingsError, match=r"telemetry\.otlp_endpoint"):
        config.section("telemetry", TelemetrySettings)
