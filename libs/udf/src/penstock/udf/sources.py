"""The user's text as a module."""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType
from typing import Any


def load(source: str, file: str) -> dict[str, Any]:
    """Runs a source, once in a process; returns its names. `file` is what tracebacks call it."""
    name = module_name(source)
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
