"""Lines that cannot be read: dropped and counted, kept aside with their reason, or the end of the job."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from harness import PENSTOCK, plain_environment

LONG = "x" * (10 << 20)
GOOD = list(range(0, 400, 2))
BAD = {
    "a bad byte": b'{"n": 1, "name": "\xff\xfe"}',
    "a truncated line": b'{"n": 3, "name": "cut o',
    "a wrong type": b'{"n": "three", "name": "x"}',
    "a null where none may be": b'{"n": null, "name": "x"}',
}


def write_input(path: Path) -> list[int]:
    """Good lines with bad ones among them, and a good one of 10 MB; returns the numbers of the bad lines."""
    lines = [json.dumps({"n": n, "name": f"row {n}"}).encode() for n in GOOD]
    lines.insert(40, json.dumps({"n": 1000, "name": LONG}).encode())
    for place, bad in zip((3, 77, 78, 150), BAD.values(), strict=True):
        lines.insert(place, bad)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return [number for number, line in enumerate(lines, start=1) if line in BAD.values()]


def query(folder: Path, policy: str) -> str:
    return f"""
    CREATE TABLE numbers (n BIGINT NOT NULL, name TEXT) WITH (
      connector = 'single_file', path = '{folder}/in.json', type = 'source', format = 'json', {policy}
    );
    CREATE TABLE unreadable WITH (connector = 'single_file', path = '{folder}/bad.json', type = 'sink');
    CREATE TABLE result (n BIGINT, characters BIGINT) WITH (
      connector = 'single_file', path = '{folder}/out.json', type = 'sink'
    );
    INSERT INTO result SELECT n, length(name) FROM numbers;
    """


async def run(folder: Path, policy: str, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        str(PENSTOCK), "run", *options, "-", env=plain_environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate(query(folder, policy).encode())
    return process.returncode or 0, err.decode()


def results(folder: Path) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in (folder / "out.json").read_text().splitlines()]
    return sorted((row["n"], row["characters"]) for row in rows)


EXPECTED = [*((n, len(f"row {n}")) for n in GOOD), (1000, len(LONG))]


@pytest.mark.parametrize("parallelism", ["1", "3"])
async def test_drop_keeps_every_other_row_and_counts_the_bad(tmp_path: Path, parallelism: str) -> None:
    write_input(tmp_path / "in.json")
    code, err = await run(tmp_path, "bad_data = 'drop'", "-p", parallelism)
    assert code == 0, err
    assert results(tmp_path) == EXPECTED
    assert "4 bad" in err


async def test_dead_letters_arrive_with_their_place_and_reason(tmp_path: Path) -> None:
    numbers = write_input(tmp_path / "in.json")
    code, err = await run(tmp_path, "bad_data = 'dead_letter', dead_letter = 'unreadable'", "-p", "2")
    assert code == 0, err
    assert results(tmp_path) == EXPECTED
    letters = [json.loads(line) for line in (tmp_path / "bad.json").read_text().splitlines()]
    assert sorted(letter["position"] for letter in letters) == sorted(f"{tmp_path}/in.json:{n}" for n in numbers)
    assert all(letter["source"] == "numbers" and letter["reason"] for letter in letters)


async def test_fail_names_the_file_and_the_line(tmp_path: Path) -> None:
    numbers = write_input(tmp_path / "in.json")
    code, err = await run(tmp_path, "bad_data = 'fail'")
    assert code == 1
    assert f"{tmp_path}/in.json:{numbers[0]}" in err
    assert "Traceback" not in err
