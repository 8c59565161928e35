from __future__ import annotations

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from penstock.common import admin
from penstock.common.admin import AdminServer, Check, serve_admin
from penstock.common.config import load_config
from penstock.common.errors import DatabaseUnavailable, SettingsError


@asynccontextmanager
async def serving(
    checks: Mapping[str, Check] | None = None, host: str = "127.0.0.1", token: str = ""
) -> AsyncIterator[AdminServer]:
    registry = CollectorRegistry()
    Counter("rows", "Rows.", registry=registry).inc(3)
    environment = {"PENSTOCK__RPC__TOKEN": token, "PENSTOCK__DATABASE__URL": "postgresql://me:hunter2@host/db"}
    config = load_config(environment=environment)
    server = await serve_admin("controller", host=host, port=0, config=config, registry=registry, checks=checks or {})
    try:
        yield server
    finally:
        async with asyncio.timeout(5):
            await server.close()


async def get(server: AdminServer, path: str, token: str = "") -> tuple[int, str]:
    def fetch() -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(fetch)


async def well() -> None:
    pass


async def test_a_service_whose_checks_pass_is_ok() -> None:
    async with serving({"database": well}) as server:
        code, body = await get(server, "/status")
    assert code == 200
    assert json.loads(body) == {"status": "ok", "service": "controller", "checks": {"database": "ok"}}


async def test_a_failing_check_is_named_and_the_others_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_CHECK_SECONDS", 0.2)

    async def away() -> None:
        raise DatabaseUnavailable("the database went away")

    async def broken() -> None:
        raise KeyError("secret")

    async def hanging() -> None:
        await asyncio.Event().wait()

    checks = {"database": away, "bus": well, "broken": broken, "hanging": hanging}
    async with serving(checks) as server:
        code, body = await get(server, "/status")
    assert code == 503
    assert json.loads(body)["status"] == "failing"
    assert json.loads(body)["checks"] == {
        "database": "the database went away",
        "bus": "ok",
        "broken": "unexpected KeyError",
        "hanging": "no answer within 0.2 s",
    }


async def test_metrics_are_prometheus_text() -> None:
    async with serving() as server:
        code, body = await get(server, "/metrics")
    assert code == 200
    assert "rows_total 3.0" in body


async def test_the_settings_are_shown_without_secrets() -> None:
    async with serving(token="cluster-secret") as server:
        code, body = await get(server, "/config")
    assert code == 200
    assert json.loads(body)["rpc"]["token"] == "***"
    assert json.loads(body)["log"]["level"] == "info"
    assert "hunter2" not in body
    assert "cluster-secret" not in body


async def test_beyond_loopback_all_but_the_status_needs_the_token() -> None:
    async with serving(host="0.0.0.0", token="right") as server:
        assert (await get(server, "/status"))[0] == 200
        for path in ("/metrics", "/config"):
            assert (await get(server, path))[0] == 401
            assert (await get(server, path, "wrong"))[0] == 401
            assert (await get(server, path, "right"))[0] == 200


async def test_serving_beyond_loopback_without_a_token_is_refused() -> None:
    with pytest.raises(SettingsError, match="without a token"):
        async with serving(host="0.0.0.0"):
            pass


async def test_a_port_in_use_is_a_settings_error() -> None:
    async with serving() as server:
        with pytest.raises(SettingsError, match="in use"):
            await serve_admin(
                "api",
                host="127.0.0.1",
                port=server.port,
                config=load_config(environment={}),
                registry=CollectorRegistry(),
                checks={},
            )


async def test_requests_leave_no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving() as server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        await get(server, "/status")
        await get(server, "/nowhere")
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []
