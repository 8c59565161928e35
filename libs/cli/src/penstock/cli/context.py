"""What every command is given, and how it is run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer

from penstock.cli.terminal import INTERRUPTED
from penstock.common.config import Config, load_config

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CliContext:
    """The options that stand before the command."""

    config_file: Path | None

    @property
    def config(self) -> Config:
        return load_config(self.config_file)


def context_of(typer_context: typer.Context) -> CliContext:
    found = typer_context.find_object(CliContext)
    assert found is not None
    return found


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's work; Ctrl-C ends the command with the code that shells know for it."""
    # Here, since --help needs no loop.
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
