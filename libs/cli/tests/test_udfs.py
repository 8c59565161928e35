from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.common.proto import compiler_pb2 as compiler


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "doubled.py"
    path.write_text("def doubled(value: int) -> int:\n    return value * 2\n")
    return str(path)


@pytest.fixture
def newer(tmp_path: Path) -> str:
    path = tmp_path / "newer.py"
    path.write_text("def doubled(value: int) -> int:\n    return 2 * value\n")
    return str(path)


async def test_function_is_created_replaced_listed_shown_and_deleted(command: Any, file: str, newer: str) -> None:
    created = await command("udfs", "create", file, "--json")
    assert created.code == 0, created.err
    udf = json.loads(created.out)
    assert udf["name"] == "doubled"
    replaced = json.loads((await command("udfs", "create", newer, "--replace", "--json")).out)
    assert replaced["id"] == udf["id"] and replaced["hash"] != udf["hash"]
    listed = await command("udfs", "list")
    assert "doubled(value int64) -> int64" in listed.out and udf["id"] in listed.out
    assert "return 2 * value" in (await command("udfs", "show", "doubled")).out
    assert (await command("udfs", "delete", "doubled")).code == 0
    assert udf["id"] not in (await command("udfs", "list")).out


async def test_valid_function_is_told_with_its_signature(command: Any, file: str, api: Any) -> None:
    found = await command("udfs", "validate", file)
    assert found.code == 0
    assert found.err.strip() == f"{file} is valid: doubled(value int64) -> int64"


async def test_what_is_wrong_is_shown_in_the_file(command: Any, file: str, api: Any) -> None:
    span = compiler.Span(line=2, column=12, end_line=2, end_column=16)
    wrong = compiler.Diagnostic(severity=compiler.SEVERITY_ERROR, code="udf_hint", message="no", span=span)
    api.compiler.udf_diagnostics.append(wrong)
    try:
        for command_name in ("validate", "create"):
            found = await command("udfs", command_name, file)
            assert found.code == 1
            assert f"--> {file}:2:12" in found.err and "^^^^^" in found.err
    finally:
        api.compiler.udf_diagnostics.clear()
