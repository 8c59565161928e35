"""What `penstock_json_line` can write: the types of `JsonFormat` in `JsonValue.scala`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyarrow import types

_SCALARS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    types.is_null, types.is_boolean, types.is_signed_integer, types.is_float32, types.is_float64, types.is_string,
    types.is_binary, types.is_date32, types.is_decimal128,
)  # fmt: skip
_TIMES: Final = (pa.time64("ns"), pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


def can_encode(kind: pa.DataType) -> bool:
    """Whether values of a type can be written as JSON in a query."""
    if types.is_struct(kind):
        return all(can_encode(field.type) for field in kind)
    if types.is_list(kind):
        return can_encode(kind.value_type)
    return kind in _TIMES or any(is_kind(kind) for is_kind in _SCALARS)
