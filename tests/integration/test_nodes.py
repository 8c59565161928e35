"""Jobs over several nodes."""

from __future__ import annotations

from harness import Deployment

from penstock.common.testing import eventually

UNBOUNDED = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '1000');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM impulse WHERE counter % 2 = 0;
"""


async def test_forward_pipeline_runs_on_both_nodes_and_survives_the_loss_of_one_worker() -> None:
    async with Deployment.running(nodes=2, slots=2) as cluster:
        pipeline = await cluster.create(UNBOUNDED, parallelism=4)
        job = await cluster.until_state(pipeline["job_id"], "running")
        workers = job["workers"]
        assert len({worker["node_id"] for worker in workers}) == 2
        assert sorted(worker["tasks"] for worker in workers) == [2, 2]
        await cluster.until_rows(pipeline["job_id"], 1000)
        metrics = (await cluster.client.get(f"/jobs/{pipeline['job_id']}/metrics")).json()
        assert {subtask["subtask"] for node in metrics["nodes"] for subtask in node["subtasks"]} == {0, 1, 2, 3}

        await cluster.processes["node2"].kill()
        await cluster.start_node("node3", slots=2)

        async def recovered() -> bool:
            job = await cluster.job(pipeline["job_id"])
            return bool(job["state"] == "running" and job["generation"] > 1)

        await eventually(recovered, 60)


async def test_job_waits_for_slots_and_goes_on_when_a_node_joins() -> None:
    async with Deployment.running(nodes=1, slots=1) as cluster:
        pipeline = await cluster.create(UNBOUNDED, parallelism=2)

        async def says_why() -> bool:
            events = (await cluster.client.get(f"/jobs/{pipeline['job_id']}/events")).json()["data"]
            return any("slot" in (event["message"] or "") for event in events)

        await eventually(says_why, 20)
        assert (await cluster.job(pipeline["job_id"]))["state"] == "scheduling"
        await cluster.start_node("node2", slots=1)
        await cluster.until_state(pipeline["job_id"], "running")
