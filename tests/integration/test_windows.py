"""Windows in event time from end to end: results, late rows, silent partitions, ends of streams, memory."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest
from harness import PENSTOCK, Deployment, plain_environment
from test_backpressure import worker_processes

from penstock.common.testing import eventually

pytestmark = pytest.mark.takes_turns

FULL: Final = bool(os.environ.get("PENSTOCK_TEST_FULL"))
SOAK_ROWS: Final = 100_000_000 if FULL else 6_000_000
SOAKED: Final = 0.9
FLAT_BYTES: Final = 100 << 20

# With a watermark of 5 seconds the second row of minute 0 is on time, and the two after the jump are late.
CLICKS: Final = [
    ("ann", "10:00:10"),
    ("bob", "10:00:50"),
    ("ann", "10:00:20"),
    ("ann", "10:01:04"),
    ("bob", "10:00:59"),
    ("bob", "10:02:30"),
    ("ann", "10:00:30"),
    ("bob", "10:01:59"),
    ("ann", "10:02:40"),
]
COUNTS: Final = {
    ("ann", "10:00:00"): 2,
    ("bob", "10:00:00"): 2,
    ("ann", "10:01:00"): 1,
    ("ann", "10:02:00"): 1,
    ("bob", "10:02:00"): 1,
}
COUNT: Final = """
SELECT name, window.start AS began, n FROM (
  SELECT name, tumble(INTERVAL '1 minute') AS window, count(*) AS n FROM clicks GROUP BY name, window
)
"""


def clicks_table(folder: Path, options: str = "") -> str:
    lines = [json.dumps({"name": name, "at": f"2026-03-01T{at}"}) for name, at in CLICKS]
    (folder / "clicks.json").write_text("\n".join(lines) + "\n")
    return f"""
    CREATE TABLE clicks (name TEXT, at TIMESTAMP NOT NULL, WATERMARK FOR at AS at - INTERVAL '5 seconds')
    WITH (connector = 'single_file', path = '{folder}/clicks.json', type = 'source'{options});
    """


def counts(rows: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    found = {(row["name"], row["began"][11:19]): row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


async def run(sql: str, *options: str) -> tuple[list[dict[str, Any]], str]:
    """The rows that `penstock run` prints, and what else it says."""
    process = await asyncio.create_subprocess_exec(
        str(PENSTOCK), "run", *options, "-", env=plain_environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(sql.encode())
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()], err.decode()


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_run_prints_windows_and_says_how_many_late_rows_were_dropped(tmp_path: Path) -> None:
    rows, said = await run(clicks_table(tmp_path) + COUNT)
    assert counts(rows) == COUNTS
    assert "2 late rows were dropped" in said


async def test_late_rows_are_delivered_where_they_are_asked_for(tmp_path: Path) -> None:
    letters = f"CREATE TABLE late WITH (connector = 'single_file', path = '{tmp_path}/late.json', type = 'sink');"
    table = clicks_table(tmp_path, ", late = 'dead_letter', dead_letter = 'late'")
    rows, _ = await run(table + letters + COUNT)
    assert counts(rows) == COUNTS
    found = read_lines(tmp_path / "late.json")
    assert sorted(json.loads(letter["payload"])["at"][11:19] for letter in found) == ["10:00:30", "10:01:59"]
    assert all(letter["source"] == "clicks" and letter["reason"].startswith("late") for letter in found)


async def test_bounded_stream_emits_all_its_windows(tmp_path: Path) -> None:
    """10,000 rows, one every 100 ms, so that any window but those at the ends has ten times its seconds."""
    sinks = "".join(
        f"CREATE TABLE {name} WITH (connector = 'single_file', path = '{tmp_path}/{name}.json', type = 'sink');"
        for name in ("tumbling", "hopping", "sessions")
    )
    await run(
        """
        CREATE TABLE ticks WITH (connector = 'impulse', message_count = '10000', event_time_interval = '100ms',
                                 start_time = '2026-03-01T10:00:00Z');
        """
        + sinks
        + """
        INSERT INTO tumbling SELECT counter % 7 AS k, tumble(INTERVAL '1 minute') AS span, count(*) AS n
        FROM ticks GROUP BY k, span;
        INSERT INTO hopping SELECT hop(INTERVAL '20 seconds', INTERVAL '1 minute') AS span, count(*) AS n
        FROM ticks GROUP BY span;
        INSERT INTO sessions SELECT counter / 1000 AS k, session(INTERVAL '30 seconds') AS span, count(*) AS n
        FROM ticks GROUP BY k, span;
        """,
        "-p",
        "2",
    )
    tumbling = read_lines(tmp_path / "tumbling.json")
    assert len(tumbling) == 17 * 7
    assert sum(row["n"] for row in tumbling) == 10_000
    hopping = sorted(read_lines(tmp_path / "hopping.json"), key=lambda row: row["span"]["start"])
    assert [row["n"] for row in hopping] == [200, 400, *[600] * 48, 400, 200]
    assert sorted((row["k"], row["n"]) for row in read_lines(tmp_path / "sessions.json")) == [
        (k, 1000) for k in range(10)
    ]


SHUFFLED: Final = """
CREATE TABLE nexmark WITH (connector = 'nexmark', event_rate = '2000', out_of_order = '10000');
CREATE TABLE nothing (n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT n FROM (
  SELECT bid.auction % 10 AS k, tumble(INTERVAL '1 second') AS span, count(*) AS n FROM nexmark GROUP BY k, span
);
"""


async def test_metrics_and_graph_show_windows_late_rows_and_the_watermark(cluster: Deployment) -> None:
    """Events are shuffled among those of 5 seconds, of which a watermark of one leaves many late."""
    async with cluster.pipeline(SHUFFLED, parallelism=2) as pipeline:
        job_id = pipeline["job_id"]
        await cluster.until_state(job_id, "running")
        kinds = {node["id"]: [one["kind"] for one in node["operators"]] for node in pipeline["graph"]["nodes"]}
        (windows,) = (node for node, found in kinds.items() if "tumbling_window" in found)
        (source,) = (node for node, found in kinds.items() if "source" in found)
        (edge,) = pipeline["graph"]["edges"]
        assert (edge["source"], edge["target"], edge["kind"]) == (source, windows, "shuffle")
        assert edge["keys"]

        async def all_shown() -> bool:
            nodes = {node["node"]: node for node in await figures(cluster, job_id)}
            shown = (
                nodes[source]["late_rows"],
                *(nodes[windows][key] for key in ("state_rows", "state_bytes", "rows_out")),
            )
            # A lag is that of the subtasks that have a watermark, a node's watermark needs all of them to have one.
            times = [node[key] for node in nodes.values() for key in ("watermark", "watermark_lag_seconds")]
            return min(shown) > 0 and None not in times

        await eventually(all_shown, 60)
        before = await watermark(cluster, job_id)

        async def advanced() -> bool:
            return await watermark(cluster, job_id) > before

        await eventually(advanced, 60)


async def watermark(cluster: Deployment, job_id: str) -> datetime:
    return min(datetime.fromisoformat(node["watermark"]) for node in await figures(cluster, job_id))


SILENT: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '1000', idle_time = '1 second');
CREATE TABLE silent WITH (connector = 'impulse', event_rate = '0.001', idle_time = '1 second');
SELECT tumble(INTERVAL '100 milliseconds') AS span, count(*) AS n
FROM (SELECT counter FROM ticks UNION ALL SELECT counter FROM silent) GROUP BY span;
"""


async def test_silent_source_does_not_stall_windows_beyond_its_idle_time(cluster: Deployment) -> None:
    """One gives a row every 1,000 seconds, and one of its two subtasks none before that."""
    async with cluster.pipeline(SILENT, parallelism=2) as pipeline:
        await cluster.until_state(pipeline["job_id"], "running")
        rows = await cluster.output(pipeline["job_id"], 30)
        assert len(rows) >= 30
        assert max(Counter(row["span"]["start"] for row in rows).values()) == 1


SOAK: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', message_count = '{rows}', event_time_interval = '0.6ms',
                         start_time = '2026-03-01T10:00:00Z');
