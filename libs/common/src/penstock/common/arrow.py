"""Arrow without pandas."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError("left out")
        return None


def leave_pandas_out() -> None:
    """Have pyarrow do without pandas in this process, to be called before its first array.

    It imports pandas, where that is installed, when it first makes an array, in case the values are pandas' own. That
    takes half a second of every start, and no service hands pandas' values to pyarrow. It looks only once; whoever
    wants pandas can import it all the same.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)
