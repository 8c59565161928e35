from __future__ import annotations

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import InvalidId
from penstock.common.ids import (
    CheckpointId,
    ConnectionProfileId,
    ConnectionTableId,
    Id,
    IdSource,
    JobId,
    NodeId,
    PipelineId,
    SavepointId,
    UdfId,
    WorkerId,
)

PREFIXES: dict[type[Id], str] = {
    PipelineId: "pl_",
    JobId: "job_",
    CheckpointId: "cp_",
    UdfId: "udf_",
    ConnectionTableId: "ct_",
    ConnectionProfileId: "cn_",
    SavepointId: "sv_",
    WorkerId: "wk_",
    NodeId: "nd_",
}


@pytest.mark.parametrize(("kind", "prefix"), PREFIXES.items())
def test_each_kind_has_its_prefix_and_parses_its_own_ids(kind: type[Id], prefix: str) -> None:
    made = kind.new()
    assert made.startswith(prefix)
    assert len(made) == len(prefix) + 26
    assert kind.parse(str(made)) == made
    assert type(kind.parse(str(made))) is kind


def test_no_kind_parses_the_id_of_another() -> None:
    for kind in PREFIXES:
        for other in PREFIXES.keys() - {kind}:
            with pytest.raises(InvalidId):
                kind.parse(other.new())


def test_ids_of_one_millisecond_are_strictly_increasing() -> None:
    source = IdSource(clock_ms=lambda: 1_700_000_000_000)
    made = [JobId.new(source) for _ in range(2_000)]
    assert made == sorted(set(made))


def test_ids_keep_increasing_when_the_clock_steps_back() -> None:
    times = iter([1_700_000_000_000, 1_600_000_000_000, 1_699_999_999_999])
    source = IdSource(clock_ms=lambda: next(times))
    made = [JobId.new(source) for _ in range(3)]
    assert made == sorted(set(made))


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1))
def test_ids_of_different_processes_are_ordered_by_time(first_ms: int, second_ms: int) -> None:
    first = JobId.new(IdSource(clock_ms=lambda: first_ms))
    second = JobId.new(IdSource(clock_ms=lambda: second_ms))
    if first_ms != second_ms:
        assert (first < second) == (first_ms < second_ms)


def test_the_time_is_in_the_first_ten_characters() -> None:
    assert JobId.new(IdSource(clock_ms=lambda: 2**48 - 1)).startswith("job_7zzzzzzzzz")
    assert JobId.new(IdSource(clock_ms=lambda: 0)).startswith("job_0000000000")


def test_a_reset_source_does_not_continue_its_sequence() -> None:
    source = IdSource(clock_ms=lambda: 0)
    first = source.next()
    source.reset()
    assert source.next() != first + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job_",
        "job",
        "job_0123456789abcdefghjkmnpqr",
        "job_0123456789abcdefghjkmnpqrst",
        "job_0123456789ABCDEFGHJKMNPQRS",
        "job_8zzzzzzzzzzzzzzzzzzzzzzzzz",
        "job_0123456789abcdefghijklmnop",
        "job_0123456789abcdefghjkmnpqr\n",
        " job_0123456789abcdefghjkmnpqrs",
        "0123456789abcdefghjkmnpqrs",
    ],
)
def test_text_that_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="is not a job id"):
        JobId.parse(text)


def test_an_id_survives_pickling_and_is_a_usable_key() -> None:
    made = PipelineId.new()
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is PipelineId
    assert {made: 1}[again] == 1


def test_an_id_holds_no_attributes() -> None:
    with pytest.raises(AttributeError):
        JobId.new().owner = os.getpid()  # type: ignore[attr-defined]