CREATE TABLE nothing (k BIGINT, n BIGINT) WITH (connector = 'blackhole');
INSERT INTO nothing SELECT k, n FROM (
  SELECT counter % 10000 AS k, tumble(INTERVAL '1 minute') AS span, count(*) AS n FROM ticks GROUP BY k, span
);
"""


@pytest.mark.timeout(3600 if FULL else 300)
async def test_many_windows_leave_memory_flat(cluster: Deployment) -> None:
    """A window of 10,000 keys for every 100,000 rows; what is resident is looked at from the first third on."""
    async with cluster.pipeline(SOAK.format(rows=SOAK_ROWS), parallelism=2) as pipeline:
        job_id = pipeline["job_id"]
        job = await cluster.until_state(job_id, "running")
        workers = worker_processes(cluster, [worker["id"] for worker in job["workers"]])
        samples: list[tuple[float, int]] = []

        async def nearly_done() -> bool:
            read: float = (
                sum(node["rows_in"] for node in await figures(cluster, job_id) if node["is_source"]) / SOAK_ROWS
            )
            if read < SOAKED:  # else the workers may be gone
                samples.append((read, sum(worker.memory_info().rss for worker in workers)))
            return read >= SOAKED

        await eventually(nearly_done, 3000 if FULL else 200)
        await cluster.until_state(job_id, "finished", within_seconds=120)
        (windows,) = (node for node in await figures(cluster, job_id) if node["is_sink"])
        assert windows["rows_out"] == SOAK_ROWS // 10
    warm = [resident for read, resident in samples if 1 / 3 <= read < SOAKED]
    half = len(warm) // 2
    assert median(warm[half:]) - median(warm[:half]) < FLAT_BYTES


async def figures(cluster: Deployment, job_id: str) -> list[dict[str, Any]]:
    """The metrics of a job's nodes."""
    answer = await cluster.client.get(f"/jobs/{job_id}/metrics")
    assert answer.status_code == 200, answer.text
    nodes: list[dict[str, Any]] = answer.json()["nodes"]
    return nodes
