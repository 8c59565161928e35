from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from penstock.api.service import serve
from penstock.api.testing import api_process
from penstock.common.errors import SettingsError


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "p"}, "query"),
        ({"name": "p", "query": "SELECT 1", "paralelism": 2}, "paralelism: unknown field"),
        ({"name": "p", "query": "SELECT 1", "parallelism": 0}, "parallelism"),
        ({"name": " ", "query": "SELECT 1"}, "name"),
        ({"name": "p", "query": "SELECT 1", "checkpoint_interval": "10"}, "checkpoint_interval"),
        ({"name": "p", "query": "SELECT 1", "checkpoint_interval": "0s"}, "checkpoint_interval: it must be"),
    ],
)
async def test_malformed_requests_are_refused_in_our_form(api: Any, body: dict[str, object], field: str) -> None:
    response = await api.client.post("/pipelines", json=body)
    assert response.status_code == 422
    error = response.json()["error"]
    assert error["code"] == "invalid_request" and field in error["message"] and error["hint"]


async def test_body_that_is_not_json_is_refused_in_our_form(api: Any) -> None:
    headers = {"content-type": "application/json"}
    response = await api.client.post("/pipelines", content=b"{", headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "invalid_json")
    # A page elsewhere could send this without asking first.
    response = await api.client.post(
        "/pipelines", content=b'{"name":"p","query":"q"}', headers={"content-type": "text/plain"}
    )
    assert response.status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("PUT", "/pipelines", 405, "method_not_allowed"),
        ("GET", "/pipelines?limit=0", 422, "invalid_request"),
        ("GET", "/pipelines?starting_after=x", 400, "invalid_id"),
    ],
)
async def test_every_error_has_the_one_form(api: Any, method: str, path: str, status: int, code: str) -> None:
    response = await api.client.request(method, path)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["error"]["message"]


async def test_bodies_over_the_limit_are_refused(api: Any) -> None:
    content = b" " * (api.settings.max_body + 1)

    async def without_a_length() -> Any:
        yield content

    for body in (content, without_a_length()):
        response = await api.client.post("/pipelines", content=body)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


async def test_unreachable_compiler_is_named(api: Any) -> None:
    await api.compiler_server.close(0)
    response = await api.client.post("/pipelines/validate", json={"query": "SELECT 1"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "peer_unavailable")
    assert "compiler" in response.json()["error"]["message"]


async def test_requests_work_again_after_the_database_was_away(api: Any) -> None:
    await api.create()
    # As a server that restarts does: every connection is cut.
    await api.pool.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(Exception, match="terminat"):
        await api.pool.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert (await api.client.get("/pipelines")).status_code == 200


async def test_absent_database_is_unavailable_and_ping_is_not(api: Any) -> None:
    await api.pool.close()
    response = await api.client.get("/pipelines")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "database_unavailable")
    assert (await api.client.get("/ping")).json()["status"] == "ok"


async def test_token_is_asked_for_by_all_but_ping(api: Any, pool: Any, bus: Any) -> None:
    settings = api.settings.model_copy(update={"token": "abc"})
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(api_process(), settings, pool=pool, bus=bus, ready=ready.set_result))
    async with httpx.AsyncClient(base_url=f"{await ready}/api/v1") as client:
        assert (await client.get("/ping")).status_code == 200
        for headers in ({}, {"authorization": "Bearer abd"}, {"authorization": "abc"}):
            response = await client.get("/pipelines", headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert (await client.get("/pipelines", headers={"authorization": "Bearer abc"})).status_code == 200
    task.cancel()
    await asyncio.wait((task,))


async def test_other_names_for_this_machine_are_refused_without_a_token(api: Any) -> None:
    response = await api.client.get("/pipelines", headers={"host": "evil.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "forbidden_host")
    assert (await api.client.get("/pipelines", headers={"host": "localhost:5115"})).status_code == 200


async def test_api_is_not_served_beyond_this_machine_without_a_token(api: Any, pool: Any, bus: Any) -> None:
    settings = api.settings.model_copy(update={"host": "0.0.0.0"})
    with pytest.raises(SettingsError, match="without a token"):
        await serve(api_process(), settings, pool=pool, bus=bus)


async def test_taken_port_is_a_readable_error(api: Any, pool: Any, bus: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = api.settings.model_copy(update={"port": taken.getsockname()[1]})
        with pytest.raises(SettingsError, match="cannot serve HTTP") as raised:
            await serve(api_process(), settings, pool=pool, bus=bus)
    assert raised.value.hint is not None


async def test_stopping_ends_open_streams_at_once(api: Any, pool: Any, bus: Any) -> None:
    job = (await api.create())["job_id"]
    await api.set_state(job, "running")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(api_process(), api.settings, pool=pool, bus=bus, ready=ready.set_result))
    async with (
        httpx.AsyncClient(base_url=f"{await ready}/api/v1") as client,
        client.stream("GET", f"/jobs/{job}/output") as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == ": keep-alive"
        task.cancel()
        async with asyncio.timeout(1):
            assert [line async for line in lines if line] == []
            await asyncio.wait((task,))


async def test_openapi_describes_every_route_and_names_no_other_host(api: Any) -> None:
    response = await api.client.get("/openapi.json")
    document = response.json()
    operations = [
        (path, method, operation) for path, item in document["paths"].items() for method, operation in item.items()
    ]
    assert len(operations) >= 18
    for path, method, operation in operations:
        assert operation["description"], (path, method)
        refused = operation["responses"].get("422")
        if refused:
            assert refused["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorResponse"), path
    assert "://" not in response.text
    assert (await api.client.get("/docs")).status_code == 404
