from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from penstock.common.ids import JobId, WorkerId
from penstock.common.proto.controller_pb2 import JobMetricsResponse, OutputData
from penstock.common.proto.jobs_pb2 import Latency, SubtaskMetrics
from penstock.common.testing import eventually


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    """Name and data of each event, as a browser reads them."""
    name = "message"
    async for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)
            name = "message"


async def add_event(api: Any, job: object, kind: str, **columns: object) -> int:
    names = ["job_id", "kind", "generation", *columns]
    values = ", ".join(f"${n}" for n in range(1, len(names) + 1))
    sql = f"INSERT INTO job_events ({', '.join(names)}) VALUES ({values}) RETURNING id"
    return int(await api.pool.fetchval(sql, job, kind, 1, *columns.values()))


async def test_job_without_a_status_is_created(api: Any) -> None:
    created = await api.create(name="clicks")
    job = (await api.client.get(f"/jobs/{created['job_id']}")).json()
    assert (job["state"], job["generation"], job["pipeline_name"], job["workers"]) == ("created", 0, "clicks", [])
    page = (await api.client.get("/jobs")).json()
    assert [item["id"] for item in page["data"]] == [created["job_id"]]


async def test_failed_job_tells_why_and_where_it_ran(api: Any) -> None:
    created = await api.create()
    await api.set_state(
        created["job_id"], "failed", generation=2, error_message="no", error_hint="try", error_domain="user", tasks=3
    )
    for generation in (1, 2):
        await api.pool.execute(
            "INSERT INTO workers (id, rpc_address, job_id, generation, tasks) VALUES ($1, 'a:1', $2, $3, 3)",
            WorkerId.new(),
            created["job_id"],
            generation,
        )
    job = (await api.client.get(f"/jobs/{created['job_id']}")).json()
    assert job["error"] == {"message": "no", "hint": "try", "domain": "user"}
    assert [(worker["generation"], worker["tasks"]) for worker in job["workers"]] == [(2, 3)]
    assert len((await api.client.get("/workers")).json()["data"]) == 2


async def test_errors_are_the_problems_of_the_job_newest_first(api: Any) -> None:
    job = (await api.create())["job_id"]
    await add_event(api, job, "state", from_state="created", to_state="compiling")
    first = await add_event(api, job, "warning", message="late rows")
    second = await add_event(api, job, "error", message="no", domain="external", node_key="n", subtask=1)
    errors = (await api.client.get(f"/jobs/{job}/errors")).json()
    assert [item["id"] for item in errors["data"]] == [second, first]
    assert (errors["data"][0]["node"], errors["data"][0]["subtask"]) == ("n", 1)
    page = (await api.client.get(f"/jobs/{job}/errors", params={"limit": 1})).json()
    assert page["has_more"]
    rest = (await api.client.get(f"/jobs/{job}/errors", params={"starting_after": second})).json()
    assert [item["id"] for item in rest["data"]] == [first]
    assert len((await api.client.get(f"/jobs/{job}/events")).json()["data"]) == 3


async def test_events_are_followed_and_resumed(api: Any) -> None:
    job = (await api.create())["job_id"]
    first = await add_event(api, job, "state", from_state="created", to_state="compiling")
    headers = {"accept": "text/event-stream"}
    async with api.client.stream("GET", f"/jobs/{job}/events", headers=headers) as response:
        events = events_of(response.aiter_lines())
        assert (await anext(events))[1]["id"] == first
        # Long enough that the api has looked in vain meanwhile: nobody tells it of this one.
        await api.pool.execute("SELECT pg_sleep(1.5)")
        second = await add_event(api, job, "error", message="no")
        name, event = await anext(events)
        assert (name, event["id"], event["message"]) == ("error", second, "no")
    headers["last-event-id"] = str(first)
    async with api.client.stream("GET", f"/jobs/{job}/events", headers=headers) as response:
        assert (await anext(events_of(response.aiter_lines())))[1]["id"] == second


async def test_metrics_are_summed_over_the_subtasks_of_a_node(api: Any) -> None:
    job = (await api.create())["job_id"]
    none = -(2**63)
    api.controller.metrics = JobMetricsResponse(
        generation=4,
        subtasks=[
            SubtaskMetrics(
                node_id="node_1",
                subtask=subtask,
                rows_in=10 + subtask,
                backpressure=subtask / 2,
                watermark_us=watermark,
                watermark_lag_seconds=None if watermark == none else 2.5,
                late_rows=3,
                state_rows=5,
                state_bytes=80,
                latency=Latency(bounds_ms=[1.0, 10.0], counts=[1, 2, subtask]),
            )
            for subtask, watermark in ((1, none), (0, 1_000_000))
        ],
    )
    metrics = (await api.client.get(f"/jobs/{job}/metrics")).json()
    (node,) = metrics["nodes"]
    assert (metrics["generation"], node["node"], node["rows_in"], node["backpressure"]) == (4, "node_1", 21, 0.5)
    assert (node["watermark"], node["is_source"], node["is_sink"]) == (None, True, True)
    assert (node["watermark_lag_seconds"], node["late_rows"]) == (2.5, 6)
    assert (node["state_rows"], node["state_bytes"]) == (10, 160)
    assert node["subtasks"][1]["watermark_lag_seconds"] is None
    assert node["latency"] == {"bounds_ms": [1.0, 10.0], "counts": [2, 4, 1]}
    assert [(one["subtask"], one["rows_in"], one["watermark"]) for one in node["subtasks"]] == [
        (0, 10, "1970-01-01T00:00:01Z"),
        (1, 11, None),
    ]


async def test_metrics_of_a_job_that_the_controller_does_not_run_are_not_found(api: Any) -> None:
    job = (await api.create())["job_id"]
    assert (await api.client.get(f"/jobs/{job}/metrics")).status_code == 404
    assert (await api.client.get(f"/jobs/{JobId.new()}/metrics")).status_code == 404


async def test_output_streams_rows_as_they_come_and_tells_the_end(api: Any) -> None:
    job = (await api.create())["job_id"]
    async with api.client.stream("GET", f"/jobs/{job}/output") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_of(response.aiter_lines())
        api.controller.output.put_nowait(OutputData(table='a "b"', subtask=1, rows=2, lines=b'{"x":1}\n{"x":"\\n"}\n'))
        assert await anext(events) == ("message", {"table": 'a "b"', "subtask": 1, "rows": [{"x": 1}, {"x": "\n"}]})
        api.controller.output.put_nowait(None)
        assert await anext(events) == ("end", {})
        assert [event async for event in events] == []


async def test_leaving_the_output_ends_the_call_to_the_controller(api: Any) -> None:
    job = (await api.create())["job_id"]
    await api.set_state(job, "running")
    async with api.client.stream("GET", f"/jobs/{job}/output") as response:
        api.controller.output.put_nowait(OutputData(table="t", lines=b"{}\n"))
        await anext(events_of(response.aiter_lines()))
        assert api.controller.left == 0

    async def was_left() -> bool:
        return bool(api.controller.left == 1)

    await eventually(was_left)


async def test_output_of_an_unreachable_controller_is_an_error_event(api: Any) -> None:
    job = (await api.create())["job_id"]
    await api.set_state(job, "running")
    await api.controller_server.close(0)
    async with api.client.stream("GET", f"/jobs/{job}/output") as response:
        name, data = await anext(events_of(response.aiter_lines()))
    assert (name, data["error"]["code"]) == ("error", "peer_unavailable")


async def test_output_of_an_unknown_job_is_not_found(api: Any) -> None:
    response = await api.client.get(f"/jobs/{JobId.new()}/output")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
