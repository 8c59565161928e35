from __future__ import annotations

import pytest

from penstock.common import subjects
from penstock.common.errors import InvalidId
from penstock.common.ids import JobId, NodeId, UdfId
from penstock.common.subjects import JobTopic


def test_a_job_s_subjects_are_parsed_back() -> None:
    job = JobId.new()
    spelled = {
        JobTopic.DESIRED: subjects.job_desired(job),
        JobTopic.STATE: subjects.job_state(job),
        JobTopic.CHECKPOINT: subjects.job_checkpoint(job),
        JobTopic.ERROR: subjects.job_error(job),
        JobTopic.METRICS: subjects.job_metrics(job),
        JobTopic.OUTPUT: subjects.job_output(job),
    }
    assert set(spelled) == set(JobTopic)
    for topic, subject in spelled.items():
        assert subjects.parse_job(subject) == (job, topic)
        assert subject == f"penstock.jobs.{job}.{topic.value}"


def test_node_and_udf_subjects_are_parsed_back() -> None:
    node, udf = NodeId.new(), UdfId.new()
    assert subjects.parse_node(subjects.node_status(node)) == node
    assert subjects.parse_udf(subjects.udf_built(udf)) == udf


def test_the_audit_stream_keeps_states_checkpoints_and_errors() -> None:
    assert subjects.EVENT_STREAM == "PENSTOCK_EVENTS"
    assert subjects.event_stream_subjects() == [
        "penstock.jobs.*.state",
        "penstock.jobs.*.checkpoint",
        "penstock.jobs.*.error",
    ]


@pytest.mark.parametrize(
    "subject", ["", "penstock.jobs", "penstock.jobs.job_x.state", f"penstock.jobs.{JobId.new()}.unknown", "a.b.c.d"]
)
def test_another_subject_is_refused(subject: str) -> None:
    for parse in (subjects.parse_job, subjects.parse_node, subjects.parse_udf):
        with pytest.raises(InvalidId):
            parse(subject)
