"""How a service's process runs: settings, logs and traces first, then its main, until that ends or a signal comes.

if __name__ == "__main__":
    service_main("controller", serve)
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from penstock.common.config import Config, load_config
from penstock.common.errors import PenstockError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.telemetry import LogSettings, TelemetrySettings, Tracing, configure_logging, configure_tracing

OK, FAILED, MISCONFIGURED = 0, 1, 2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What every service is given."""

    name: str
    config: Config
    tracing: Tracing
    registry: CollectorRegistry


Main = Callable[[Context], Awaitable[None]]


def service_main(name: str, main: Main) -> NoReturn:
    """The whole of a service's `__main__`: reads `--config FILE` and exits with the service's code."""
    parser = argparse.ArgumentParser(prog=f"penstock {name}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings that go before penstock.toml's")
    sys.exit(run_service(name, main, config_file=parser.parse_args().config))


def run_service(name: str, main: Main, *, config_file: Path | None = None) -> int:
    """Run a service until it ends or SIGINT or SIGTERM cancels it, and tell the exit code.

    Code 0 is an end in order, a signal's included; 2 is a wrong setting; 1 is any other failure.
    """
    try:
        config = load_config(config_file)
        configure_logging(config.section("log", LogSettings), service=name)
        tracing = configure_tracing(config.section("telemetry", TelemetrySettings), service=name)
    except SettingsError as error:
        return _report(name, error)
    log.info(LogEvent.SERVICE_STARTING)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(main, Context(name, config, tracing, CollectorRegistry())))
    except Exception as error:
        expected = _expected(error)
        if expected is not None:
            return _report(name, expected)
        log.exception(LogEvent.SERVICE_FAILED)
        return FAILED
    finally:
        tracing.shutdown()
    log.info(LogEvent.SERVICE_STOPPED)
    return OK


async def _run(main: Main, context: Context) -> None:
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(main(context))
    stopping = False

    def stop(received: signal.Signals) -> None:
        nonlocal stopping
        stopping = True
        log.info(LogEvent.SERVICE_STOPPING, signal=received.name)
        running.cancel()
        # Whoever asks a second time does not want to wait.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await running
    except asyncio.CancelledError:
        if not stopping:
            raise


def _expected(error: BaseException) -> PenstockError | None:
    """The error that says why a service ended, unless a fault of the code is among the causes."""
    match error:
        case PenstockError():
            return error
        case BaseExceptionGroup():
            found = [_expected(part) for part in error.exceptions]
            return found[0] if all(found) else None
        case _:
            return None


def _report(name: str, error: PenstockError) -> int:
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    print(f"penstock {name}: {error.message}{hint}", file=sys.stderr, flush=True)
    return MISCONFIGURED if isinstance(error, SettingsError) else FAILED
