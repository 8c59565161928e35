from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.client import Client, RequestRefused
from penstock.common.errors import PeerUnavailable
from penstock.common.proto import compiler_pb2
from penstock.common.proto.controller_pb2 import JobMetricsResponse, OutputData
from penstock.common.proto.jobs_pb2 import SubtaskMetrics


@pytest.fixture
def query(tmp_path: Path) -> str:
    file = tmp_path / "clicks.sql"
    file.write_text("SELECT 1\n")
    return str(file)


async def create(command: Any, query: str, *options: str) -> dict[str, Any]:
    created = await command("pipelines", "create", query, "--json", *options)
    assert created.code == 0, created.err
    answer: dict[str, Any] = json.loads(created.out)
    return answer


async def test_pipeline_is_created_shown_stopped_and_deleted(command: Any, query: str, api: Any) -> None:
    created = await create(command, query, "-p", "2", "--checkpoint-interval", "5s")
    assert (created["name"], created["parallelism"], created["checkpoint_interval"]) == ("clicks", 2, "5s")
    listed = await command("pipelines", "list")
    assert created["id"] in listed.out and created["job_id"] in listed.out
    shown = await command("pipelines", "show", created["id"])
    assert "SELECT 1" in shown.out and "events -> filter -> preview" in shown.out
    stopped = json.loads((await command("pipelines", "stop", created["id"], "--mode", "force", "--json")).out)
    assert stopped["stop"] == "force"
    restarted = json.loads((await command("pipelines", "restart", created["id"], "--force", "--json")).out)
    assert restarted["stop"] == "none"
    await api.pool.execute("INSERT INTO job_statuses (job_id, state) VALUES ($1, 'finished')", created["job_id"])
    await api.pool.execute("UPDATE job_statuses SET restart_nonce = 1")
    assert (await command("pipelines", "delete", created["id"])).code == 0
    assert created["id"] not in (await command("pipelines", "list")).out


async def test_restart_may_ignore_the_state(command: Any, query: str, api: Any) -> None:
    created = await create(command, query)
    assert (await command("pipelines", "restart", created["id"], "--ignore-state")).code == 0
    row = await api.pool.fetchrow("SELECT * FROM job_configs WHERE id = $1", created["job_id"])
    assert (row["restart_nonce"], row["ignore_state_nonce"], row["restart_mode"]) == (1, 1, "safe")


async def test_checkpoints_of_a_job_are_listed(command: Any, query: str, api: Any) -> None:
    job = (await create(command, query))["job_id"]
    await api.pool.execute(
        "INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at, finished_at, bytes, error) "
        "VALUES ($1, 7, 1, 'abandoned', true, '2026-01-01Z', '2026-01-01 00:00:02.5Z', 1572864, 'the disk is full')",
        job,
    )
    header, _, row = (await command("jobs", "checkpoints", job)).out.strip().splitlines()
    assert header.split()[:4] == ["epoch", "state", "started", "duration"]
    assert " ".join(row.split()) == "7 abandoned 2026-01-01 00:00:00 2.500 s 1.5 MiB yes the disk is full"
    listed = json.loads((await command("jobs", "checkpoints", job, "--json")).out)
    assert [(one["epoch"], one["bytes"]) for one in listed["data"]] == [(7, 1572864)]


async def test_spans_of_a_checkpoint_are_shown(command: Any, query: str, api: Any) -> None:
    job = (await create(command, query))["job_id"]
    times = {"alignment_started_at_us": 1_000_000, "started_at_us": 1_002_500, "frozen_at_us": 1_002_700}
    subtasks = [
        {
            "subtask": 0,
            **times,
            "finished_at_us": 3_002_700,
            "committed_at_us": 4_567_891,
            "operators": {"value_1": 2048},
        },
        {"subtask": 1, "started_at_us": 1_000_000, "frozen_at_us": 1_000_100},
    ]
    await api.pool.execute(
        "INSERT INTO checkpoints (job_id, epoch, generation, state, then_stop, started_at, details) "
        "VALUES ($1, 3, 1, 'ready', false, now(), $2)",
        job,
        json.dumps({"nodes": [{"node_id": "node_1", "subtasks": subtasks}]}),
    )
    header, _, *rows = (await command("jobs", "checkpoints", job, "3")).out.strip().splitlines()
    assert header.split() == [
        "operator",
        "description",
        "subtask",
        "aligned",
        "frozen",
        "written",
        "committed",
        "bytes",
    ]
    assert [" ".join(row.split()) for row in rows[2:4]] == [
        "value_1 filter 0 2.5 ms 0.2 ms 2,000.0 ms 00:00:04.567 2 KiB",
        "1 0.1 ms … 0 B",
    ]
    shown = json.loads((await command("jobs", "checkpoints", job, "3", "--json")).out)
    assert [one["bytes"] for one in shown["data"]] == [0, 2048, 0]
    with pytest.raises(RequestRefused, match="no checkpoint 4"):
        await command("jobs", "checkpoints", job, "4")


