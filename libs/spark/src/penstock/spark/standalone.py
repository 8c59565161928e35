"""A standalone Spark cluster of one worker for tests: real processes on this machine, ended for certain."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from penstock.spark.bridge import SOURCES, spark_home
from penstock.spark.java import Java, find_java
from penstock.spark.settings import SparkSettings
from penstock.spark.testing import spark_settings

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
_SHORT_LIVED = "-XX:TieredStopAtLevel=1"  # a JVM of a minute never earns back what its second compiler takes

# Spark adds a module to every executor's options that a packaged Java lacks; the JVM would not start.
_JAVA_WITHOUT_VECTORS = """#!/bin/sh
for argument do
  shift
  case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


def cluster_settings(url: str) -> SparkSettings:
    """The settings of an engine on a small cluster."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _SHORT_LIVED,
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.host": _HOST,
        "spark.driver.bindAddress": _HOST,
    }
    return spark_settings(master=url, conf=conf)


@contextmanager
def standalone_cluster(folder: Path, cores: int = 2) -> Iterator[str]:
    """Runs a master and a worker in `folder`; gives the master's URL once the worker has joined."""
    java = find_java("")
    home = _java_home(folder / "java", java)
    port, web_port = _free_port(), _free_port()
    url = f"spark://{_HOST}:{port}"
    with (
        _daemon(folder, home, java, "master.Master", "--port", str(port), "--webui-port", str(web_port)),
        _daemon(folder, home, java, "worker.Worker", "--cores", str(cores), "--memory", "1g", "--work-dir",
                str(folder / "work"), "--webui-port", "0", url),
    ):  # fmt: skip
        _await_worker(f"http://{_HOST}:{web_port}/json/", folder)
        yield url


def _java_home(home: Path, java: Java) -> Path:
    (home / "bin").mkdir(parents=True)
    shim = home / "bin" / "java"
    shim.write_text(_JAVA_WITHOUT_VECTORS.format(java=java.executable))
    shim.chmod(0o755)
    return home


@contextmanager
def _daemon(folder: Path, java_home: Path, java: Java, name: str, *arguments: str) -> Iterator[None]:
    command = [
        str(java_home / "bin" / "java"), *java.options, _SHORT_LIVED, "-Xmx256m", "-Dspark.master.rest.enabled=false",
        f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}", "-cp", f"{spark_home()}/jars/*",
        f"org.apache.spark.deploy.{name}", "--host", _HOST, *arguments,
    ]  # fmt: skip
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_SCALA_VERSION": "2.13",  # or it looks for a source tree to tell
    }
    with open(folder / f"{name}.log", "wb") as output:
        # A session of its own: the worker's executors and their Python workers end with it.
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all that it started, first politely."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _await_worker(url: str, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(URLError, ConnectionError), urlopen(url, timeout=5) as answer:
            if json.loads(answer.read())["aliveworkers"] == 1:
                return
        time.sleep(0.1)
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
    raise TimeoutError(f"the cluster is not up after {_START_SECONDS:g} s: {logs}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
