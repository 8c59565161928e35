from __future__ import annotations

from typing import Any

import pytest

from penstock.common import subjects
from penstock.common.ids import JobId, SavepointId


async def make(api: Any, savepoint: dict[str, Any], state: str = "ready", **columns: object) -> None:
    """Writes as the controller does."""
    fields = {"id": savepoint["id"], "job_id": savepoint["job_id"], "name": savepoint["name"], "state": state}
    fields |= {"pipeline_id": savepoint["pipeline_id"], **columns}
    values = ", ".join(f"${n}" for n in range(1, len(fields) + 1))
    await api.pool.execute(f"INSERT INTO savepoints ({', '.join(fields)}) VALUES ({values})", *fields.values())


async def ask_for(api: Any, job: object, name: str | None = None) -> dict[str, Any]:
    response = await api.client.post(f"/jobs/{job}/savepoints", json={} if name is None else {"name": name})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.fixture
async def job(api: Any) -> str:
    """One that runs."""
    created = await api.create()
    await api.set_state(created["job_id"], "running")
    return str(created["job_id"])


async def test_savepoint_is_asked_for_and_announced(api: Any, job: str) -> None:
    async with api.bus.subscribe(subjects.job_desired(JobId(job))) as messages:
        savepoint = await ask_for(api, job, "before the change")
        await anext(messages)
    assert (savepoint["name"], savepoint["job_id"], savepoint["state"]) == ("before the change", job, "creating")
    assert (savepoint["epoch"], savepoint["bytes"], savepoint["error"]) == (None, 0, None)
    row = await api.pool.fetchrow("SELECT id, job_id, name, deleted FROM savepoint_requests")
    assert tuple(row) == (savepoint["id"], job, "before the change", False)


async def test_savepoint_without_a_name_is_called_by_its_id(api: Any, job: str) -> None:
    savepoint = (await api.client.post(f"/jobs/{job}/savepoints")).json()
    assert savepoint["name"] == savepoint["id"]


async def test_savepoint_tells_what_the_controller_made_of_it(api: Any, job: str) -> None:
    good, bad = await ask_for(api, job), await ask_for(api, job)
    await make(api, good, path="savepoints/x", epoch=4, bytes=2**40)
    await make(api, bad, "failed", error="the disk is full")
    good, bad = [(await api.client.get(f"/jobs/{job}/savepoints/{one['id']}")).json() for one in (good, bad)]
    assert (good["state"], good["epoch"], good["bytes"]) == ("ready", 4, 2**40)
    assert (bad["state"], bad["error"]) == ("failed", "the disk is full")
    assert (await api.client.get(f"/savepoints/{good['id']}")).json() == good


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "é", "a\n\nb", "x" * 101, "\0"])
async def test_names_that_no_folder_can_have_are_refused(api: Any, job: str, name: str) -> None:
    response = await api.client.post(f"/jobs/{job}/savepoints", json={"name": name})
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_request")


