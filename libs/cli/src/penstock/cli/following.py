"""A query from its submission to its end: its rows, its progress, and how it ended."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Final

import grpc.aio

from penstock.api.schemas import CreatePipeline, Job, PipelineSummary, UpdatePipeline
from penstock.cli import terminal
from penstock.cli.client import Client, RequestRefused, diagnostic_of
from penstock.cli.cluster import Cluster
from penstock.cli.interrupts import Interrupts
from penstock.cli.progress import Display, Meter, Totals
from penstock.cli.queries import RunRequest
from penstock.common.diagnostics import Diagnostic, render_diagnostic
from penstock.common.jobs import JobState, StopMode
from penstock.common.proto.controller_pb2 import SubscribeToOutputRequest
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.rpc import connect, remote_error

_LOOK_SECONDS: Final = 0.25  # between two looks at the job's state
_LOOKS_A_MEASURE: Final = 4  # workers tell their figures about once a second


class Follower:
    """Runs one query."""

    def __init__(
        self, cluster: Cluster, request: RunRequest, display: Display, meter: Meter, interrupts: Interrupts
    ) -> None:
        self._cluster = cluster
        self._request = request
        self._display = display
        self._meter = meter
        self._interrupts = interrupts
        self._stop: asyncio.Future[StopMode] = asyncio.get_running_loop().create_future()
        self._nobody_reads = False
        self._stopped_generation: int | None = None
        """Of a job that is taken up again: until the controller sees to it, it is as it was."""
        self._problems_seen = 0

    async def run(self) -> int:
        """The exit code, once all has ended."""
        async with Client(self._cluster.url, self._cluster.token) as client:
            try:
                pipeline = await self._submit(client)
            except RequestRefused as refusal:
                if not refusal.diagnostics:
                    raise
                self._show_diagnostics(refusal.diagnostics)
                return terminal.FAILED
            with self._interrupts.gently(self._ask_to_stop):
                job = await self._follow(client, pipeline)
        return self._conclude(job)

    async def _submit(self, client: Client) -> PipelineSummary:
        """Create the pipeline, or take up the one that an earlier run left in the state folder."""
        request = self._request
        found = None if request.state_dir is None else await self._clear(client)
        if found is not None:
            self._display.note(f"resuming {found.id}")
            if found.state is JobState.STOPPED:
                self._stopped_generation = (await client.job(found.job_id)).generation
            update = UpdatePipeline(stop=StopMode.NONE, parallelism=request.parallelism)
            return await client.update_pipeline(found.id, update)
        self._display.update("compiling")
        create = CreatePipeline(name=request.name, query=request.query.sql, parallelism=request.parallelism)
        pipeline = await client.create_pipeline(create)
        self._show_diagnostics(map(diagnostic_of, pipeline.warnings))
        return pipeline

    async def _clear(self, client: Client) -> PipelineSummary | None:
        """Stop what else is in the state folder; the same query that has not come to its end is returned."""
        found: PipelineSummary | None = None
        for pipeline in (await client.pipelines(limit=100)).data:
            same = (pipeline.name, pipeline.query) == (self._request.name, self._request.query.sql)
            if same and found is None and pipeline.state not in {JobState.FINISHED, JobState.FAILED}:
                found = pipeline
            elif not pipeline.state.is_terminal:
                await client.update_pipeline(pipeline.id, UpdatePipeline(stop=StopMode.IMMEDIATE))
        return found

    async def _follow(self, client: Client, pipeline: PipelineSummary) -> Job:
        services = asyncio.create_task(self._cluster.hosted.ended(), name="services")
        stopping = asyncio.create_task(self._stop_when_asked(client, pipeline.id), name="stopping")
        rows = asyncio.create_task(self._show_rows(pipeline.job_id), name="rows")
        watching = asyncio.create_task(self._watch(client, pipeline.job_id), name="watching")
        tasks = (services, stopping, rows, watching)
        try:
            waiting = {services, rows, watching}
            while watching in waiting or rows in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if services in done:
                    raise services.result()
                for task in done:
                    task.result()
            return watching.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _show_rows(self, job_id: str) -> None:
        """The rows as they were written, from the controller itself."""
        async with connect(self._cluster.controller, self._cluster.rpc) as channel:
            call = ControllerServiceStub(channel).SubscribeToOutput(SubscribeToOutputRequest(job_id=job_id))
            try:
                async for data in call:
                    if data.lines:
                        self._meter.note_row()
                        await self._display.rows(data.lines)
            except BrokenPipeError:
                self._nobody_reads = True
                self._ask_to_stop(StopMode.IMMEDIATE)
            except grpc.aio.AioRpcError as error:
                raise remote_error(error) from error
            finally:
                call.cancel()

    async def _watch(self, client: Client, job_id: str) -> Job:
        """Look at the job until it has ended."""
        for look in itertools.count():
            job = await client.job(job_id)
            has_ended = job.state.is_terminal and not self._is_as_it_was(job)
            if has_ended or look % _LOOKS_A_MEASURE == 0:
                self._meter.measure(Totals.of(await client.job_metrics(job_id)), last=has_ended)
                await self._show_problems(client, job)
            if has_ended:
                return job
            self._display.update(self._meter.line(job.state))
            await asyncio.sleep(_LOOK_SECONDS)
        raise AssertionError("counting does not end")

    def _is_as_it_was(self, job: Job) -> bool:
        return job.state is JobState.STOPPED and job.generation == self._stopped_generation

    async def _show_problems(self, client: Client, job: Job) -> None:
        """What did not end the job."""
        problems = (await client.job_errors(job.id, limit=20)).data
        for problem in reversed(problems):
            # What failed it is told at the end.
            if problem.id > self._problems_seen and problem.message != (job.error and job.error.message):
                self._problems_seen = problem.id
                hint = f" (hint: {problem.hint})" if problem.hint else ""
                self._display.note(f"{problem.kind}: {problem.message}{hint}")

    def _show_diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        query = self._request.query
        for diagnostic in diagnostics:
            self._display.note(render_diagnostic(diagnostic, query.sql, query.source))

    def _ask_to_stop(self, mode: StopMode | None = None) -> None:
        """Where all is kept, the job goes on with the next run; else what is on its way arrives."""
        kept = self._request.state_dir is not None
        if not self._stop.done():
            self._stop.set_result(mode or (StopMode.CHECKPOINT if kept else StopMode.GRACEFUL))

    async def _stop_when_asked(self, client: Client, pipeline_id: str) -> None:
        mode = await self._stop
        self._display.note("stopping; Ctrl-C again to end at once" if not self._nobody_reads else "stopping")
        await client.update_pipeline(pipeline_id, UpdatePipeline(stop=mode))

    def _conclude(self, job: Job) -> int:
        if job.state is JobState.FAILED:
            error = job.error
            self._display.note(f"error: {error.message if error else 'the job failed'}")
            if error and error.hint:
                self._display.note(f"  hint: {error.hint}")
        self._display.note(self._meter.summary(job.state))
        if job.state is JobState.FAILED:
            return terminal.FAILED
        return terminal.INTERRUPTED if self._interrupts.interrupted else terminal.OK
