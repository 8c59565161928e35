"""PySpark, connected to the engine's JVM: only user functions need it, so it is loaded when the first one comes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAIN = "org.apache.spark.sql.execution.penstock.Main"


def attach(port: int, secret: str) -> SparkSession:
    """PySpark's view of the session that the JVM already has."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    detach()
    gateway = _connect(port, secret)
    session = gateway.jvm.org.apache.spark.sql.execution.penstock.Main.session()
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jconf=java_context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java_context, conf=conf), session)


def _connect(port: int, secret: str) -> Any:
    from pyspark.java_gateway import launch_gateway

    handed = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(handed)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:  # the secret is for this call alone, not for our children
        for name in handed:
            os.environ.pop(name, None)


def detach() -> None:
    """Forgets the JVM: PySpark keeps one per process in its classes, and would use a dead one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if (gateway := SparkContext._gateway) is not None:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
