"""/udfs: Python functions that every query can call."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from penstock.api.context import InContext, Limit, StartingAfter, errors
from penstock.api.schemas import CreateUdf, Page, Severity, Udf, UdfValidation, ValidateUdf
from penstock.api.udf_store import NewUdf, signature_of
from penstock.common.ids import UdfId

router = APIRouter(prefix="/udfs", tags=["udfs"])


@router.post("", status_code=HTTPStatus.CREATED, responses=errors(400, 409))
async def create_udf(request: CreateUdf, context: InContext) -> Udf:
    """Build a Python function, for queries that are created from now on."""
    built = await context.compiler.build_udf(request.source, request.name)
    return await context.udfs.create(NewUdf(request.source, built), replace=request.replace)


@router.post("/validate", responses=errors(400))
async def validate_udf(request: ValidateUdf, context: InContext) -> UdfValidation:
    """Say what is wrong with a Python function, or how SQL would call it. Nothing is created."""
    built, diagnostics = await context.compiler.validate_udf(request.source, request.name)
    return UdfValidation(
        valid=not any(one.severity is Severity.ERROR for one in diagnostics),
        diagnostics=list(diagnostics),
        udf=None if built is None else signature_of(built),
    )


@router.get("", responses=errors(400))
async def list_udfs(context: InContext, starting_after: StartingAfter = None, limit: Limit = 20) -> Page[Udf]:
    """The newest first."""
    after = UdfId(starting_after) if starting_after else None
    found = await context.udfs.udfs(after=after, limit=limit + 1)
    return Page(data=found[:limit], has_more=len(found) > limit)


@router.get("/{udf_id}", responses=errors(400, 404))
async def get_udf(udf_id: str, context: InContext) -> Udf:
    """A Python function with its source."""
    return await context.udfs.udf(UdfId(udf_id))


@router.delete("/{udf_id}", status_code=HTTPStatus.NO_CONTENT, responses=errors(400, 404))
async def delete_udf(udf_id: str, context: InContext) -> None:
    """Delete a Python function. Pipelines that call it go on with the version that they have."""
    await context.udfs.delete(UdfId(udf_id))
