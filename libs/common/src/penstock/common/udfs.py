"""What a Python function is to SQL: its shape, its style, and the types that its hints say."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa


class Shape(StrEnum):
    """What a function makes of what."""

    SCALAR = "scalar"  # a row's values → a value
    TABLE = "table"  # a row's values → an array, to be unnested
    AGGREGATE = "aggregate"  # a group's values → a value
    ASYNC = "async"  # a row's values → a value, later


class Style(StrEnum):
    """In which form values come to a function."""

    PLAIN = "plain"  # Python's own values; of a group, lists of them
    ARROW = "arrow"  # arrays of pyarrow
    PANDAS = "pandas"  # series of pandas


@dataclass(frozen=True, slots=True)
class Signature:
    """How SQL calls a function."""

    name: str
    shape: Shape
    style: Style
    parameters: pa.Schema
    """Not nullable: such a function is not called for a row, or with a row of a group, in which the value is null."""
    returns: pa.DataType

    def to_json(self) -> dict[str, str]:
        """For another process of the same version."""
        returned = pa.schema([("value", self.returns)])
        return {
            "name": self.name,
            "shape": self.shape,
            "style": self.style,
            "parameters": _text_of(self.parameters),
            "returns": _text_of(returned),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Signature:
        returned = _schema_of(content["returns"]).field(0).type
        parameters = _schema_of(content["parameters"])
        return cls(content["name"], Shape(content["shape"]), Style(content["style"]), parameters, returned)


def caught(returns: pa.DataType) -> pa.DataType:
    """What a function gives whose failures are told beside its values."""
    return pa.struct([("value", returns), ("error", pa.string())])


def artifact_folder(hash: str) -> str:
    """Where a function's artifact is, in the checkpoint storage."""
    return f"udfs/{hash}"


def artifact_hash(source: str, lock: str) -> str:
    """Names an artifact; one with dependencies is of one version of Python."""
    python = f"{sys.version_info.major}.{sys.version_info.minor} {sys.platform}" if lock else ""
    return hashlib.sha256("\0".join([source, lock, python]).encode()).hexdigest()


SOURCE: Final = "source.py"
"""In an artifact: the user's text."""
LOCK: Final = "requirements.lock"
"""In an artifact of a function that has dependencies: their versions, with hashes."""
DEPENDENCIES: Final = "dependencies.zip"
"""Beside it: the files that they are installed as."""


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
