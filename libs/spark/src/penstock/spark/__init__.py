"""Spark SQL plans run on Arrow batches at streaming cost.

async with await Engine.start(settings) as engine:
    fragment = await engine.plan(FragmentSpec("SELECT a + 1 AS b FROM rows", {"rows": schema}))
    (result,) = await fragment.run(batch)
"""

from penstock.spark.analysis import Analysis
from penstock.spark.engine import Engine, EngineStatus
from penstock.spark.errors import (
    DataError,
    EngineFault,
    EngineLost,
    EngineMemory,
    FragmentClosed,
    FragmentRefused,
    Position,
    SparkUnsupported,
    SqlError,
    UdfError,
)
from penstock.spark.fragment import Fragment, FragmentSpec, Mode
from penstock.spark.functions import FunctionKind
from penstock.spark.line_decoder import DecodedLines, LineDecoder
from penstock.spark.settings import SparkSettings
from penstock.spark.udfs import Udf, UdfKind

__all__ = [
    "Analysis",
    "DataError",
    "DecodedLines",
    "Engine",
    "EngineFault",
    "EngineLost",
    "EngineMemory",
    "EngineStatus",
    "Fragment",
    "FragmentClosed",
    "FragmentRefused",
    "FragmentSpec",
    "FunctionKind",
    "LineDecoder",
    "Mode",
    "Position",
    "SparkSettings",
    "SparkUnsupported",
    "SqlError",
    "Udf",
    "UdfError",
    "UdfKind",
]
