"""Flink SQL in a process of its own, with the Python and the packages of `flink.py`: a job a line.

Reads JSON objects: `settings`, and `statements`, of which the last is an INSERT; answers each, once its job has ended,
with the job's net `seconds`, or with `refused` and why. All jobs run in one JVM, so that its code is compiled by the
first ones.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

# What a competent user sets for this work; everything else is Flink's default.
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "10000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.local-time-zone": "UTC",
    # A job that fails is not to begin anew for ever, which is the default with checkpoints.
    "restart-strategy.type": "none",
}


def run(table: Any, settings: dict[str, str], statements: list[str]) -> float:
    """Runs a job; returns the seconds from its start to its end, without those of the cluster around it."""
    environment = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
    for key, value in {**SETTINGS, **settings}.items():
        environment.get_config().set(key, value)
    *others, insert = statements
    for statement in others:
        environment.execute_sql(statement)
    client = environment.execute_sql(insert).get_job_client()
    milliseconds: int = client.get_job_execution_result().result().get_net_runtime()
    return milliseconds / 1000


def answer(table: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What is said of a job."""
    try:
        return {"seconds": run(table, **job)}
    except Exception as error:  # whatever Java throws arrives as one of several kinds
        causes = [line for line in str(error).splitlines() if line.startswith(("Caused by:", "java.", "org."))]
        return {"refused": (causes or str(error).splitlines() or [repr(error)])[-1].strip()}


def main() -> None:
    # What Java and its libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    table = importlib.import_module("pyflink.table")
    version = importlib.import_module("pyflink.version").__version__
    print(json.dumps(version), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(table, json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
