"""The peer: a batch through PySpark as its documentation has it, createDataFrame → sql → toArrow, one job a batch."""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from penstock.spark.launcher import LaunchPlan
from penstock.spark.settings import SparkSettings

# What a careful user would set for this work; everything else is Spark's default.
TUNED = {"spark.sql.execution.arrow.localRelationThreshold": "0", "spark.sql.shuffle.partitions": "2"}

_OUT_OF_MEMORY: Final = 3  # what a JVM ends with that has `ExitOnOutOfMemoryError`


class PlainPySpark:
    """A PySpark session of default settings, in a JVM of its own."""

    def __init__(self, session: Any, process: subprocess.Popen[bytes]) -> None:
        self._session = session
        self._process = process

    @property
    def session(self) -> Any:
        """The session itself, for what is not a batch."""
        return self._session

    def why_it_ended(self) -> str | None:
        """Why the JVM does not answer any more; None if it still runs."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return None
        return "its JVM ran out of memory" if code == _OUT_OF_MEMORY else f"its JVM ended with {code}"

    def run(self, sql: str, inputs: Mapping[str, pa.RecordBatch], conf: Mapping[str, str]) -> pa.Table:
        """One batch."""
        for key, value in conf.items():
            self._session.conf.set(key, value)
        for name, batch in inputs.items():
            self._session.createDataFrame(pa.Table.from_batches([batch])).createOrReplaceTempView(name)
        result: pa.Table = self._session.sql(sql).toArrow()
        for key in conf:
            self._session.conf.unset(key)
        return result


@contextmanager
def plain_pyspark(settings: SparkSettings) -> Iterator[PlainPySpark]:
    """Starts the JVM by hand: Spark's launcher asks for a Java module that bundled runtimes lack."""
    plan = LaunchPlan.prepare(settings)
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / "connection"
        command: list[str | Path] = [plan.java.executable, *plan.options, "-cp", ":".join(map(str, plan.class_path))]
        process = subprocess.Popen(
            [*command, "org.apache.spark.api.python.PythonGatewayServer"],
            env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            while not info.exists() or not info.stat().st_size:
                process.wait(0.05) if process.poll() is not None else os.sched_yield()
            data = info.read_bytes()
            port, length = struct.unpack(">ii", data[:8])
            os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
            os.environ["PYSPARK_GATEWAY_SECRET"] = data[8 : 8 + length].decode()
            from pyspark.sql import SparkSession

            builder = SparkSession.builder.appName("plain").master("local[2]").config("spark.ui.enabled", "false")
            local = builder.config("spark.driver.host", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
            yield PlainPySpark(local.config("spark.local.dir", folder).getOrCreate(), process)
        finally:
            process.kill()
            process.wait()
