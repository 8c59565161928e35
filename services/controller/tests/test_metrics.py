from __future__ import annotations

from penstock.common.ids import Generation, JobId
from penstock.common.program import NodeKey
from penstock.common.proto.jobs_pb2 import SubtaskMetrics
from penstock.controller.metrics import MetricsStore
from penstock.controller.records import TaskId, TaskOwner

TASK = TaskId(NodeKey("in"), 0)
JOB = JobId.new()


def said(rows: int) -> list[tuple[TaskId, SubtaskMetrics]]:
    return [(TASK, SubtaskMetrics(node_id="in", rows_out=rows))]


def rows(store: MetricsStore, job: JobId = JOB) -> tuple[int, int] | None:
    found = store.of(job)
    return None if found is None else (found[0], found[1][TASK].rows_out)


def owner(generation: int, job: JobId = JOB) -> TaskOwner:
    return TaskOwner(job, Generation(generation))


def test_a_heartbeat_that_comes_late_does_not_replace_final_metrics() -> None:
    store = MetricsStore(kept=1)
    store.update(owner(1), said(1), final=False)
    store.update(owner(1), said(9), final=True)
    store.update(owner(1), said(8), final=False)
    assert rows(store) == (1, 9)


def test_a_generation_replaces_those_before_it_and_not_those_after() -> None:
    store = MetricsStore(kept=1)
    store.update(owner(2), said(5), final=True)
    store.update(owner(1), said(7), final=True)
    assert rows(store) == (2, 5)
    store.update(owner(3), said(1), final=False)
    assert rows(store) == (3, 1)


def test_metrics_of_the_last_jobs_that_ended_are_kept() -> None:
    store = MetricsStore(kept=2)
    jobs = [JobId.new() for _ in range(4)]
    for number, job in enumerate(jobs):
        store.update(owner(1, job), said(number), final=True)
    for job in jobs[:3]:
        store.close(job)
    assert [rows(store, job) is not None for job in jobs] == [False, True, True, True]
