"""Python functions over REST: built by the compiler, kept for queries, and passed on with them."""

from __future__ import annotations

from typing import Any

from penstock.common.program_proto import function_from_proto
from penstock.common.proto import compiler_pb2 as compiler

SOURCE = "def doubled(value: int) -> int:\n    return value * 2\n"


async def create(api: Any, **fields: object) -> dict[str, object]:
    response = await api.client.post("/udfs", json={"source": SOURCE, **fields})
    assert response.status_code == 201, response.text
    created: dict[str, object] = response.json()
    return created


async def test_function_is_built_and_kept(api: Any) -> None:
    created = await create(api)
    assert (created["name"], created["kind"], created["returns"]) == ("doubled", "scalar", "int64")
    assert created["parameters"] == [{"name": "value", "type": "int64", "nullable": False}]
    found = await api.client.get(f"/udfs/{created['id']}")
    assert found.json() == created
    listed = (await api.client.get("/udfs")).json()
    assert listed == {"data": [created], "has_more": False}
    assert not api.compiler.builds[0].validate_only


async def test_function_of_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(api: Any) -> None:
    first = await create(api)
    again = await api.client.post("/udfs", json={"source": f"{SOURCE}# 2"})
    assert again.status_code == 409 and again.json()["error"]["code"] == "conflict"
    replaced = await create(api, source=f"{SOURCE}# 2", replace=True)
    assert replaced["id"] == first["id"] and replaced["hash"] != first["hash"]
    assert len((await api.client.get("/udfs")).json()["data"]) == 1


async def test_deleted_function_is_gone(api: Any) -> None:
    created = await create(api)
    assert (await api.client.delete(f"/udfs/{created['id']}")).status_code == 204
    assert (await api.client.get(f"/udfs/{created['id']}")).status_code == 404
    assert (await api.client.delete(f"/udfs/{created['id']}")).status_code == 404


async def test_validation_tells_the_signature_and_keeps_nothing(api: Any) -> None:
    answer = (await api.client.post("/udfs/validate", json={"source": SOURCE})).json()
    assert answer["valid"] and answer["udf"]["name"] == "doubled"
    assert api.compiler.builds[0].validate_only
    assert not (await api.client.get("/udfs")).json()["data"]


async def test_what_is_wrong_with_a_source_is_told_with_its_place(api: Any) -> None:
    span = compiler.Span(line=1, column=5, end_line=1, end_column=6)
    wrong = compiler.Diagnostic(severity=compiler.SEVERITY_ERROR, code="udf_syntax", message="no", span=span)
    api.compiler.udf_diagnostics.append(wrong)
    refused = await api.client.post("/udfs", json={"source": "def ("})
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["spans"][0]["span"]["line"]) == ("invalid_udf", 1)
    validated = (await api.client.post("/udfs/validate", json={"source": "def ("})).json()
    assert not validated["valid"] and validated["diagnostics"][0]["code"] == "udf_syntax"


async def test_query_is_compiled_with_all_functions_and_its_own_last(api: Any) -> None:
    await create(api)
    own = {"source": "def tripled(value: int) -> int:\n    return value * 3\n", "name": "tripled"}
    await api.create(udfs=[own])
    request = api.compiler.requests[-1]
    assert [function_from_proto(udf.function).signature.name for udf in request.udfs] == ["doubled", "tripled"]
    validated = await api.client.post("/pipelines/validate", json={"query": "SELECT 1", "udfs": [own]})
    assert validated.status_code == 200
    assert len(api.compiler.requests[-1].udfs) == 2
