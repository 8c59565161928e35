"""What the subtasks of a job in this worker share of its checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from penstock.common.ids import JobId
from penstock.common.program import Program
from penstock.common.storage import Storage, open_storage
from penstock.worker.assignment import Checkpoints
from penstock.worker.reports import Reporter
from penstock.worker.restoring import RestorePoint


class JobCheckpoints:
    """The folder of a job's checkpoints, and the one that it goes on from, which is read once."""

    def __init__(
        self,
        job: JobId,
        program: Program,
        place: Checkpoints,
        reporter: Reporter,
        storage_options: Mapping[str, str],
    ) -> None:
        self._program = program
        self.job = job
        self.reporter = reporter
        self.storage: Storage = open_storage(place.url, storage_options)
        self._storage_options = storage_options
        self._place = place
        self._loading = asyncio.Lock()
        self._restored: RestorePoint | None = None

    async def restore_point(self) -> RestorePoint | None:
        """What the job goes on from; None at its beginning."""
        if not self._place.restore:
            return None
        async with self._loading:
            if self._restored is None:
                url = self._place.restore_url
                storage = open_storage(url, self._storage_options) if url else self.storage
                self._restored = await RestorePoint.load(storage, self._place.restore, self._program, is_own=not url)
        return self._restored
