"""User functions are sent to Python workers by name or by value: by value where a worker could not find the name.

A worker is a fresh interpreter of the same installation. It has neither the folder of the script that was started nor
what was loaded from a path, as a test module is.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

_FIND: Final = """
import importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name):
        print(name)
"""
_FIND_SECONDS: Final = 60.0
_installed = tuple(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
_known: dict[str, bool] = {}  # whether a worker finds a package


@contextmanager
def pickled_by_value() -> Iterator[None]:
    """Has PySpark pickle by value what is in modules that a worker cannot import."""
    from pyspark.cloudpickle import cloudpickle

    chosen = {module.__name__ for module in _unimportable()} - cloudpickle._PICKLE_BY_VALUE_MODULES
    cloudpickle._PICKLE_BY_VALUE_MODULES.update(chosen)
    try:
        yield
    finally:
        cloudpickle._PICKLE_BY_VALUE_MODULES.difference_update(chosen)


def _unimportable() -> list[ModuleType]:
    candidates = [module for module in list(sys.modules.values()) if _is_users(module)]
    _find({_package(module) for module in candidates} - _known.keys())
    return [module for module in candidates if not _known[_package(module)]]


def _is_users(module: ModuleType) -> bool:
    """Whether it is neither Python's nor installed; what is in `__main__` goes by value anyway."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or module.__name__ == "__main__":
        return False
    return not any(map(Path(file).is_relative_to, _installed))


def _package(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


def _find(packages: Iterable[str]) -> None:
    """Asks a fresh interpreter, which alone knows what path files and import hooks add."""
    names = sorted(packages)
    if not names:
        return
    command = [sys.executable, "-P", "-c", _FIND, *names]
    found = subprocess.run(command, capture_output=True, text=True, timeout=_FIND_SECONDS, check=True).stdout.split()
    _known.update({name: name in found for name in names})
