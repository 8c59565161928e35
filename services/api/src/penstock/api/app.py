"""The web application: routes, errors, guard and the OpenAPI document."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute
from opentelemetry.trace import Tracer

from penstock.api import http_errors
from penstock.api.context import Context
from penstock.api.guard import PREFIX, Guard
from penstock.api.observation import Observe, RequestMetrics
from penstock.api.routes import checkpoints, cluster, jobs, pipelines, savepoints, udfs

_DESCRIPTION = """\
Streaming SQL on Spark. A pipeline is a query that is to run; its job is what runs.

Collections are `{data, has_more}`: go on with `starting_after` set to the id of the last item. Errors are
`{error: {code, message, hint?, spans?}}`. Where the api has a token, send it as `authorization: Bearer …`.
"""
_TAGS = [
    {"name": "pipelines", "description": "Queries that are to run."},
    {"name": "jobs", "description": "What became of them: state, errors, figures, rows."},
    {"name": "checkpoints", "description": "What a job has saved of its state."},
    {
        "name": "savepoints",
        "description": "State of jobs that is kept, for pipelines to begin with.",
    },
    {"name": "udfs", "description": "Python functions that every query can call."},
    {"name": "cluster", "description": "What the cluster has."},
]


def create_app(context: Context, tracer: Tracer, metrics: RequestMetrics) -> FastAPI:
    """The application over the parts of a running api."""
    app = FastAPI(
        title="Penstock",
        version=version("penstock-api"),
        description=_DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        openapi_tags=_TAGS,
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    app.state.context = context
    for resource in (pipelines, jobs, checkpoints, savepoints, udfs, cluster):
        app.include_router(resource.router, prefix=PREFIX)
    http_errors.install(app)
    app.add_middleware(Guard, token=context.settings.token, max_body=context.settings.max_body)
    app.add_middleware(Observe, tracer=tracer, metrics=metrics)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name
