"""What others may lose, a running job does not notice."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from harness import Deployment

from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres

OUTAGE_SECONDS = 20.0 if os.environ.get("PENSTOCK_TEST_FULL") else 6.0

QUERY = """
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '2000');
CREATE TABLE nowhere (counter BIGINT) WITH (connector = 'blackhole', type = 'sink');
INSERT INTO nowhere SELECT counter FROM impulse;
"""

BOUNDED = "CREATE TABLE impulse WITH (connector = 'impulse', message_count = '10'); SELECT * FROM impulse"


@pytest.mark.timeout(400)
async def test_running_job_goes_on_without_nats_postgres_and_api_and_is_managed_again_after(
    cluster: Deployment,
) -> None:
    pipeline = await cluster.create(QUERY)
    job_id = pipeline["job_id"]
    before = await cluster.until_state(job_id, "running")
    await cluster.until_rows(job_id, 1000)

    os.kill(cluster.nats.pid, signal.SIGKILL)
    await cluster.nats.ended.wait()
    # Wake-ups are gone, polling is not: another pipeline still starts and ends.
    other = await cluster.create(BOUNDED)
    await cluster.until_state(other["job_id"], "finished")
    assert await cluster.advances(job_id)

    os.kill(cluster.postgres.pid, signal.SIGKILL)
    await cluster.postgres.ended.wait()
    answer = await cluster.client.get("/jobs")
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"]
    await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself
    cluster.postgres = await EmbeddedPostgres.start(cluster.folder / "postgres", {"fsync": "off"})
    cluster.nats = await EmbeddedNats.start(cluster.folder / "nats", cluster.nats.port)
    await cluster.until_state(job_id, "running")
    assert await cluster.advances(job_id)

    await cluster.processes["api"].kill()
    await cluster.start("api")
    await cluster.until_ready(2)
    after = await cluster.job(job_id)
    assert (after["state"], after["generation"]) == ("running", before["generation"])
    assert await cluster.advances(job_id)

    stopped = await cluster.client.patch(f"/pipelines/{pipeline['id']}", json={"stop": "graceful"})
    assert stopped.status_code == 200, stopped.text
    await cluster.until_state(job_id, "stopped")
    assert (await cluster.client.delete(f"/pipelines/{pipeline['id']}")).status_code == 204
