from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.api.spans import operator_checkpoints
from penstock.api.testing import sample_program
from penstock.common.ids import JobId, SavepointId

STARTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
DETAILS = {
    "nodes": [
        {
            "node_id": "node_1",
            "subtasks": [
                {
                    "subtask": 0,
                    "alignment_started_at_us": 1 * SECOND,
                    "started_at_us": 2 * SECOND,
                    "frozen_at_us": 2 * SECOND + 500,
                    "finished_at_us": 4 * SECOND,
                    "operators": {"source_events": 10, "sink_preview": 5},
                    "committed_at_us": 5 * SECOND,
                },
                {"subtask": 1, "alignment_started_at_us": 1 * SECOND},
            ],
        }
    ]
}


async def add_checkpoint(api: Any, job: object, epoch: int, state: str = "ready", **columns: object) -> None:
    """Writes as the controller does."""
    fields = {"generation": 1, "then_stop": False, "started_at": STARTED_AT, **columns}
    values = ", ".join(f"${n}" for n in range(1, len(fields) + 4))
    await api.pool.execute(
        f"INSERT INTO checkpoints (job_id, epoch, state, {', '.join(fields)}) VALUES ({values})",
        job,
        epoch,
        state,
        *fields.values(),
    )


async def test_checkpoints_are_listed_newest_first_with_how_long_they_took(api: Any) -> None:
    job, savepoint = (await api.create())["job_id"], SavepointId.new()
    await add_checkpoint(api, job, 1, finished_at=STARTED_AT + timedelta(milliseconds=1500), bytes=2**40)
    await add_checkpoint(api, job, 2, "abandoned", finished_at=STARTED_AT, error="the disk is full")
    await add_checkpoint(api, job, 3, "inprogress", savepoint_id=savepoint, then_stop=True, generation=2)
    page = (await api.client.get(f"/jobs/{job}/checkpoints")).json()
    third, second, first = page["data"]
    assert not page["has_more"]
    assert third == {
        "epoch": 3,
        "generation": 2,
        "state": "inprogress",
        "then_stop": True,
        "savepoint_id": savepoint,
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": None,
        "duration_seconds": None,
        "bytes": 0,
        "error": None,
    }
    assert (second["state"], second["error"]) == ("abandoned", "the disk is full")
    assert (first["state"], first["duration_seconds"], first["bytes"]) == ("ready", 1.5, 2**40)


async def test_pages_hold_every_checkpoint_once(api: Any) -> None:
    job, other = (await api.create())["job_id"], (await api.create())["job_id"]
    for epoch in range(1, 6):
        await add_checkpoint(api, job, epoch)
    await add_checkpoint(api, other, 4)
    found: list[int] = []
    parameters: dict[str, object] = {"limit": 2}
    for expected_more in (True, True, False):
        page = (await api.client.get(f"/jobs/{job}/checkpoints", params=parameters)).json()
        assert page["has_more"] is expected_more
        found += [item["epoch"] for item in page["data"]]
        parameters["starting_after"] = found[-1]
    assert found == [5, 4, 3, 2, 1]


async def test_operators_tell_their_bytes_and_the_spans_of_their_subtasks(api: Any) -> None:
    job = (await api.create())["job_id"]
    await add_checkpoint(api, job, 1, details=json.dumps(DETAILS))
    operators = (await api.client.get(f"/jobs/{job}/checkpoints/1/operators")).json()["data"]
    assert [(one["operator"], one["description"], one["node"], one["bytes"]) for one in operators] == [
        ("source_events", "events", "node_1", 10),
        ("value_1", "filter", "node_1", 0),
        ("sink_preview", "preview", "node_1", 5),
    ]
    first, second = operators[0]["subtasks"]
    assert first == {
        "subtask": 0,
        "bytes": 10,
        "alignment": {
            "started_at": "1970-01-01T00:00:01Z",
            "finished_at": "1970-01-01T00:00:02Z",
            "duration_seconds": 1.0,
        },
        "frozen": {
            "started_at": "1970-01-01T00:00:02Z",
            "finished_at": "1970-01-01T00:00:02.000500Z",
            "duration_seconds": 0.0005,
        },
        "written": {
            "started_at": "1970-01-01T00:00:02.000500Z",
            "finished_at": "1970-01-01T00:00:04Z",
            "duration_seconds": 1.9995,
        },
        "committed_at": "1970-01-01T00:00:05Z",
    }
    assert second["alignment"] == {
        "started_at": "1970-01-01T00:00:01Z",
        "finished_at": None,
        "duration_seconds": None,
    }
    assert (second["frozen"], second["written"], second["committed_at"], second["bytes"]) == (None, None, None, 0)


async def test_checkpoint_that_nothing_is_known_of_has_no_operators(api: Any) -> None:
    job = (await api.create())["job_id"]
    await add_checkpoint(api, job, 1)
    assert (await api.client.get(f"/jobs/{job}/checkpoints/1/operators")).json() == {"data": [], "has_more": False}


async def test_unknown_jobs_and_epochs_are_not_found(api: Any) -> None:
    job = (await api.create())["job_id"]
    for path in (f"/jobs/{JobId.new()}/checkpoints", f"/jobs/{JobId.new()}/checkpoints/1/operators"):
        assert (await api.client.get(path)).status_code == 404
    missing = await api.client.get(f"/jobs/{job}/checkpoints/7/operators")
    assert (missing.status_code, missing.json()["error"]["message"]) == (404, f"job {job} has no checkpoint 7")
    for path in (f"/jobs/{job}/checkpoints/{2**63}/operators", f"/jobs/{job}/checkpoints?starting_after=x"):
        assert (await api.client.get(path)).status_code == 422


def test_state_of_operators_that_the_program_no_longer_has_is_told_too() -> None:
    subtask = {"subtask": 0, "operators": {"gone": 3}}
    details = {"nodes": [{"node_id": "left", "subtasks": [subtask]}, {"node_id": "node_1", "subtasks": []}]}
    operators = operator_checkpoints(sample_program(), details)
    assert [one.operator for one in operators] == ["source_events", "value_1", "sink_preview", "gone"]
    assert (operators[-1].description, operators[-1].node, operators[-1].bytes) == (None, "left", 3)
