"""How long a job is away when its worker is killed: from kill -9 to the first row that its successor commits.

A real cluster (every service a process of its own, one node with a warm standby) runs windows over a stream of 1,000
events a second into files, with a checkpoint every half second. Rows count when a reader of the files sees them.
`controller.healthy_after` is shorter here than the time between two kills: each is the first of a job that was well,
which is restarted at once. With the default of a minute the growing pause between restarts would be measured too, so
figures from before this setting are not comparable.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from local_job import run
from report import options, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "integration"))

from harness import Deployment

KILLS: Final = 5
SETTLED_SECONDS: Final = 10.0
"""Between two kills, so that there is a standby again."""
SETTINGS: Final = {"CONTROLLER__HEALTHY_AFTER": "5s"}
COLUMNS: Final = {"kill": "d", "seconds": ".2f"}
SQL: Final = """
SET checkpoint_interval = '500ms';
CREATE TABLE impulse WITH (connector = 'impulse', event_rate = '1000');
CREATE TABLE counts (k BIGINT, n BIGINT) WITH (connector = 'single_file', type = 'sink', path = '{file}');
INSERT INTO counts SELECT counter % 10, count(*) FROM impulse GROUP BY 1, tumble(INTERVAL '100 milliseconds');
"""


def size_of(file: Path) -> int:
    return file.stat().st_size


async def kill(cluster: Deployment, job: str, file: Path) -> float:
    """Kills the job's workers; returns the seconds until there is a new row."""
    killed = await cluster.kill_workers(job)
    started = time.perf_counter()
    assert killed, "there was no worker to kill"
    size = size_of(file)
    while size_of(file) <= size:  # noqa: ASYNC110 - other processes write the file
        await asyncio.sleep(0.01)
    return time.perf_counter() - started


async def main() -> None:
    arguments = options(__doc__)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.json"
        async with (
            Deployment.running(nodes=1, slots=2, settings=SETTINGS) as cluster,
            cluster.pipeline(SQL.format(file=file)) as pipeline,
        ):
            job = pipeline["job_id"]
            await cluster.until_state(job, "running")
            for number in range(1, (2 if arguments.quick else KILLS) + 1):
                await asyncio.sleep(SETTLED_SECONDS)
                rows.append({"kill": number, "seconds": await kill(cluster, job, file)})
    median = statistics.median(row["seconds"] for row in rows)
    show({"benchmark": "recovery", "rows": rows, "median_seconds": median}, COLUMNS, arguments.json)


if __name__ == "__main__":
    run(main())
