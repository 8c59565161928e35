"""Whole columns to and from base64, by polars: imported here alone, since it takes long and few tables need it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def encode_column(array: Any) -> Any:
    """Texts of binary values."""
    import polars as pl

    return pl.Series(array).bin.encode("base64").to_arrow().cast(pa.string())


def decode_column(array: Any, kind: pa.DataType) -> Any:
    """Binary values of texts; raises ArrowInvalid when one is not base64."""
    import polars as pl

    try:
        return pl.Series(array).str.decode("base64", strict=True).to_arrow().cast(kind)
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(str(error)) from None
