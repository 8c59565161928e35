"""The user's text as a module."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

_own_modules: Final[dict[tuple[str, ...], dict[str, ModuleType]]] = {}
"""What was imported from the folders of a function's dependencies."""


def load(source: str, file: str, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Runs a source, once in a process for each path; returns its names. `file` is what tracebacks call it."""
    name = module_name("\0".join([source, *path]))
    module = sys.modules.get(name)
    if module is None:
        module = ModuleType(name)
        module.__file__ = file
        note_lines(source, file)
        sys.modules[name] = module  # first: dataclasses look for the module that they are in
        try:
            exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return module.__dict__


def module_name(source: str) -> str:
    """The same for the same text only, so that versions live side by side."""
    return f"_penstock_udf_{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def note_lines(source: str, file: str) -> None:
    """Lets tracebacks show the user's lines, which are in no file."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)


@contextmanager
def dependencies(path: tuple[str, ...]) -> Iterator[None]:
    """Has imports find what is in some folders, and nothing of the same name that others have imported: functions of
    one process may have different versions of a dependency."""
    if not path:
        yield
        return
    tops = {entry.partition(".")[0] for folder in path for entry in os.listdir(folder)}
    hidden = _taken(tops)
    sys.modules.update(_own_modules.get(path, {}))
    before = list(sys.path)
    sys.path[:0] = path
    try:
        yield
    finally:
        sys.path[:] = before
        _own_modules[path] = _taken(tops)
        sys.modules.update(hidden)


def _taken(tops: set[str]) -> dict[str, ModuleType]:
    """Takes the modules of some packages out of those that are imported."""
    names = [name for name in sys.modules if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}
