"""Spark SQL plans run on Arrow batches at streaming cost.

async with await Engine.start(settings) as engine:
    fragment = await engine.plan(FragmentSpec("SELECT a + 1 AS b FROM rows", {"rows": schema}))
    (result,) = await fragment.run(batch)
"""

from penstock.spark.aggregation import AggregationAnalysis, AggregationStage, StageName
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
from penstock.spark.fragment import Fragment, FragmentSpec, Mode, Observed
from penstock.spark.functions import FunctionKind
from penstock.spark.line_decoder import DecodedLines, LineDecoder
from penstock.spark.line_encoder import can_encode
from penstock.spark.settings import SparkSettings
from penstock.spark.udfs import Udf, UdfKind

__all__ = [
    "AggregationAnalysis",
    "AggregationStage",
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
    "Observed",
    "Position",
    "SparkSettings",
    "SparkUnsupported",
    "SqlError",
    "StageName",
    "Udf",
    "UdfError",
    "UdfKind",
    "can_encode",
]
