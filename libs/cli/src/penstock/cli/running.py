"""`penstock run`: one query on a cluster of its own, to its end."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from penstock.cli import state_dir, terminal
from penstock.cli.cluster import ClusterPlan, running_cluster
from penstock.cli.engines import SharedEngine
from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import Meter, open_display
from penstock.cli.queries import RunRequest
from penstock.common.config import Config
from penstock.common.telemetry import Tracing
from penstock.spark import SparkSettings


async def run_query(config: Config, request: RunRequest, started_at: float) -> int:
    """Run a query to its end, and tell the exit code; `started_at` is when the user began to wait."""
    # First of all: nothing takes longer.
    engine = SharedEngine(config.section("spark", SparkSettings))
    interrupts, meter = Interrupts(), Meter(started_at)
    with ExitStack() as stack:
        stack.enter_context(interrupts.taken())
        folder = stack.enter_context(
            state_dir.temporary() if request.state_dir is None else state_dir.held(request.state_dir)
        )
        display = stack.enter_context(open_display())
        display.update("starting")
        plan = ClusterPlan(
            config,
            Tracing(None),
            folder,
            "embedded",
            note=display.update,
            free_ports=True,
            forgets=request.state_dir is None,
            imports=("penstock.cli.following",),
        )
        try:
            async with running_cluster(plan, engine) as cluster:
                from penstock.cli.following import Follower

                return await Follower(cluster, request, display, meter, interrupts).run()
        except asyncio.CancelledError:
            if not interrupts.interrupted:
                raise
            return terminal.INTERRUPTED
