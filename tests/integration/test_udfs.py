"""Python functions over a cluster: versions side by side, dependencies, failures, and what validation survives."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Final

from harness import Deployment

SOURCE: Final = "def edition(n: int) -> int:\n    return n * {factor}\n"
QUERY: Final = """
CREATE TABLE ticks WITH (connector = 'impulse', event_rate = '50');
SELECT counter, edition(counter) AS result FROM ticks WHERE counter > 0;
"""


async def create(cluster: Deployment, source: str, **options: Any) -> dict[str, Any]:
    answer = await cluster.client.post("/udfs", json={"source": source, **options})
    assert answer.status_code == 201, answer.text
    udf: dict[str, Any] = answer.json()
    return udf


async def factors(cluster: Deployment, job_id: str) -> set[int]:
    """By what the rows of a job's preview were multiplied."""
    rows = await cluster.output(job_id, 20)
    assert len(rows) >= 20
    return {row["result"] // row["counter"] for row in rows}


async def test_two_versions_of_a_function_run_at_once_each_with_its_own_result(cluster: Deployment) -> None:
    udf = await create(cluster, SOURCE.format(factor=2))
    async with cluster.pipeline(QUERY) as old:
        await cluster.until_state(old["job_id"], "running")
        assert await factors(cluster, old["job_id"]) == {2}
        assert (await create(cluster, SOURCE.format(factor=3), replace=True))["id"] == udf["id"]
        async with cluster.pipeline(QUERY) as new:
            await cluster.until_state(new["job_id"], "running")
            assert await factors(cluster, new["job_id"]) == {3}
            assert await factors(cluster, old["job_id"]) == {2}
            deleted = await cluster.client.delete(f"/udfs/{udf['id']}")
            assert deleted.status_code == 204
            before = (await cluster.job(old["job_id"]))["generation"]
            restarted = await cluster.client.post(f"/pipelines/{old['id']}/restart", json={"force": True})
            assert restarted.status_code == 200, restarted.text
            await cluster.advances(new["job_id"])
            while (await cluster.job(old["job_id"]))["generation"] == before:
                await cluster.advances(new["job_id"])
            await cluster.until_state(old["job_id"], "running")
            assert await factors(cluster, old["job_id"]) == {2}
    refused = await cluster.client.post("/pipelines", json={"name": "test", "query": QUERY})
    assert refused.status_code == 400 and "edition" in refused.json()["error"]["message"]


def wheel(folder: Path, factor: int) -> Path:
    """A package of one module."""
    path = folder / f"penstock_factor-{factor}.0-py3-none-any.whl"
    info = f"penstock_factor-{factor}.0.dist-info"
    files = {
        "penstock_factor.py": f"FACTOR = {factor}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: penstock-factor\nVersion: {factor}.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return path


async def test_functions_of_one_query_have_different_versions_of_a_dependency(
    cluster: Deployment, tmp_path: Path
) -> None:
    def source(name: str, factor: int, kind: str) -> dict[str, str]:
        block = f'# /// script\n# dependencies = ["penstock-factor @ {wheel(tmp_path, factor).as_uri()}"]\n# ///\n'
        text = f"{block}from penstock_factor import FACTOR\n{kind} {name}(n: int) -> int:\n    return n * FACTOR\n"
        return {"source": text}

    udfs = [source("five", 5, "def"), source("seven", 7, "def"), source("nine", 9, "async def")]
    query = """
    CREATE TABLE ticks WITH (connector = 'impulse', message_count = '100');
    SELECT counter, five(counter) AS a, seven(counter) AS b, nine(counter) AS c FROM ticks;
    """
    async with cluster.pipeline(query, udfs=udfs) as pipeline:
        rows = await cluster.output(pipeline["job_id"], 100)
        await cluster.until_state(pipeline["job_id"], "finished")
    expected = [(n, 5 * n, 7 * n, 9 * n) for n in range(100)]
    assert sorted((row["counter"], row["a"], row["b"], row["c"]) for row in rows) == expected


async def test_function_that_fails_fails_the_job_with_its_own_lines(cluster: Deployment) -> None:
    source = "def edition(n: int) -> int:\n    return _checked(n)\n\ndef _checked(n):\n    return 100 // (50 - n)\n"
    async with cluster.pipeline(QUERY, udfs=[{"source": source}]) as pipeline:
        job = await cluster.until_state(pipeline["job_id"], "failed")
    lines = job["error"]["message"].splitlines()
    assert job["error"]["domain"] == "user"
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        'File "edition.py", line 2, in edition',
        'File "edition.py", line 5, in _checked',
    ]
    assert lines[-1].startswith("ZeroDivisionError")


async def test_rows_for_which_functions_fail_are_kept_and_the_job_goes_on(cluster: Deployment, tmp_path: Path) -> None:
    query = f"""
    CREATE FUNCTION inverse LANGUAGE python WITH (on_error = 'dead_letter', dead_letter = 'failures') AS $$
    def inverse(n: int) -> float:
        return 1 / (n % 10)
    $$;
    CREATE FUNCTION found LANGUAGE python WITH (on_error = 'dead_letter', dead_letter = 'failures') AS $$
    async def found(n: int) -> str:
        if n % 7 == 0:
            raise LookupError(f"no {{n}}")
        return str(n)
    $$;
    CREATE TABLE ticks WITH (connector = 'impulse', message_count = '100');
    CREATE TABLE failures WITH (connector = 'single_file', type = 'sink', path = '{tmp_path}/failures.json');
    SELECT counter, inverse(counter) AS i, found(counter) AS f FROM ticks;
    """
    async with cluster.pipeline(query) as pipeline:
        rows = await cluster.output(pipeline["job_id"], 100)
        await cluster.until_state(pipeline["job_id"], "finished")
    good = [n for n in range(100) if n % 10 and n % 7]
    assert sorted(row["counter"] for row in rows) == good
    with open(tmp_path / "failures.json") as file:  # noqa: ASYNC230 - it is small
        letters = [json.loads(line) for line in file]
    failed = {(letter["source"], json.loads(letter["payload"])["counter"]) for letter in letters}
    assert failed == {("inverse", n) for n in range(0, 100, 10)} | {("found", n) for n in range(0, 100, 7) if n % 10}
    assert len(letters) == 100 - len(good)
    assert all("LookupError: no " in one["reason"] for one in letters if one["source"] == "found")


async def test_validation_of_what_would_harm_it_leaves_the_compiler_as_it_was(cluster: Deployment) -> None:
    harmful = {
        "udf_timeout": "while True: pass\ndef f(n: int) -> int: ...",
        "udf_memory": "block = bytearray(10_000_000_000)\ndef f(n: int) -> int: ...",
        "udf_syntax": "def f(n: int) -> int:\n  return (",
        "udf_dependency": '# /// script\n# dependencies = ["penstock-there-is-none"]\n# ///\ndef f(n: int) -> int: ...',
    }
    for code, source in harmful.items():
        answer = (await cluster.client.post("/udfs/validate", json={"source": source}, timeout=120)).json()
        assert not answer["valid"]
        assert [found["code"] for found in answer["diagnostics"]] == [code]
    valid = (await cluster.client.post("/udfs/validate", json={"source": "def f(n: int) -> str: ..."})).json()
    assert valid["valid"] and valid["udf"]["returns"] == "string"
