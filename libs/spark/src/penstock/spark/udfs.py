"""Python functions that SQL can call by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from penstock.spark.conversion import wire_schema
from penstock.spark.errors import UdfError
from penstock.spark.python_session import PythonSession
from penstock.spark.user_modules import pickled_by_value

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


def stand_in(*arrays: Any) -> NoReturn:
    """Is registered for a function whose type alone matters."""
    raise RuntimeError("this function was declared, and never registered")


def register(session: PythonSession, udf: Udf) -> None:
    """Makes a function known to the session, in place of one of the same name."""
    with session.current() as spark, pickled_by_value():
        if _is_built_in(spark, udf.name):
            hint = "SQL would call Spark's own; choose another name"
            raise UdfError(f"function {udf.name} has the name of a built-in function", hint=hint)
        try:
            spark.udf.register(udf.name, _declared(udf))
        except PicklingError as error:
            hint = "make what it uses inside the function, not outside"
            raise UdfError(f"function {udf.name} cannot be sent to Python workers: {error}", hint=hint) from error


def _is_built_in(spark: SparkSession, name: str) -> bool:
    assert spark._jvm is not None
    analysis = spark._jvm.org.apache.spark.sql.catalyst.analysis
    identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
    registries = (analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin())
    return any(registry.functionExists(identifier) for registry in registries)


def _declared(udf: Udf) -> Any:
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    # Not by pyspark's decorators: they guess the kind from type hints, and warn when told.
    kinds = {
        UdfKind.SCALAR: PythonEvalType.SQL_ARROW_BATCHED_UDF,
        UdfKind.ARROW: PythonEvalType.SQL_SCALAR_ARROW_UDF,
        UdfKind.PANDAS: PythonEvalType.SQL_SCALAR_PANDAS_UDF,
        UdfKind.ARROW_AGGREGATE: PythonEvalType.SQL_GROUPED_AGG_ARROW_UDF,
        UdfKind.PANDAS_AGGREGATE: PythonEvalType.SQL_GROUPED_AGG_PANDAS_UDF,
    }
    wire = wire_schema(pa.schema([(udf.name, udf.returns)])).field(0).type
    returns = from_arrow_type(wire, prefer_timestamp_ntz=True)
    return UserDefinedFunction(udf.function, returns, udf.name, kinds[udf.kind])
