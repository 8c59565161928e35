"""A comparison as text: a table for people, and the page `results.md`, of which no figure is typed by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from peers.figures import MEASURES, OURS, Row, means, ratios

_COLUMNS: Final = ("query", "engine", "k events/s", "cold", "CPU s/M", "MB", "times", "times CPU", "answers")


def table(rows: Sequence[Row]) -> str:
    """All figures, a line for each query and engine; `times` is how many times Penstock does what a peer does."""
    steady, cpu = ratios(rows, "steady"), ratios(rows, "cpu")
    lines = [_COLUMNS, *(_cells(row, steady, cpu) for row in rows)]
    aligned = [line for line in lines if len(line) == len(_COLUMNS)]
    widths = [max(len(line[index]) for line in aligned) for index in range(len(_COLUMNS))]
    text = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=False)) for line in lines]
    return "\n".join([*text, "", *_mean_lines(rows)])


def _cells(row: Row, steady: Mapping[str, Any], cpu: Mapping[str, Any]) -> tuple[str, ...]:
    if "not_run" in row:
        return (row["query"], row["engine"], f"not run: {row['not_run']}")
    query, engine = row["query"], row["engine"]
    times, cpu_times = (one.get(engine, {}).get(query) for one in (steady, cpu))
    return (
        query,
        engine,
        f"{row['steady_rate'] / 1000:,.0f}",
        f"{row['cold_rate'] / 1000:,.0f}",
        f"{row['cpu_per_million']:.2f}",
        f"{row['peak_MB']:,.0f}",
        _times(times),
        _times(cpu_times),
        f"{row['answers']:,}" + ("" if row["agrees"] is not False else " DIFFER"),
    )


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _mean_lines(rows: Sequence[Row]) -> Iterator[str]:
    for measure, meaning in MEASURES.items():
        for engine, mean in means(rows, measure).items():
            count = len(ratios(rows, measure)[engine])
            yield f"{measure}: {mean:.2f} times {engine}, the geometric mean of {count} queries ({meaning})"


def page(result: Mapping[str, Any] | None) -> str:
    """`results.md`; None: nothing has been measured yet."""
    return (
        "\n".join([*_heading_lines(), *(_page_lines(result) if result else ("Nothing has been measured yet.",))]) + "\n"
    )


def _heading_lines() -> Iterator[str]:
    yield "# Nexmark, side by side"
    yield ""
    yield "Written by `make bench-peers ARGS=--write`; [how it is measured](peers/README.md)."
    yield ""


def _page_lines(result: Mapping[str, Any]) -> Iterator[str]:
    rows: Sequence[Row] = result["rows"]
    peers = [engine for engine in dict.fromkeys(row["engine"] for row in rows) if engine != OURS]
    yield "| | |"
    yield "|---|---|"
    for name in ("date", "machine", "load", "events", "rounds"):
        yield f"| {name} | {result[name]} |"
    for again in result.get("again", ()):
        yield f"| again | {again} |"
    for engine, version in result["versions"].items():
        yield f"| {engine} | {version} |"
    yield ""
    yield "![How many times the throughput of each peer](../docs/nexmark.svg)"
    yield ""
    yield "`times`: how often Penstock does what the peer does; of CPU and memory, how many times more the peer takes."
    yield ""
    for measure, meaning in MEASURES.items():
        yield from _measure_lines(rows, measure, meaning, peers)
    yield from _not_run_lines(rows)


def _measure_lines(rows: Sequence[Row], measure: str, meaning: str, peers: Sequence[str]) -> Iterator[str]:
    times, mean = ratios(rows, measure), means(rows, measure)
    yield f"## {meaning[0].upper()}{meaning[1:]}"
    yield ""
    yield _line("query", OURS, *(cell for peer in peers for cell in (peer, "times")))
    yield _line(*["---"] * (2 + 2 * len(peers)))
    by_place = {(row["query"], row["engine"]): row for row in rows}
    for query in dict.fromkeys(row["query"] for row in rows):
        cells = [_figure(by_place.get((query, OURS)), measure)]
        for peer in peers:
            cells += [_figure(by_place.get((query, peer)), measure), _times(times.get(peer, {}).get(query))]
        yield _line(query, *cells)
    yield _line("geometric mean", "", *(cell for peer in peers for cell in ("", f"**{_times(mean.get(peer))}**")))
    yield ""


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _figure(row: Row | None, measure: str) -> str:
    if row is None or "not_run" in row:
        return ""
    match measure:
        case "steady" | "cold":
            return f"{row[f'{measure}_rate']:,.0f}"
        case "cpu":
            return f"{row['cpu_per_million']:.2f}"
        case _:
            return f"{row['peak_MB']:,.0f} MB"


def _not_run_lines(rows: Sequence[Row]) -> Iterator[str]:
    yield "## What was not run, and answers that differ"
    yield ""
    found = [row for row in rows if "not_run" in row or row["agrees"] is False]
    for row in found:
        yield f"- {row['query']} on {row['engine']}: {row.get('not_run', 'its answers are not those of Penstock')}"
    if not found:
        yield "Nothing: all queries ran everywhere, and all answers agree."
