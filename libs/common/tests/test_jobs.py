from __future__ import annotations

from penstock.common.jobs import JobState
from penstock.common.proto import jobs_pb2


def test_states_and_their_protobuf_enum_are_the_same() -> None:
    names = {name.removeprefix("JOB_STATE_").lower() for name, _ in jobs_pb2.JobState.items()}
    assert names - {"unspecified"} == set(JobState)


def test_every_state_has_a_protobuf_value() -> None:
    assert len({state.to_proto() for state in JobState}) == len(JobState)


def test_terminal_states_are_those_a_job_rests_in() -> None:
    assert {state for state in JobState if state.is_terminal} == {"stopped", "finished", "failed"}