async def test_name_is_free_again_once_its_savepoint_is_deleted(api: Any, job: str) -> None:
    first = await ask_for(api, job, "a")
    refused = await api.client.post(f"/jobs/{job}/savepoints", json={"name": "a"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert "delete" in refused.json()["error"]["hint"]
    assert (await api.client.delete(f"/jobs/{job}/savepoints/{first['id']}")).status_code == 204
    await ask_for(api, job, "a")


@pytest.mark.parametrize(
    ("state", "stop", "checkpoint", "status"),
    [
        ("created", "none", None, 201),
        ("recovering", "none", None, 201),
        ("stopping", "graceful", None, 201),
        ("stopped", "none", None, 201),
        ("stopped", "checkpoint", "ready", 201),
        ("stopped", "immediate", "ready", 201),
        ("failed", "none", "ready", 201),
        ("stopped", "checkpoint", "deleted", 409),
        ("stopped", "checkpoint", None, 409),
        ("failed", "none", None, 409),
        ("finished", "none", "ready", 409),
    ],
)
async def test_a_job_makes_savepoints_that_runs_or_will_or_was_saved(
    api: Any, state: str, stop: str, checkpoint: str | None, status: int
) -> None:
    created = await api.create()
    if checkpoint is not None:
        await api.pool.execute(
            "INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at) "
            "VALUES ($1, 1, 1, $2, true, now())",
            created["job_id"],
            checkpoint,
        )
    await api.client.patch(f"/pipelines/{created['id']}", json={"stop": stop})
    await api.set_state(created["job_id"], state)
    response = await api.client.post(f"/jobs/{created['job_id']}/savepoints", json={})
    assert response.status_code == status, response.text
    if status == 409:
        error = response.json()["error"]
        assert error["hint"]
        assert ("has finished" if state == "finished" else f"{state} and has no checkpoint") in error["message"]


async def test_preview_makes_no_savepoint(api: Any) -> None:
    preview = (await api.client.post("/pipelines/preview", json={"query": "SELECT 1"})).json()
    response = await api.client.post(f"/jobs/{preview['job_id']}/savepoints")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "conflict")
    assert "preview" in response.json()["error"]["message"] and response.json()["error"]["hint"]


async def test_savepoints_are_listed_newest_first_by_job_and_of_all(api: Any, job: str) -> None:
    other = (await api.create())["job_id"]
    ids = [(await ask_for(api, each))["id"] for each in (job, job, other, job)]
    assert [one["id"] for one in (await api.client.get("/savepoints")).json()["data"]] == ids[::-1]
    address = f"/jobs/{job}/savepoints"
    page = (await api.client.get(address, params={"limit": 2})).json()
    assert ([one["id"] for one in page["data"]], page["has_more"]) == ([ids[3], ids[1]], True)
    rest = (await api.client.get(address, params={"starting_after": ids[1]})).json()
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == ([ids[0]], False)


async def test_savepoint_outlives_its_job(api: Any) -> None:
    created = await api.create()
    savepoint = await ask_for(api, created["job_id"])
    await make(api, savepoint)
    await api.client.patch(f"/pipelines/{created['id']}", json={"stop": "immediate"})
    await api.set_state(created["job_id"], "stopped")
    assert (await api.client.delete(f"/pipelines/{created['id']}")).status_code == 204
    address = f"/jobs/{created['job_id']}/savepoints"
    (listed,) = (await api.client.get(address)).json()["data"]
    assert (listed["id"], listed["state"], listed["pipeline_id"]) == (savepoint["id"], "ready", created["id"])
    assert (await api.client.delete(f"{address}/{savepoint['id']}")).status_code == 204
    assert (await api.client.get(address)).status_code == 404


async def test_deleted_savepoint_is_gone_and_announced(api: Any, job: str) -> None:
    savepoint = await ask_for(api, job)
    await make(api, savepoint)
    address = f"/jobs/{job}/savepoints/{savepoint['id']}"
    async with api.bus.subscribe(subjects.job_desired(JobId(job))) as messages:
        assert (await api.client.delete(address)).status_code == 204
        await anext(messages)
    assert await api.pool.fetchval("SELECT deleted FROM savepoint_requests")
    assert (await api.client.delete(address)).status_code == 404
    assert (await api.client.get(address)).status_code == 404
    assert (await api.client.get(f"/savepoints/{savepoint['id']}")).status_code == 404
    assert (await api.client.get("/savepoints")).json()["data"] == []


async def test_unknown_jobs_and_savepoints_are_not_found(api: Any, job: str) -> None:
    other = (await api.create())["job_id"]
    savepoint, unknown = (await ask_for(api, job))["id"], SavepointId.new()
    for method, path in [
        ("POST", f"/jobs/{JobId.new()}/savepoints"),
        ("GET", f"/jobs/{JobId.new()}/savepoints"),
        ("GET", f"/jobs/{job}/savepoints/{unknown}"),
        ("DELETE", f"/jobs/{job}/savepoints/{unknown}"),
        ("GET", f"/jobs/{other}/savepoints/{savepoint}"),
        ("DELETE", f"/jobs/{other}/savepoints/{savepoint}"),
        ("GET", f"/savepoints/{unknown}"),
    ]:
        response = await api.client.request(method, path)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found"), (method, path)
    assert (await api.client.get("/savepoints/sv_1")).json()["error"]["code"] == "invalid_id"
