from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.api.store import Store
from penstock.api.testing import sample_program
from penstock.common import subjects
from penstock.common.ids import JobId, PipelineId
from penstock.common.program import ProgramSettings
from penstock.common.program_proto import program_from_proto
from penstock.common.proto import compiler_pb2
from penstock.common.proto.program_pb2 import Program
from penstock.common.testing import eventually

UNKNOWN = PipelineId.new()


def diagnostic(message: str, line: int, **fields: Any) -> compiler_pb2.Diagnostic:
    span = compiler_pb2.Span(line=line, column=8, end_line=line, end_column=11)
    fields = {"severity": compiler_pb2.SEVERITY_ERROR, "code": "unknown_column", **fields}
    return compiler_pb2.Diagnostic(message=message, span=span, **fields)


async def test_created_pipeline_is_answered_stored_and_announced(api: Any) -> None:
    async with api.bus.subscribe(subjects.all_jobs(subjects.JobTopic.DESIRED)) as messages:
        created = await api.create(name="clicks", query="SELECT counter FROM events", parallelism=3)
        assert (await anext(messages)).subject == subjects.job_desired(JobId(created["job_id"]))
    assert (created["name"], created["state"], created["stop"], created["parallelism"]) == (
        "clicks",
        "created",
        "none",
        3,
    )
    assert created["checkpoint_interval"] == "10s"
    assert [operator["kind"] for operator in created["graph"]["nodes"][0]["operators"]] == ["source", "value", "sink"]
    stored = await api.pool.fetchval("SELECT program FROM pipelines WHERE id = $1", created["id"])
    assert program_from_proto(Program.FromString(stored)) == sample_program()
    fetched = (await api.client.get(f"/pipelines/{created['id']}")).json()
    assert fetched == created


async def test_secrets_are_shown_as_templates_or_not_at_all(api: Any) -> None:
    created = await api.create()
    options = created["graph"]["nodes"][0]["operators"][0]["options"]
    assert options == {"topic": "events", "sasl_password": "{{ KAFKA_PASSWORD }}", "sasl_token": "***"}


@pytest.mark.parametrize(
    ("fields", "settings", "expected"),
    [
        ({}, ProgramSettings(), (1, "10s")),
        ({}, ProgramSettings(parallelism=4, checkpoint_interval_ms=500), (4, "500ms")),
        ({"parallelism": 2, "checkpoint_interval": "1m"}, ProgramSettings(4, 500), (2, "1m")),
    ],
)
async def test_request_wins_over_the_query_and_the_query_over_the_defaults(
    api: Any, fields: dict[str, object], settings: ProgramSettings, expected: tuple[int, str]
) -> None:
    api.compiler.program = sample_program(settings)
    created = await api.create(**fields)
    assert (created["parallelism"], created["checkpoint_interval"]) == expected


async def test_refused_query_names_every_error_with_its_place(api: Any) -> None:
    api.compiler.diagnostics = [
        diagnostic("unknown column a", 1, hint="did you mean b?"),
        diagnostic("unknown column c", 2),
    ]
    response = await api.client.post("/pipelines", json={"name": "p", "query": "SELECT a"})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["message"]) == ("invalid_query", "unknown column a, and 1 more")
    assert error["hint"] == "did you mean b?"
    assert [(one["message"], one["span"]["line"], one["span"]["column"]) for one in error["spans"]] == [
        ("unknown column a", 1, 8),
        ("unknown column c", 2, 8),
    ]
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == 0


async def test_warnings_come_with_the_pipeline(api: Any) -> None:
    api.compiler.diagnostics = [diagnostic("unused table", 1, severity=compiler_pb2.SEVERITY_WARNING)]
    assert [one["message"] for one in (await api.create())["warnings"]] == ["unused table"]


