"""Structured Streaming in a process of its own, plain PySpark beside its JVM: a query a line, each run to its end.

Reads JSON objects: the folders of `tables` with their schemas, `sql`, `mode`, `columns`, and `into`, a folder or null.
Answers each with its `seconds`, from planning to the last micro-batch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from peers.events import PARALLELISM
from plain_pyspark import PlainPySpark, plain_pyspark

from penstock.spark.testing import spark_settings

SETTINGS = {"spark.sql.shuffle.partitions": str(PARALLELISM)}
WATERMARK = "4 seconds"


def start(session: Any, job: dict[str, Any], checkpoint: str) -> Any:
    """The query, started."""
    for name, table in job["tables"].items():
        lines = session.readStream.schema(table["schema"]).option("maxFilesPerTrigger", 1).json(table["path"])
        lines.withWatermark("dateTime", WATERMARK).createOrReplaceTempView(name)
    results = session.sql(job["sql"]).toDF(*job["columns"])
    writer = results.writeStream.outputMode(job["mode"]).option("checkpointLocation", checkpoint)
    if job["into"] is None:
        return writer.format("noop").trigger(availableNow=True).start()
    return writer.foreachBatch(into_folder(job["into"])).trigger(availableNow=True).start()


def into_folder(folder: str) -> Any:
    """Writes each micro-batch, with its number in a column."""

    def write(rows: Any, step: int) -> None:
        rows.selectExpr("*", f"{step} AS _step").write.mode("append").json(folder)

    return write


@contextmanager
def forgetting_state(session: Any) -> Iterator[None]:
    """Drops the state of a query that has ended: Spark would keep it in memory beside the next one's for a minute."""
    yield
    session._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def answer(peer: PlainPySpark, job: dict[str, Any]) -> dict[str, object]:
    """What is said of a job."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.TemporaryDirectory() as checkpoint, forgetting_state(peer.session):
        started = time.perf_counter()
        try:
            start(peer.session, job, checkpoint).awaitTermination()
        except PySparkException as error:
            return {"refused": str(error).split("SQLSTATE")[0].splitlines()[0].strip(" ;")}
        except (Py4JError, OSError):
            if reason := peer.why_it_ended():
                sys.exit(reason)
            raise
        return {"seconds": time.perf_counter() - started}


def serve(peer: PlainPySpark, said: TextIO) -> None:
    for key, value in SETTINGS.items():
        peer.session.conf.set(key, value)
    print(json.dumps(peer.session.version), file=said)
    for line in sys.stdin:
        print(json.dumps(answer(peer, json.loads(line))), file=said)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with plain_pyspark(spark_settings(heap=int(sys.argv[1]))) as opened:
        serve(opened, answers)
