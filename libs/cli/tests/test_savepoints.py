from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.api.schemas import Savepoint
from penstock.api.testing import Savepoints, sample_program
from penstock.cli.client import RequestRefused
from penstock.common.program import ConnectorSource


@pytest.fixture
def query(tmp_path: Path) -> str:
    file = tmp_path / "clicks.sql"
    file.write_text("SELECT 1\n")
    return str(file)


async def answer(command: Any, *arguments: str) -> dict[str, Any]:
    outcome = await command(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


@pytest.fixture
async def savepoint(command: Any, query: str, api: Any) -> Savepoint:
    """One that is ready, of the sample program."""
    job = (await answer(command, "pipelines", "create", query))["job_id"]
    asked = Savepoint.model_validate(await answer(command, "savepoints", "create", job, "--name", "nightly"))
    await Savepoints(api.pool, api.storage).make(asked, sample_program())
    return asked


async def test_savepoint_is_created_listed_shown_and_deleted(command: Any, query: str, savepoint: Savepoint) -> None:
    assert (savepoint.name, savepoint.state) == ("nightly", "creating")
    other = await answer(command, "savepoints", "create", savepoint.job_id)
    assert other["name"] == other["id"]
    for options in ([], ["--job", savepoint.job_id]):
        listed = (await command("savepoints", "list", *options)).out
        (row,) = (line for line in listed.splitlines() if savepoint.id in line)
        assert "nightly" in row and "ready" in row and "200 B" in row
        assert listed.index(other["id"]) < listed.index(savepoint.id)
    shown = (await command("savepoints", "show", savepoint.id)).out
    assert "nightly" in shown and savepoint.job_id in shown and "ready" in shown
    assert (await answer(command, "savepoints", "show", savepoint.id))["bytes"] == 200
    assert (await command("savepoints", "delete", savepoint.id)).code == 0
    assert savepoint.id not in (await command("savepoints", "list")).out


async def test_refusals_of_the_api_are_raised(command: Any, query: str, savepoint: Savepoint) -> None:
    with pytest.raises(RequestRefused, match="already"):
        await command("savepoints", "create", savepoint.job_id, "--name", "nightly")
    with pytest.raises(RequestRefused, match="name"):
        await command("savepoints", "create", savepoint.job_id, "--name", "a/b")


async def test_pipeline_is_created_from_a_savepoint(command: Any, query: str, savepoint: Savepoint) -> None:
    created = await answer(command, "pipelines", "create", query, "--from-savepoint", savepoint.id)
    assert created["from_savepoint"] == savepoint.id
    assert savepoint.id in (await command("pipelines", "show", created["id"])).out


async def test_dry_run_tells_what_becomes_of_the_state(
    command: Any, query: str, api: Any, savepoint: Savepoint
) -> None:
    before = await api.pool.fetchval("SELECT count(*) FROM pipelines")
    arguments = ("pipelines", "create", query, "--from-savepoint", savepoint.id, "--dry-run")
    fits = await command(*arguments)
    _, _, *rows = fits.out.strip().splitlines()
    assert fits.code == 0
    assert [row.split() for row in rows] == [
        ["kept", "sink_preview", "preview", "100", "B"],
        ["kept", "source_events", "events", "100", "B"],
    ]
    (node,) = sample_program().nodes
    source, *others = node.operators
    changed = replace(source, kind=ConnectorSource("kafka", "events", {"topic": "others"}, {}))
    program = api.compiler.program
    api.compiler.program = replace(program, nodes=(replace(node, operators=(changed, *others)),))
    try:
        unfit = await command(*arguments)
        as_json = await command(*arguments, "--json")
    finally:
        api.compiler.program = program
    assert unfit.code == as_json.code == 1
    assert ["incompatible", "source_events", "events", "100", "B"] in [row.split() for row in unfit.out.splitlines()]
    assert json.loads(as_json.out)["state"]["incompatible"][0]["operator"] == "source_events"
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == before


async def test_dry_run_without_a_savepoint_validates(command: Any, query: str, api: Any) -> None:
    before = await api.pool.fetchval("SELECT count(*) FROM pipelines")
    valid = await command("pipelines", "create", query, "--dry-run")
    assert (valid.code, valid.out, valid.err) == (0, "", f"{query} is valid\n")
    assert await api.pool.fetchval("SELECT count(*) FROM pipelines") == before
