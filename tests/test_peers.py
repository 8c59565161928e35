"""The comparison with peers: what is computed, compared and drawn of figures that are given here."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from peers.answers import Answers, read_answers
from peers.base import ResultForm
from peers.events import write_files
from peers.figures import NotAlike, Row, geometric_mean, means, ratios, rows_of, with_again, worse
from peers.measuring import Measured, NotRun
from peers.picture import draw
from peers.queries import QUERIES, Query
from peers.report import page, table

RIGHT = Answers(3, "right")


def measured(seconds: float, cpu: float = 1.0, answers: Answers = RIGHT) -> Measured:
    return Measured(1_000_000, seconds * 2, (seconds,), (cpu,), 500_000_000, answers)


def rows(**steady: float) -> list[Row]:
    """Two queries, the second of which Spark refuses; seconds of each engine."""
    found: dict[tuple[str, str], Measured | NotRun] = {
        (query, engine): measured(seconds) for query in ("q0", "q5") for engine, seconds in steady.items()
    }
    if ("q5", "spark") in found:
        found["q5", "spark"] = NotRun("not supported")
    return rows_of(("q0", "q5"), list(steady), found)


def query(name: str) -> Query:
    return next(one for one in QUERIES if one.name == name)


def test_queries_that_are_compared_again_take_the_place_of_what_was_found_before() -> None:
    facts = {"date": "2026-01-01", "machine": "small", "load": "0.1", "events": "9", "rounds": "1", "versions": {}}
    before = {**facts, "rows": rows(penstock=1, flink=2)}
    again = [row for row in rows(penstock=1, flink=3) if row["query"] == "q5"]
    both = with_again(before, {**facts, "date": "2026-01-02", "rows": again}, ["q0", "q5"])
    assert ratios(both["rows"], "steady") == {"flink": {"q0": 2.0, "q5": 3.0}}
    assert "| date | 2026-01-01 |" in page(both) and "| again | q5 on 2026-01-02, load 0.1 |" in page(both)
    with pytest.raises(NotAlike, match="machine and events"):
        with_again(before, {**facts, "machine": "large", "events": "1", "rows": again}, ["q0", "q5"])


def test_ratios_say_how_many_times_better_penstock_is_in_each_measure() -> None:
    found = rows_of(["q0"], ["penstock", "flink"], {
        ("q0", "penstock"): measured(1.0, cpu=2.0),
        ("q0", "flink"): measured(3.0, cpu=5.0),
    })  # fmt: skip

    assert ratios(found, "steady") == {"flink": {"q0": pytest.approx(3.0)}}
    assert ratios(found, "cold") == {"flink": {"q0": pytest.approx(3.0)}}
    assert ratios(found, "cpu") == {"flink": {"q0": pytest.approx(2.5)}}
    assert ratios(found, "memory") == {"flink": {"q0": pytest.approx(1.0)}}


def test_geometric_means_are_of_the_queries_that_both_ran() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert means(rows(penstock=1.0, flink=2.0, spark=4.0), "steady") == {
        "flink": pytest.approx(2.0),
        "spark": pytest.approx(4.0),
    }


def test_a_peer_whose_answers_differ_has_no_ratio() -> None:
    found = rows_of(["q0"], ["penstock", "flink"], {
        ("q0", "penstock"): measured(1.0),
        ("q0", "flink"): measured(0.1, answers=Answers(2, "wrong")),
    })  # fmt: skip

    assert ratios(found, "steady") == {}
    assert "DIFFER" in table(found)


def test_a_ratio_that_fell_by_more_than_the_tolerance_is_worse_whatever_the_machine() -> None:
    before = rows(penstock=1.0, flink=2.0)
    slower_machine = rows(penstock=10.0, flink=20.0)
    slower_penstock = rows(penstock=2.0, flink=2.0)

    assert list(worse(before, slower_machine, 0.3)) == []
    assert [(one.query, one.before, one.now) for one in worse(before, slower_penstock, 0.3)] == [
        ("q0", 2.0, 1.0),
        ("q5", 2.0, 1.0),
    ]
    assert list(worse(before, slower_penstock, 0.6)) == []


def test_a_query_that_no_longer_runs_is_worse_and_one_that_was_not_asked_for_is_not() -> None:
    before = rows(penstock=1.0, flink=2.0)
    failing = rows_of(["q0"], ["penstock", "flink"], {
        ("q0", "penstock"): NotRun("failed"),
        ("q0", "flink"): measured(2.0),
    })  # fmt: skip

    assert [one.query for one in worse(before, failing, 0.3)] == ["q0"]


def test_table_page_and_picture_have_every_query_and_every_reason() -> None:
    found = rows(penstock=1.0, flink=2.0, spark=4.0)
    facts = dict.fromkeys(("date", "machine", "load", "events", "rounds"), "")

    assert "not run: not supported" in table(found)
    written = page({**facts, "versions": {"flink": "2"}, "rows": found})
    assert "- q5 on spark: not supported" in written
    assert "| q0 | 1,000,000 | 500,000 | 2.00 | 250,000 | 4.00 |" in written
    drawn = ElementTree.fromstring(draw(found))
    texts = [element.text for element in drawn.iter() if element.text]
    assert {"q0", "q5", "geometric mean", "spark: not run"} <= set(texts)


def test_both_layouts_have_the_same_rows_and_closing_events_last(tmp_path: Path) -> None:
    files = write_files(tmp_path, 1000)

    for name, count in {"person": 20, "auction": 60, "bid": 920}.items():
        dealt = [path.read_text().splitlines() for path in sorted((files.dealt / name).iterdir())]
        by_time = [line for path in sorted((files.by_time / name).iterdir()) for line in path.read_text().splitlines()]
        assert len(dealt) == 2
        assert sorted(line for lines in dealt for line in lines) == sorted(by_time)
        assert len(by_time) == count + 2
        for lines in (*dealt, by_time):
            times = [json.loads(line)["dateTime"] for line in lines]
            assert times == sorted(times)
            assert json.loads(lines[-1])["id" if name != "bid" else "auction"] == -1


def test_answers_are_what_changes_leave(tmp_path: Path) -> None:
    changes, steps, other = (tmp_path / name for name in ("changes", "steps", "other"))
    _write(changes, [
        {"before": None, "after": {"id": 10, "final": 1}},
        {"before": {"id": 10, "final": 1}, "after": None},
        {"before": None, "after": {"id": 10, "final": 2}},
        {"before": None, "after": {"id": -1, "final": -1}},
    ])  # fmt: skip
    _write(steps, [{"id": 10, "final": 1, "_step": 0}, {"id": 10, "final": 2, "_step": 1}])
    _write(other, [{"id": 10, "final": 3, "_step": 0}])

    left = read_answers(query("q4"), ResultForm.CHANGES, changes)
    assert left.rows == 1
    assert left == read_answers(query("q4"), ResultForm.STEPS, steps)
    assert left != read_answers(query("q4"), ResultForm.STEPS, other)


def _write(folder: Path, lines: list[object]) -> None:
    folder.mkdir()
    (folder / "part-0.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
