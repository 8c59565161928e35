"""`penstock up`: a whole Penstock on this machine, until it is stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from pydantic import ConfigDict

from penstock.cli import state_dir, terminal
from penstock.cli.cluster import Cluster, ClusterPlan, running_cluster
from penstock.cli.engines import SharedEngine
from penstock.cli.interrupts import Interrupts
from penstock.cli.settings import EmbeddedSettings
from penstock.common.config import Config, Settings
from penstock.common.errors import SettingsError
from penstock.common.telemetry import LogSettings, TelemetrySettings, configure_logging, configure_tracing
from penstock.spark import SparkSettings

_LOG_FILE: Final = "penstock.log"
_EXAMPLE: Final = """\
Penstock is up at {url}

Create a pipeline, and look at its rows with the job_id of the answer:
  curl -s {header}{url}/api/v1/pipelines -H 'content-type: application/json' -d '{body}'
  curl -N {header}{url}/api/v1/jobs/JOB_ID/output

Ctrl-C stops it. What happens is logged in {log}"""
_BODY: Final = (  # within the single quotes of a shell
    """{"name": "first", "query": "CREATE TABLE impulse WITH (connector = '\\''impulse'\\'', event_rate = 10); """
    """SELECT counter FROM impulse"}"""
)


class _Ports(Settings):
    """The ports of a service's section."""

    model_config = ConfigDict(extra="ignore")

    port: int = 0
    rpc_port: int = 0
    admin_port: int = 0

    @property
    def given(self) -> Mapping[str, int]:
        return {name: port for name, port in self.model_dump().items() if port}


async def stand_up(config: Config, config_file: Path | None, folder: Path | None, *, logs_here: bool) -> int:
    """Start everything, and return the exit code once it was stopped."""
    interrupts = Interrupts()
    with ExitStack() as stack:
        stack.enter_context(interrupts.taken())
        path = folder or config.section("embedded", EmbeddedSettings).state_path
        stack.enter_context(state_dir.held(path))
        _check_ports(config)
        log = "stderr" if logs_here else str(path / _LOG_FILE)
        say = _sayer(sys.stderr if logs_here else stack.enter_context(_logging_to(path / _LOG_FILE)))
        configure_logging(config.section("log", LogSettings), service="penstock", stream=sys.stderr)
        tracing = configure_tracing(config.section("telemetry", TelemetrySettings), service="penstock")
        stack.callback(tracing.shutdown)
        say(f"starting Penstock in {path}")
        plan = ClusterPlan(config, tracing, path, "node", say, config_file)
        stopping = asyncio.Event()
        try:
            async with running_cluster(plan, SharedEngine(config.section("spark", SparkSettings))) as cluster:
                header = '-H "authorization: Bearer $TOKEN" ' if cluster.token else ""
                say(_EXAMPLE.format(url=cluster.url, header=header, body=_BODY, log=log))
                with interrupts.gently(stopping.set):
                    await _until_stopped(cluster, stopping)
                say("stopping; Ctrl-C again to end at once")
        except asyncio.CancelledError:
            if not interrupts.interrupted:
                raise
        say("stopped")
        return terminal.OK


def _check_ports(config: Config) -> None:
    """Say before anything is started that it would not come up."""
    for section in ("api", "controller", "compiler", "node"):
        for name, port in config.section(section, _Ports).given.items():
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    hint = f"is another Penstock running? stop it, or set {section}.{name} to another port, or to 0"
                    raise SettingsError(
                        f"cannot use port {port} of the {section}: {error.strerror}", hint=hint
                    ) from error


async def _until_stopped(cluster: Cluster, stopping: asyncio.Event) -> None:
    """Raises when a service ends that should not."""
    failing = asyncio.create_task(cluster.hosted.ended(), name="services")
    asked = asyncio.create_task(stopping.wait(), name="stopping")
    try:
        await asyncio.wait((failing, asked), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise failing.result()
    finally:
        for task in (failing, asked):
            task.cancel()


@contextmanager
def _logging_to(path: Path) -> Iterator[IO[str]]:
    """Have this process's stderr, and so its children's, in a file; the terminal's is returned."""
    sys.stderr.flush()
    kept = os.dup(sys.stderr.fileno())
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, sys.stderr.fileno())
    os.close(log)
    try:
        with os.fdopen(os.dup(kept), "w", buffering=1) as terminal_stream:
            yield terminal_stream
    finally:
        sys.stderr.flush()
        os.dup2(kept, sys.stderr.fileno())
        os.close(kept)


def _sayer(stream: IO[str]) -> Callable[[str], None]:
    def say(text: str) -> None:
        print(text, file=stream, flush=True)

    return say
