"""Every example runs to its end, with the rows that it promises."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import PENSTOCK, ROOT, plain_environment

pytestmark = pytest.mark.takes_turns

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.sql"))


async def run(file: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    process = await asyncio.create_subprocess_exec(
        str(PENSTOCK), "run", file, cwd=folder, env=plain_environment(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()], err.decode()


def check_first(rows: list[dict[str, Any]], folder: Path) -> None:
    assert rows == [{"counter": n, "square": n * n} for n in range(0, 20000, 2000)]


def check_clicks(rows: list[dict[str, Any]], folder: Path) -> None:
    assert rows == []
    quick = [json.loads(line) for line in (folder / "quick.json").read_text().splitlines()]
    assert [(row["user_id"], row["host"], row["seconds"], row["line"]) for row in quick] == [
        ("bob", "example.org", 0.08, 2),
        ("ann", "example.com", 0.045, 4),
        ("bob", "none", 0.015, 6),
    ]
    assert quick[0]["ts"] == "2026-03-01T10:00:01.500"
    letters = [json.loads(line) for line in (folder / "unreadable.json").read_text().splitlines()]
    assert [letter["position"].rpartition(":")[2] for letter in letters] == ["3", "5"]
    assert all(letter["reason"] and letter["source"] == "clicks" for letter in letters)


def check_auction(rows: list[dict[str, Any]], folder: Path) -> None:
    assert rows
    assert all(row["auction"] % 123 == 0 and row["price"] > 5000000 for row in rows)


def check_tags(rows: list[dict[str, Any]], folder: Path) -> None:
    expected = [(n, tag) for n in range(6) for tag in (["even", "number"] if n % 2 == 0 else ["odd"])]
    expected += [(n, "large") for n in range(6, 12)]
    assert sorted((row["counter"], row["tag"]) for row in rows) == sorted(expected)


def check_joins(rows: list[dict[str, Any]], folder: Path) -> None:
    bids = [row for row in rows if "item" in row]
    windows = [row for row in rows if "offered" in row]
    assert bids and all(row["item"] and row["price"] > 90_000_000 for row in bids)
    assert sum(row["offered"] for row in windows) == 12_000
    assert sum(row["bids"] for row in windows) == 184_000


def check_changes(rows: list[dict[str, Any]], folder: Path) -> None:
    standing: dict[int, tuple[int, int]] = {}
    for row in rows:
        result = (row["events"], row["latest"])
        if row["_op"] == "retract":
            assert standing.pop(row["key"]) == result
        else:
            assert standing.setdefault(row["key"], result) == result
    assert standing == {key: (2500, 9996 + key) for key in range(4)}


def check_windows(rows: list[dict[str, Any]], folder: Path) -> None:
    assert len(rows) > 5
    assert len({row["starts"] for row in rows}) == len(rows)  # each window has one first
    assert all(row["starts"] < row["ends"] and row["bids"] > 0 for row in rows)


def check_lookups(rows: list[dict[str, Any]], folder: Path) -> None:
    assert sorted((row["name"], row["ms"], row["origin"]) for row in rows) == [
        ("Ann", 45, "somewhere"),
        ("Ann", 120, "Norway"),
        ("Bob", 15, "somewhere"),
        ("Bob", 80, "somewhere"),
    ]


def check_versions(rows: list[dict[str, Any]], folder: Path) -> None:
    found = {row["id"]: (row["euros"], (row["since"] or "")[11:16]) for row in rows}
    assert found == {
        1: (50.0, "09:00"),
        2: (10.0, "09:30"),
        3: (5.0, "09:00"),
        4: (7.5, "10:10"),
        5: (None, ""),
        6: (25.0, "10:20"),
    }


def check_functions(rows: list[dict[str, Any]], folder: Path) -> None:
    groups = [row for row in rows if "class" in row]
    words = [row for row in rows if "word" in row]
    assert {row["class"] for row in groups} == {"high", "low"}
    assert all((row["middle"] > 1_000_000) == (row["class"] == "high") and row["bids"] > 0 for row in groups)
    assert words and all(row["word"] and row["seller"].startswith("bidder ") for row in words)
    assert len(groups) + len(words) == len(rows)


def check_settings(rows: list[dict[str, Any]], folder: Path) -> None:
    expected = [(n, 3, n // 3) for n in range(0, 100000, 30000)] + [(n, 7, n // 7) for n in range(0, 100000, 35000)]
    assert sorted((row["value"], row["factor"], row["quotient"]) for row in rows) == sorted(expected)


@pytest.mark.parametrize("name", EXAMPLES)
async def test_example_gives_its_rows(name: str, tmp_path: Path) -> None:
    await asyncio.to_thread(shutil.copytree, ROOT / "examples", tmp_path / "examples")
    rows, _ = await run(f"examples/{name}", tmp_path)
    getattr(sys.modules[__name__], f"check_{Path(name).stem}")(rows, tmp_path)
