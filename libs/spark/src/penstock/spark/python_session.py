"""PySpark, connected to an engine's JVM: only user functions need it, so it is loaded when the first one comes.

PySpark keeps its connection in its classes, one in a process. They hold an engine's only while it is in use, under a
lock; so several engines can have functions, and a session of the user's own stays what it was.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYSPARK: Final = threading.RLock()


class PythonSession:
    """PySpark's view of the session that a JVM already has."""

    def __init__(self, session: SparkSession, state: list[Any]) -> None:
        self._session = session
        self._state = state

    @classmethod
    def attach(cls, port: int, secret: str) -> PythonSession:
        """Connects to the gateway that the JVM offers."""
        with _holding([None] * len(_places())), _same_path():
            session = _session(_connect(port, secret))
            return cls(session, _read())

    @contextmanager
    def current(self) -> Iterator[SparkSession]:
        """Makes this PySpark's session for as long as the block runs; others wait."""
        from py4j.protocol import Py4JNetworkError

        with _holding(self._state):
            try:
                yield self._session
            except Py4JNetworkError as error:
                raise ConnectionError(str(error)) from error

    def close(self) -> None:
        """Ends the connection and its threads; the JVM may be gone already."""
        with _holding(self._state):
            context = self._session.sparkContext
            context._accumulatorServer.shutdown()
            assert context._gateway is not None
            context._gateway.shutdown()


def _session(gateway: Any) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    session = gateway.jvm.org.apache.spark.sql.execution.penstock.Main.session()
    java_context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(session.sparkContext())
    conf = SparkConf(_jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    # PySpark itself takes it from the environment, else whatever python3 is on PATH.
    context.pythonExec = conf.get("spark.pyspark.python", sys.executable)
    return SparkSession(context, session)


def _connect(port: int, secret: str) -> Any:
    from pyspark.java_gateway import launch_gateway

    handed = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(handed)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:  # the secret is for this call alone, not for our children
        for name in handed:
            os.environ.pop(name, None)


def _places() -> tuple[tuple[type, str], ...]:
    """Where PySpark keeps its connection."""
    from pyspark import SparkContext, SparkFiles
    from pyspark.sql import SparkSession

    return (
        (SparkContext, "_gateway"),
        (SparkContext, "_jvm"),
        (SparkContext, "_active_spark_context"),
        (SparkSession, "_instantiatedSession"),
        (SparkSession, "_activeSession"),
        (SparkFiles, "_sc"),
    )


def _read() -> list[Any]:
    return [getattr(holder, name) for holder, name in _places()]


def _write(state: list[Any]) -> None:
    for (holder, name), value in zip(_places(), state, strict=True):
        setattr(holder, name, value)


@contextmanager
def _holding(state: list[Any]) -> Iterator[None]:
    with _PYSPARK:
        before = _read()
        _write(state)
        try:
            yield
        finally:
            _write(before)


@contextmanager
def _same_path() -> Iterator[None]:
    """Keeps the module path: PySpark puts the session's folder of files on it, and leaves it there."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before
