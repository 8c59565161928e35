"""Jobs whose workers die, that are stopped and resumed, and that are rescaled: all is committed exactly once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness import Deployment

from penstock.common.testing import eventually

pytestmark = pytest.mark.takes_turns

ROWS = 9000
SQL = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '600', message_count = '{rows}');
CREATE TABLE plain (counter BIGINT) WITH (connector = 'filesystem', type = 'sink', path = '{folder}/plain');
CREATE TABLE counts (k BIGINT, n BIGINT, least BIGINT)
WITH (connector = 'single_file', type = 'sink', path = '{folder}/counts.json');
INSERT INTO plain SELECT counter FROM impulse;
INSERT INTO counts SELECT counter % 7, count(*), min(counter) FROM impulse GROUP BY 1, tumble(INTERVAL '1 second');
"""


def lines(*files: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def committed(folder: Path) -> int:
    return len(lines(*sorted((folder / "plain").glob("part-*"))))


def check(folder: Path) -> None:
    """Every row is in the files once, and was counted once."""
    counters = Counter(row["counter"] for row in lines(*sorted((folder / "plain").glob("part-*"))))
    assert counters == Counter(range(ROWS))
    groups = lines(folder / "counts.json")
    assert sum(row["n"] for row in groups) == ROWS
    assert len({(row["k"], row["least"]) for row in groups}) == len(groups)


async def started(cluster: Deployment, folder: Path, parallelism: int) -> dict[str, Any]:
    (folder / "plain").mkdir()
    return await cluster.create(SQL.format(folder=folder, rows=ROWS), parallelism=parallelism)


async def test_workers_that_are_killed_lose_nothing_and_repeat_nothing(cluster: Deployment, tmp_path: Path) -> None:
    pipeline = await started(cluster, tmp_path, 1)
    job_id, chance = pipeline["job_id"], random.Random()
    kills = 0
    while kills < 3 and (await cluster.until_state(job_id, "running", "finished"))["state"] == "running":
        before = committed(tmp_path)

        async def has_grown(before: int = before) -> bool:
            return committed(tmp_path) > before or (await cluster.job(job_id))["state"] == "finished"

        await eventually(has_grown, 60)
        await asyncio.sleep(chance.random())
        generation = (await cluster.job(job_id))["generation"]
        if not await cluster.kill_workers(job_id):
            continue  # it has just ended
        kills += 1

        async def recovered(generation: int = generation) -> bool:
            job = await cluster.job(job_id)
            return bool(job["generation"] > generation or job["state"] == "finished")

        await eventually(recovered, 60)
    assert kills
    await cluster.until_state(job_id, "finished")
    check(tmp_path)


async def test_job_goes_on_where_it_was_stopped_and_at_another_parallelism(cluster: Deployment, tmp_path: Path) -> None:
    pipeline = await started(cluster, tmp_path, 1)
    job_id, path = pipeline["job_id"], f"/pipelines/{pipeline['id']}"
    await cluster.until_state(job_id, "running")
    await eventually(lambda: _grown(tmp_path, 0), 60)
    assert (await cluster.client.patch(path, json={"stop": "checkpoint"})).status_code == 200
    await cluster.until_state(job_id, "stopped")
    stopped_with = committed(tmp_path)
    assert 0 < stopped_with < ROWS
    assert (await cluster.client.patch(path, json={"stop": "none"})).status_code == 200
    await cluster.until_state(job_id, "running")
    await eventually(lambda: _grown(tmp_path, stopped_with), 60)
    assert (await cluster.client.patch(path, json={"parallelism": 2})).status_code == 200

    async def rescaled() -> bool:
        job = await cluster.job(job_id)
        return bool(job["parallelism"] == 2 and job["state"] in ("running", "finished"))

    await eventually(rescaled, 60)
    await cluster.until_state(job_id, "finished")
    check(tmp_path)


async def _grown(folder: Path, before: int) -> bool:
    return committed(folder) > before


GROWING = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '500', message_count = '3000');
CREATE TABLE counts (k BIGINT, n BIGINT{columns}) WITH (connector = 'single_file', type = 'sink', path = '{file}');
INSERT INTO counts SELECT counter % 5, count(*){values} FROM impulse {where} GROUP BY 1, tumble(INTERVAL '1 minute');
"""


async def test_changed_query_goes_on_from_a_savepoint_as_was_promised(cluster: Deployment, tmp_path: Path) -> None:
    """A minute's window is open when the savepoint is made: what it holds is counted by the changed query."""

    def growing(name: str, columns: str = "", values: str = "", where: str = "") -> str:
        return GROWING.format(file=tmp_path / name, columns=columns, values=values, where=where)

    async with cluster.pipeline(growing("first.json")) as pipeline:
        job_id = pipeline["job_id"]
        await cluster.until_state(job_id, "running")
        await eventually(lambda: _read(cluster, job_id, 1000), 60)
        made = await cluster.client.post(f"/jobs/{job_id}/savepoints", json={"name": "before"})
        assert made.status_code == 201, made.text

        async def is_ready() -> bool:
            found = (await cluster.client.get(f"/jobs/{job_id}/savepoints")).json()["data"]
            return any(one["state"] == "ready" for one in found)

        await eventually(is_ready, 60)
    savepoint = made.json()["id"]
    changed = growing("second.json", columns=", twice BIGINT", values=", 2 * count(*)", where="WHERE counter >= 0")
    promised = await cluster.client.post("/pipelines/validate", json={"query": changed, "from_savepoint": savepoint})
    assert promised.status_code == 200, promised.text
    state = promised.json()["state"]
    assert not state["incompatible"]
    assert {one["operator"].split("_")[0] for one in state["kept"]} == {"source", "tumble"}
    async with cluster.pipeline(changed, from_savepoint=savepoint) as pipeline:
        await cluster.until_state(pipeline["job_id"], "finished")
    rows = lines(tmp_path / "second.json")
    assert sum(row["n"] for row in rows) == 3000
    assert all(row["twice"] == 2 * row["n"] for row in rows)
    aggregated = growing("third.json", columns=", most BIGINT", values=", max(counter)")
    promised = await cluster.client.post("/pipelines/validate", json={"query": aggregated, "from_savepoint": savepoint})
    state = promised.json()["state"]
    assert {one["operator"].split("_")[0] for one in state["kept"]} == {"source"}
    async with cluster.pipeline(aggregated, from_savepoint=savepoint) as pipeline:
        await cluster.until_state(pipeline["job_id"], "finished")
    assert sum(row["n"] for row in lines(tmp_path / "third.json")) < 3000  # what the dropped window held is gone


async def _read(cluster: Deployment, job_id: str, rows: int) -> bool:
    nodes = (await cluster.client.get(f"/jobs/{job_id}/metrics")).json()["nodes"]
    return any(node["rows_in"] >= rows for node in nodes)
