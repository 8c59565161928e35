from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from penstock.api.schemas import Savepoint
from penstock.api.service import serve
from penstock.api.testing import Savepoints, api_process, sample_program
from penstock.common.checkpoint.paths import metadata_path, savepoint_path
from penstock.common.ids import SavepointId
from penstock.common.program import ConnectorSource, Program
from penstock.common.proto import compiler_pb2


def reading(topic: str) -> Program:
    """The sample program with another source."""
    program = sample_program()
    (node,) = program.nodes
    source, *others = node.operators
    changed = replace(source, kind=ConnectorSource("kafka", "events", {"topic": topic}, {}))
    return replace(program, nodes=(replace(node, operators=(changed, *others)),))


async def ask_for(api: Any, name: str = "a") -> Savepoint:
    job = (await api.create())["job_id"]
    await api.set_state(job, "running")
    response = await api.client.post(f"/jobs/{job}/savepoints", json={"name": name})
    return Savepoint.model_validate_json(response.content)


@pytest.fixture
async def savepoint(api: Any) -> Savepoint:
    """One of the sample program."""
    asked = await ask_for(api)
    await Savepoints(api.pool, api.storage).make(asked, sample_program())
    return asked


async def create(api: Any, savepoint: str, **fields: object) -> Any:
    return await api.client.post(
        "/pipelines", json={"name": "q", "query": "SELECT 1", "from_savepoint": savepoint, **fields}
    )


async def validate(api: Any, savepoint: str) -> Any:
    return await api.client.post("/pipelines/validate", json={"query": "SELECT 1", "from_savepoint": savepoint})


def names(state: Any) -> dict[str, list[str]]:
    return {kind: [each["operator"] for each in found] for kind, found in state.items() if found}


async def test_pipeline_begins_with_a_savepoint_that_fits(api: Any, savepoint: Savepoint) -> None:
    response = await create(api, savepoint.id, parallelism=3)
    assert response.status_code == 201, response.text
    created = response.json()
    assert created["from_savepoint"] == savepoint.id
    row = await api.pool.fetchrow("SELECT restore_from, parallelism FROM job_configs WHERE id = $1", created["job_id"])
    assert tuple(row) == (savepoint.id, 3)


async def test_dry_run_tells_what_would_be_kept_and_creates_nothing(api: Any, savepoint: Savepoint) -> None:
    before = await api.pool.fetchval("SELECT count(*) FROM pipelines")
    answer = (await validate(api, savepoint.id)).json()
    assert answer["valid"]
    assert answer["state"] == {
        "kept": [
            {"operator": "sink_preview", "description": "preview", "bytes": 100},
            {"operator": "source_events", "description": "events", "bytes": 100},
        ],
        "dropped": [],
        "new": [],
        "incompatible": [],
    }
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == before


async def test_changed_source_is_incompatible_and_its_pipeline_refused(api: Any, savepoint: Savepoint) -> None:
    before = await api.pool.fetchval("SELECT count(*) FROM pipelines")
    api.compiler.program = reading("others")
    answer = (await validate(api, savepoint.id)).json()
    assert names(answer["state"]) == {"kept": ["sink_preview"], "incompatible": ["source_events"]}
    response = await create(api, savepoint.id)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (409, "conflict")
    assert "savepoint 'a'" in error["message"] and "source_events (events)" in error["message"] and error["hint"]
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == before


async def test_state_of_operators_that_are_gone_is_dropped_and_of_others_new(api: Any) -> None:
    asked = await ask_for(api)
    await Savepoints(api.pool, api.storage).make(asked, sample_program(), ["sink_preview"])
    (node,) = sample_program().nodes
    api.compiler.program = replace(sample_program(), nodes=(replace(node, operators=node.operators[:2]),))
    state = (await validate(api, asked.id)).json()["state"]
    assert names(state) == {"dropped": ["sink_preview"], "new": ["source_events"]}
    assert state["dropped"] == [{"operator": "sink_preview", "description": "preview", "bytes": 100}]
    assert state["new"][0]["bytes"] == 0
    assert (await create(api, asked.id)).status_code == 201