async def test_pipeline_is_rebalanced_and_may_fall_back(command: Any, query: str, api: Any) -> None:
    created = await create(command, query, "--allow-fallback")
    assert created["allow_fallback"]
    other = await create(command, query)
    restarted = json.loads((await command("pipelines", "restart", other["id"], "--json")).out)
    assert not restarted["allow_fallback"]
    restarted = json.loads((await command("pipelines", "restart", other["id"], "--allow-fallback", "--json")).out)
    assert restarted["allow_fallback"]
    assert other["id"] in (await command("pipelines", "rebalance", other["id"])).out
    nonce = await api.pool.fetchval("SELECT restart_nonce FROM job_configs WHERE id = $1", other["job_id"])
    assert nonce == 3


async def test_jobs_are_listed_shown_and_measured(command: Any, query: str, api: Any) -> None:
    created = await create(command, query)
    job = created["job_id"]
    await api.pool.execute(
        "INSERT INTO job_statuses (job_id, state, error_message, error_hint) VALUES ($1, 'failed', 'no', 'try')", job
    )
    await api.pool.execute(
        "INSERT INTO job_events (job_id, kind, generation, message) VALUES ($1, 'error', 1, 'bad line')", job
    )
    assert job in (await command("jobs", "list")).out
    shown = await command("jobs", "show", job)
    assert "failed" in shown.out and "no" in shown.out and "try" in shown.out
    assert "bad line" in (await command("jobs", "errors", job)).out
    api.controller.metrics = JobMetricsResponse(subtasks=[SubtaskMetrics(node_id="node_1", rows_in=1234567)])
    assert "1,234,567" in (await command("jobs", "metrics", job)).out
    assert json.loads((await command("jobs", "metrics", job, "--json")).out)["nodes"][0]["rows_in"] == 1234567


async def test_output_is_printed_as_it_was_written(command: Any, query: str, api: Any) -> None:
    job = (await create(command, query))["job_id"]
    lines = ['{"a":1.10,"b":[1, 2],"c":12345678901234567890.123456789}', '{"a":"],\\"rows\\":[","é":null}']
    api.controller.output.put_nowait(OutputData(table='a "rows":[', lines="\n".join(lines).encode() + b"\n"))
    api.controller.output.put_nowait(OutputData(table="t", lines=b"{}\n"))
    api.controller.output.put_nowait(None)
    printed = await command("jobs", "output", job)
    assert printed.out.splitlines() == [*lines, "{}"]


async def test_refused_query_is_shown_with_its_place(command: Any, query: str, api: Any) -> None:
    api.compiler.diagnostics = [
        compiler_pb2.Diagnostic(
            severity=compiler_pb2.SEVERITY_ERROR,
            code="unknown_column",
            message="unknown column x",
            hint="did you mean y?",
            span=compiler_pb2.Span(line=1, column=8, end_line=1, end_column=8),
        )
    ]
    try:
        refused = await command("pipelines", "create", query)
    finally:
        api.compiler.diagnostics = []
    assert refused.code == 1
    assert f"{query}:1:8" in refused.err and "^" in refused.err and "did you mean y?" in refused.err


async def test_query_is_read_from_standard_input(command: Any) -> None:
    created = await command("pipelines", "create", "-", "--json", stdin="SELECT 2")
    assert json.loads(created.out)["query"] == "SELECT 2"


async def test_client_raises_what_the_api_answers(api: Any) -> None:
    async with Client(api.url, "abc") as client:
        with pytest.raises(RequestRefused, match="not a pipeline id") as raised:
            await client.pipeline("pl_1")
        assert raised.value.code == "invalid_id"
    async with Client(api.url, "wrong") as client:
        with pytest.raises(RequestRefused, match="token"):
            await client.pipelines(1)
    async with Client("http://127.0.0.1:1") as client:
        with pytest.raises(PeerUnavailable, match="cannot reach the api"):
            await client.jobs(1)


async def test_wrong_options_are_usage_errors(command: Any, query: str) -> None:
    for arguments in (
        ["pipelines", "create", query, "-p", "0"],
        ["pipelines", "create", query, "--checkpoint-interval", "soon"],
        ["pipelines", "stop", "x", "--mode", "gently"],
        ["nothing"],
    ):
        assert (await command(*arguments)).code == 2, arguments
