"""Python functions that SQL can call by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.conversion import wire_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class UdfKind(StrEnum):
    """What a function takes and gives."""

    SCALAR = "scalar"  # a row's values → a value
    ARROW = "arrow"  # pyarrow arrays → an array as long
    PANDAS = "pandas"  # pandas series → a series as long
    ARROW_AGGREGATE = "arrow_aggregate"  # a group's pyarrow arrays → a value
    PANDAS_AGGREGATE = "pandas_aggregate"  # a group's pandas series → a value


@dataclass(frozen=True, slots=True)
class Udf:
    """A Python function under the name that SQL calls it by."""

    name: str
    function: Callable[..., Any]
    returns: pa.DataType
    kind: UdfKind = UdfKind.SCALAR


def register(session: SparkSession, udf: Udf) -> None:
    """Makes a function known to the session, in place of one of the same name."""
    session.udf.register(udf.name, _wrapped(udf))


def _wrapped(udf: Udf) -> Any:
    from pyspark.sql.functions import udf as scalar_udf
    from pyspark.sql.pandas.functions import ArrowUDFType, PandasUDFType, arrow_udf, pandas_udf
    from pyspark.sql.pandas.types import from_arrow_type

    wire = wire_schema(pa.schema([(udf.name, udf.returns)])).field(0).type
    returns: Any = from_arrow_type(wire, prefer_timestamp_ntz=True)
    match udf.kind:
        case UdfKind.SCALAR:
            return scalar_udf(udf.function, returns, useArrow=True)
        case UdfKind.ARROW:
            return arrow_udf(udf.function, returns, ArrowUDFType.SCALAR)
        case UdfKind.ARROW_AGGREGATE:
            return arrow_udf(udf.function, returns, ArrowUDFType.GROUPED_AGG)
        case UdfKind.PANDAS:
            return pandas_udf(udf.function, returns, PandasUDFType.SCALAR)
        case UdfKind.PANDAS_AGGREGATE:
            return pandas_udf(udf.function, returns, PandasUDFType.GROUPED_AGG)