async def test_validation_creates_nothing(api: Any) -> None:
    valid = (await api.client.post("/pipelines/validate", json={"query": "SELECT 1"})).json()
    assert valid["valid"] and valid["graph"]["nodes"] and valid["diagnostics"] == []
    api.compiler.diagnostics = [diagnostic("unknown column a", 1)]
    response = await api.client.post("/pipelines/validate", json={"query": "SELECT a"})
    assert response.status_code == 200
    invalid = response.json()
    assert (invalid["valid"], invalid["graph"], len(invalid["diagnostics"])) == (False, None, 1)
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == 0


async def test_preview_needs_no_name_and_is_compiled_as_one(api: Any) -> None:
    response = await api.client.post("/pipelines/preview", json={"query": "SELECT 1"})
    assert response.status_code == 201
    assert (response.json()["name"], response.json()["preview"]) == ("preview", True)
    assert api.compiler.requests[-1].preview


async def test_pages_hold_every_pipeline_once_newest_first(api: Any) -> None:
    ids = [(await api.create(name=f"p{n}"))["id"] for n in range(5)]
    found: list[str] = []
    parameters: dict[str, object] = {"limit": 2}
    for expected_more in (True, True, False):
        page = (await api.client.get("/pipelines", params=parameters)).json()
        assert page["has_more"] is expected_more
        found += [item["id"] for item in page["data"]]
        parameters["starting_after"] = found[-1]
    assert found == ids[::-1]


async def test_stop_is_desired_and_announced(api: Any) -> None:
    created = await api.create()
    before = await api.pool.fetchval("SELECT revision FROM job_configs")
    async with api.bus.subscribe(subjects.job_desired(JobId(created["job_id"]))) as messages:
        response = await api.client.patch(
            f"/pipelines/{created['id']}", json={"stop": "graceful", "parallelism": 2, "checkpoint_interval": "2s"}
        )
        await anext(messages)
    changed = response.json()
    assert (changed["stop"], changed["parallelism"], changed["checkpoint_interval"]) == ("graceful", 2, "2s")
    assert await api.pool.fetchval("SELECT revision FROM job_configs") > before


@pytest.mark.parametrize(("state", "status"), [("stopped", 200), ("running", 200), ("finished", 409), ("failed", 409)])
async def test_only_a_job_that_can_run_again_is_asked_to(api: Any, state: str, status: int) -> None:
    created = await api.create()
    await api.set_state(created["job_id"], state)
    response = await api.client.patch(f"/pipelines/{created['id']}", json={"stop": "none"})
    assert response.status_code == status, response.text
    if status == 409:
        assert response.json()["error"]["code"] == "conflict" and response.json()["error"]["hint"]


async def test_restart_raises_the_nonce_and_wants_the_job_to_run(api: Any) -> None:
    created = await api.create()
    await api.set_state(created["job_id"], "failed")
    await api.client.patch(f"/pipelines/{created['id']}", json={"stop": "graceful"})
    address = f"/pipelines/{created['id']}/restart"
    assert (await api.client.post(address, json={"force": True})).status_code == 200
    row = await api.pool.fetchrow("SELECT restart_nonce, restart_mode, stop_mode FROM job_configs")
    assert tuple(row) == (1, "force", "none")
    assert (await api.client.post(address)).status_code == 200
    row = await api.pool.fetchrow("SELECT restart_nonce, restart_mode, stop_mode FROM job_configs")
    assert tuple(row) == (2, "safe", "none")
    await api.set_state(created["job_id"], "finished")
    assert (await api.client.post(address)).status_code == 409


async def test_restart_without_state_is_marked_by_its_nonce(api: Any) -> None:
    created = await api.create()
    address = f"/pipelines/{created['id']}/restart"
    for body, nonces in (({}, (1, 0)), ({"ignore_state": True}, (2, 2)), ({"force": True}, (3, 2))):
        assert (await api.client.post(address, json=body)).status_code == 200
        row = await api.pool.fetchrow("SELECT restart_nonce, ignore_state_nonce FROM job_configs")
        assert tuple(row) == nonces, body