async def test_savepoint_of_a_job_that_is_gone_can_be_begun_with(api: Any, savepoint: Savepoint) -> None:
    await api.pool.execute("DELETE FROM pipelines")
    (node,) = sample_program().nodes
    api.compiler.program = replace(sample_program(), nodes=(replace(node, operators=node.operators[:2]),))
    state = (await validate(api, savepoint.id)).json()["state"]
    assert state["dropped"] == [{"operator": "sink_preview", "description": None, "bytes": 100}]
    assert (await create(api, savepoint.id)).status_code == 201


async def test_query_that_is_refused_has_no_state(api: Any, savepoint: Savepoint) -> None:
    api.compiler.diagnostics = [compiler_pb2.Diagnostic(severity=compiler_pb2.SEVERITY_ERROR, message="no")]
    answer = (await validate(api, savepoint.id)).json()
    assert (answer["valid"], answer["state"]) == (False, None)


async def test_only_savepoints_that_are_ready_can_be_begun_with(api: Any) -> None:
    asked = await ask_for(api)
    for ask in (create, validate):
        response = await ask(api, asked.id)
        assert (response.status_code, response.json()["error"]["hint"]) == (409, "wait until it is ready")
    await api.pool.execute(
        "INSERT INTO savepoints (id, job_id, name, state, error) VALUES ($1, $2, 'a', 'failed', 'the disk is full')",
        asked.id,
        asked.job_id,
    )
    for ask in (create, validate):
        response = await ask(api, asked.id)
        assert response.status_code == 409 and "the disk is full" in response.json()["error"]["message"]
    await api.client.delete(f"/jobs/{asked.job_id}/savepoints/{asked.id}")
    for ask in (create, validate):
        for missing in (asked.id, SavepointId.new()):
            assert (await ask(api, missing)).status_code == 404
        assert (await ask(api, "sv_1")).json()["error"]["code"] == "invalid_id"


async def test_damaged_savepoint_names_the_file(api: Any, savepoint: Savepoint) -> None:
    folder = api.storage.child(savepoint.job_id)
    path = metadata_path(savepoint_path(savepoint.name))
    tables = [info.path async for info in folder.list("checkpoints")]
    for missing in (tables[0], path):
        await folder.delete(missing)
        for ask in (create, validate):
            response = await ask(api, savepoint.id)
            assert (response.status_code, response.json()["error"]["code"]) == (409, "corrupt_snapshot")
            assert missing in response.json()["error"]["message"]


async def test_savepoint_is_kept_while_a_pipeline_has_nothing_else_to_begin_with(
    api: Any, savepoint: Savepoint
) -> None:
    created = (await create(api, savepoint.id)).json()
    address = f"/jobs/{savepoint.job_id}/savepoints/{savepoint.id}"
    refused = await api.client.delete(address)
    assert refused.status_code == 409
    assert created["id"] in refused.json()["error"]["message"] and refused.json()["error"]["hint"]
    await api.pool.execute(
        "INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at) "
        "VALUES ($1, 1, 1, 'ready', false, now())",
        created["job_id"],
    )
    assert (await api.client.delete(address)).status_code == 204


async def test_preview_cannot_begin_with_a_savepoint(api: Any, savepoint: Savepoint) -> None:
    response = await create(api, savepoint.id, preview=True)
    assert response.status_code == 422 and "preview" in response.json()["error"]["message"]


async def test_api_that_is_not_told_where_savepoints_are_says_so(api: Any, savepoint: Savepoint) -> None:

    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(api_process(), api.settings, pool=api.pool, bus=api.bus, ready=ready.set_result))
    async with httpx.AsyncClient(base_url=f"{await ready}/api/v1") as client:
        response = await client.post("/pipelines/validate", json={"query": "q", "from_savepoint": savepoint.id})
    task.cancel()
    await asyncio.wait((task,))
    assert (response.status_code, response.json()["error"]["code"]) == (503, "storage_error")
    assert "checkpoints.url" in response.json()["error"]["hint"]
