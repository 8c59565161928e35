"""A GROUP BY in the stages in which Spark itself computes it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa


class StageName(StrEnum):
    """A part of an aggregation."""

    PARTIAL = "partial"  # rows to partial results
    MERGE = "merge"  # partial results to fewer partial results
    FINAL = "final"  # partial results to rows


@dataclass(frozen=True, slots=True)
class AggregationStage:
    """One stage of `SELECT keys…, aggregates… FROM input GROUP BY keys…`, whose keys are columns of its input."""

    sql: str
    input: pa.Schema
    """The rows that the aggregation is of, in every stage."""
    stage: StageName


@dataclass(frozen=True, slots=True)
class AggregationAnalysis:
    """What an aggregation gives, and what it holds until then: its keys under their names, then `_b0`, `_b1`, …"""

    partial: pa.Schema
    output: pa.Schema

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> AggregationAnalysis:
        """The JVM's answer about an aggregation."""
        return cls(_schema(answer["partial"]), _schema(answer["output"]))


def _schema(message: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(message)))
