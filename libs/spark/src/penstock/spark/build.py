"""Builds ahead of time what the first engine would build: `python -m penstock.spark.build`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from penstock.common.config import load_config
from penstock.common.errors import PenstockError
from penstock.common.telemetry import LogSettings, configure_logging
from penstock.spark import bridge
from penstock.spark.engine import Engine
from penstock.spark.errors import EngineFault
from penstock.spark.java import find_java
from penstock.spark.launcher import LaunchPlan
from penstock.spark.settings import SparkSettings


def main() -> None:
    """Builds the bridge and the class cache, or with `--into` only the bridge, into a folder."""
    parser = argparse.ArgumentParser(prog="penstock.spark.build", description=main.__doc__)
    parser.add_argument("--into", type=Path, help="a folder to build the bridge into, for a wheel or an image")
    arguments = parser.parse_args()
    config = load_config()
    configure_logging(config.section("log", LogSettings), service="build")
    settings = config.section("spark", SparkSettings)
    try:
        if arguments.into:
            bridge.build(arguments.into / bridge.jar_name(), find_java(settings.java_home))
        else:
            _build_all(settings)
    except PenstockError as error:
        detail = f"\n{error.trace}" if isinstance(error, EngineFault) else ""
        sys.exit(f"penstock.spark.build: {error}{detail}")


def _build_all(settings: SparkSettings) -> None:
    plan = LaunchPlan.prepare(settings)
    if settings.class_cache:
        asyncio.run(Engine.make_class_cache(plan))


if __name__ == "__main__":
    main()