async def test_fallback_is_allowed_when_the_pipeline_is_created_changed_or_restarted(api: Any) -> None:
    assert (await api.create(allow_fallback=True))["allow_fallback"]
    created = await api.create()
    address = f"/pipelines/{created['id']}"
    assert not created["allow_fallback"]
    for method, path, body, allowed in (
        ("PATCH", "", {"allow_fallback": True}, True),
        ("POST", "/restart", {}, True),
        ("PATCH", "", {"parallelism": 2}, True),
        ("POST", "/restart", {"allow_fallback": False}, False),
        ("POST", "/restart", {"allow_fallback": True}, True),
        ("PATCH", "", {"allow_fallback": False}, False),
    ):
        answer = await api.client.request(method, f"{address}{path}", json=body)
        assert (answer.status_code, answer.json()["allow_fallback"]) == (200, allowed), (method, path, body)


async def test_rebalance_is_a_safe_restart_of_a_job_that_runs(api: Any) -> None:
    created = await api.create()
    address = f"/pipelines/{created['id']}"
    await api.client.post(f"{address}/restart", json={"force": True})
    await api.set_state(created["job_id"], "running", restart_nonce=1)
    async with api.bus.subscribe(subjects.job_desired(JobId(created["job_id"]))) as messages:
        assert (await api.client.post(f"{address}/rebalance")).status_code == 200
        await anext(messages)
    assert tuple(await api.pool.fetchrow("SELECT restart_nonce, restart_mode FROM job_configs")) == (2, "safe")
    await api.client.patch(address, json={"stop": "checkpoint"})
    for state in ("running", "checkpoint_stopping", "stopped", "failed", "finished"):
        await api.set_state(created["job_id"], state, restart_nonce=2)
        refused = await api.client.post(f"{address}/rebalance")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict"), state
        assert refused.json()["error"]["hint"]
    assert tuple(await api.pool.fetchrow("SELECT restart_nonce, stop_mode FROM job_configs")) == (2, "checkpoint")


async def test_pipeline_is_deleted_only_once_its_job_has_ended(api: Any) -> None:
    created = await api.create()
    address = f"/pipelines/{created['id']}"
    for state in ("running", "stopping", "stopped"):
        await api.set_state(created["job_id"], state)
        refused = await api.client.delete(address)
        # A job that is stopped and wanted to run is about to.
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict"), state
        assert "stop it first" in refused.json()["error"]["hint"]
    await api.client.patch(address, json={"stop": "immediate"})
    assert (await api.client.delete(address)).status_code == 204
    assert (await api.client.get(address)).status_code == 404
    assert await api.pool.fetchval("SELECT count(*) FROM job_configs") == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/restart"), ("POST", "/rebalance")],
)
async def test_unknown_pipelines_are_not_found(api: Any, method: str, path: str) -> None:
    response = await api.client.request(method, f"/pipelines/{UNKNOWN}{path}", json={})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    malformed = await api.client.request(method, f"/pipelines/pl_1{path}", json={})
    assert (malformed.status_code, malformed.json()["error"]["code"]) == (400, "invalid_id")


async def test_previews_are_stopped_and_then_deleted(api: Any, pool: Any, bus: Any) -> None:
    kept = await api.create()
    preview = (await api.client.post("/pipelines/preview", json={"query": "SELECT 1"})).json()
    store = Store(pool)
    assert await store.stop_previews(timedelta(hours=1)) == []
    assert await store.stop_previews(timedelta(0)) == [preview["job_id"]]
    assert await store.stop_previews(timedelta(0)) == []
    await store.delete_previews(timedelta(0))
    assert (await api.client.get(f"/pipelines/{preview['id']}")).json()["stop"] == "immediate"
    await api.set_state(preview["job_id"], "stopped")
    await store.delete_previews(timedelta(0))

    async def only_the_other_is_left() -> bool:
        return [item["id"] for item in (await api.client.get("/pipelines")).json()["data"]] == [kept["id"]]

    await eventually(only_the_other_is_left)
