"""The Spark settings of an engine's session."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType
from typing import Final

from penstock.common.errors import SettingsError
from penstock.spark.settings import SparkSettings

# What the SQL language promises; the user's own Spark settings cannot change it.
_SEMANTICS: Final = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Names arrive folded as in Postgres: unquoted in lower case, quoted as they are.
        "spark.sql.caseSensitive": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.catalogImplementation": "in-memory",
    }
)

# What makes a batch of a hundred rows cheap: no second partition, no wait for a broadcast.
_SMALL_WORK: Final = MappingProxyType(
    {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        # The faster of Spark's maps for groups has one page, and is not for results unless told so.
        "spark.buffer.pageSize": "4m",
        "spark.sql.codegen.aggregate.map.twolevel.partialOnly": "false",
        # PySpark's own searches a worker for garbage after every batch, which takes 17 ms.
        "spark.python.daemon.module": "penstock.spark_daemon",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
)

_ALWAYS: Final = MappingProxyType(
    {
        "spark.app.name": "penstock",
        "spark.ui.enabled": "false",
        # Over TCP a Python worker's answer waits 40 ms for an acknowledgement.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.pythonUDF.arrow.enabled": "true",
        # Spark's own way from columns to functions takes vectors for a batch's own that the next batch is read into, so
        # that rows get the columns of others.
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    }
)


def spark_conf(settings: SparkSettings, jar: Path, work: Path) -> dict[str, str]:
    """Everything that the session is built with."""
    if clash := sorted(_SEMANTICS.keys() & settings.conf.keys()):
        raise SettingsError(f"spark.conf may not set {', '.join(clash)}", hint="the SQL language depends on it")
    where = {
        "spark.master": settings.master,
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.pyspark.python": sys.executable,
    }
    local = {**_SMALL_WORK, "spark.python.unix.domain.socket.dir": str(work)}
    fitting = {"spark.jars": str(jar)} if settings.runs_jobs else local
    return {**_ALWAYS, **fitting, **where, **settings.conf, **_SEMANTICS}
