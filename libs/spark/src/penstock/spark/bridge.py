"""The bridge's jar: shipped in the wheel, else built once from its Scala sources and kept in the cache folder.

pyspark's own jars hold the Scala compiler, so building needs a Java runtime and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import structlog

from penstock.common.events import LogEvent
from penstock.spark.errors import EngineFault, SparkUnsupported
from penstock.spark.java import Java

SPARK_VERSION: Final = "4.3.0"
SOURCES: Final = Path(__file__).parent / "jvm"

log = structlog.get_logger(__name__)


def spark_home() -> Path:
    """Where pyspark is installed, without importing it; refuses a version that the bridge was not written for."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkUnsupported("pyspark is not installed", hint=f"install pyspark=={SPARK_VERSION}")
    if (version := metadata.version("pyspark")) != SPARK_VERSION:
        raise SparkUnsupported(
            f"pyspark {version} is installed, but the bridge works inside Spark {SPARK_VERSION}",
            hint=f"install pyspark=={SPARK_VERSION}",
        )
    return Path(spec.origin).parent


def jar_name() -> str:
    """The jar's name, which tells its content: the sources and the Spark that they are compiled against."""
    digest = hashlib.sha256(SPARK_VERSION.encode())
    for source in sorted(SOURCES.glob("*.scala")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return f"bridge-{digest.hexdigest()[:16]}.jar"


def find_bridge(cache: Path, java: Java) -> Path:
    """The jar of these sources: the one shipped beside them, the one in the cache, or a new one built there."""
    name = jar_name()
    for folder in (SOURCES, cache):
        if (jar := folder / name).exists():
            return jar
    return build(cache / name, java)


def build(jar: Path, java: Java) -> Path:
    """Compiles the sources; a reader of `jar` sees all of it or nothing."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix="bridge-") as folder:
        built = Path(folder) / jar.name
        command: list[str | Path] = [
            java.executable, "-cp", f"{spark_home()}/jars/*", "scala.tools.nsc.Main", "-usejavacp", "-deprecation",
            "-Xfatal-warnings", "-d", built, *sorted(SOURCES.glob("*.scala")),
        ]  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise EngineFault("the bridge does not compile", trace=result.stdout + result.stderr)
        os.replace(built, jar)
    log.info(LogEvent.BRIDGE_BUILT, jar=str(jar))
    return jar
