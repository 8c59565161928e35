"""The subjects of NATS: this module alone spells them.

penstock.jobs.{job}.desired      the api changed what the user wants of a job
penstock.jobs.{job}.state        the controller moved a job to another state
penstock.jobs.{job}.checkpoint   a checkpoint began, advanced or ended
penstock.jobs.{job}.error        a job failed, or went on after an error
penstock.jobs.{job}.metrics      a job's figures, every second or so
penstock.jobs.{job}.output       rows of a preview
penstock.nodes.{node}.status     a node came, changed or went
penstock.udfs.{udf}.built        a UDF was built, or could not be
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from penstock.common.errors import InvalidId
from penstock.common.ids import JobId, NodeId, UdfId

EVENT_STREAM: Final = "PENSTOCK_EVENTS"


class JobTopic(StrEnum):
    """What a message about a job tells."""

    DESIRED = "desired"
    STATE = "state"
    CHECKPOINT = "checkpoint"
    ERROR = "error"
    METRICS = "metrics"
    OUTPUT = "output"


_TOPICS: Final = frozenset(topic.value for topic in JobTopic)
AUDITED: Final = (JobTopic.STATE, JobTopic.CHECKPOINT, JobTopic.ERROR)


def job_desired(job: JobId) -> str:
    return _job(job, JobTopic.DESIRED)


def job_state(job: JobId) -> str:
    return _job(job, JobTopic.STATE)


def job_checkpoint(job: JobId) -> str:
    return _job(job, JobTopic.CHECKPOINT)


def job_error(job: JobId) -> str:
    return _job(job, JobTopic.ERROR)


def job_metrics(job: JobId) -> str:
    return _job(job, JobTopic.METRICS)


def job_output(job: JobId) -> str:
    return _job(job, JobTopic.OUTPUT)


def node_status(node: NodeId) -> str:
    return f"penstock.nodes.{node}.status"


def udf_built(udf: UdfId) -> str:
    return f"penstock.udfs.{udf}.built"


def all_of_job(job: JobId) -> str:
    """Every message about one job."""
    return f"penstock.jobs.{job}.*"


def all_jobs(topic: JobTopic) -> str:
    """One topic of every job."""
    return f"penstock.jobs.*.{topic}"


def all_nodes() -> str:
    return "penstock.nodes.*.status"


def all_udfs() -> str:
    return "penstock.udfs.*.built"


def event_stream_subjects() -> list[str]:
    """What the audit stream keeps."""
    return [all_jobs(topic) for topic in AUDITED]


def parse_job(subject: str) -> tuple[JobId, JobTopic]:
    """The job that a message is about, and what it tells; raises InvalidId for another subject."""
    match subject.split("."):
        case ["penstock", "jobs", job, topic] if topic in _TOPICS:
            return JobId(job), JobTopic(topic)
        case _:
            raise InvalidId(f"{subject!r} is not a job's subject")


def parse_node(subject: str) -> NodeId:
    """The node that a message is about; raises InvalidId for another subject."""
    match subject.split("."):
        case ["penstock", "nodes", node, "status"]:
            return NodeId(node)
        case _:
            raise InvalidId(f"{subject!r} is not a node's subject")


def parse_udf(subject: str) -> UdfId:
    """The UDF that a message is about; raises InvalidId for another subject."""
    match subject.split("."):
        case ["penstock", "udfs", udf, "built"]:
            return UdfId(udf)
        case _:
            raise InvalidId(f"{subject!r} is not a UDF's subject")


def _job(job: JobId, topic: JobTopic) -> str:
    return f"penstock.jobs.{job}.{topic}"
