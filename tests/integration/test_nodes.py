"""Jobs over several nodes."""

from __future__ import annotations

from harness import Deployment

from penstock.common.testing import eventually

UNBOUNDED = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '1000');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM impulse WHERE counter % 2 = 0;
"""


async def test_forward_pipeline_runs_on_both_nodes_and_goes_on_when_one_is_lost(cluster: Deployment) -> None:
    async with cluster.pipeline(UNBOUNDED, parallelism=4) as pipeline:
        job_id = pipeline["job_id"]
        job = await cluster.until_state(job_id, "running")
        assert len({worker["node_id"] for worker in job["workers"]}) == 2
        assert sorted(worker["tasks"] for worker in job["workers"]) == [2, 2]
        await cluster.until_rows(job_id, 1000)
        metrics = (await cluster.client.get(f"/jobs/{job_id}/metrics")).json()
        assert {subtask["subtask"] for node in metrics["nodes"] for subtask in node["subtasks"]} == {0, 1, 2, 3}

        await cluster.processes.pop("node2").kill()
        await cluster.start_node("node2")

        async def recovered() -> bool:
            found = await cluster.job(job_id)
            return bool(found["state"] == "running" and found["generation"] > job["generation"])

        await eventually(recovered, 120)
        await cluster.until_rows(job_id, 1000)


async def test_job_waits_for_slots_and_goes_on_when_a_node_joins(cluster: Deployment) -> None:
    async with cluster.pipeline(UNBOUNDED, parallelism=6) as pipeline:
        job_id = pipeline["job_id"]

        async def says_why() -> bool:
            events = (await cluster.client.get(f"/jobs/{job_id}/events")).json()["data"]
            return any("slot" in (event["message"] or "") for event in events)

        await eventually(says_why, 30)
        assert (await cluster.job(job_id))["state"] == "scheduling"
        extra = await cluster.start_node("node3")
        await cluster.until_state(job_id, "running", within_seconds=120)
    await extra.stop()
    del cluster.processes["node3"]
