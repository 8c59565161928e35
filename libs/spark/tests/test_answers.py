"""Answers that are remembered: bounded, and forgotten when SQL may mean something else."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.spark import Engine, SqlError, Udf
from penstock.spark.answers import Answers
from penstock.spark.wire import Frame, Kind


def frame(size: int) -> Frame:
    return Frame(Kind.INFO, 0, pa.py_buffer(bytes(size)))


def test_those_not_asked_for_make_room() -> None:
    answers = Answers(most_bytes=33)
    for request in (b"a", b"b", b"c"):
        answers.keep(request, frame(10))
    assert answers.get(b"a") is not None
    answers.keep(b"d", frame(10))
    assert [answers.get(request) is not None for request in (b"a", b"b", b"c", b"d")] == [True, False, True, True]


def test_an_answer_larger_than_all_is_not_kept() -> None:
    answers = Answers(most_bytes=10)
    answers.keep(b"a", frame(20))
    assert answers.get(b"a") is None
    answers.keep(b"b", frame(5))
    assert answers.get(b"b") is not None


async def test_a_function_that_is_registered_anew_changes_what_queries_give(engine: Engine) -> None:
    numbers = pa.schema([("x", pa.int64())])
    sql = "SELECT grown(x) AS y FROM input"
    with pytest.raises(SqlError):
        await engine.schema_of(sql, {"input": numbers})
    assert "grown" not in await engine.functions()
    await engine.register(Udf("grown", lambda x: x + 1, pa.int64()))
    assert (await engine.schema_of(sql, {"input": numbers})).field("y").type == pa.int64()
    assert "grown" in await engine.functions()
    await engine.register(Udf("grown", lambda x: f"{x}+1", pa.string()))
    assert (await engine.schema_of(sql, {"input": numbers})).field("y").type == pa.string()
