"""A comparison as a picture: for each query a bar a peer, as long as the logarithm of the ratio to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from peers.figures import Row, means, ratios

_COLORS: Final = {"flink": "#e6526f", "spark": "#e8913a", "bytewax": "#7a6ff0"}
_OTHER: Final = "#5f6b7a"
_LEFT: Final = 130
_WIDTH: Final = 860
_BAR: Final = 13
_TOP: Final = 62
_TICKS: Final = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)


def draw(rows: Sequence[Row]) -> str:
    """An SVG of steady throughput; bars to the right of 1 are queries that Penstock does faster."""
    times = ratios(rows, "steady")
    groups = [(query, [(peer, found.get(query)) for peer, found in times.items()]) for query in _queries(rows)]
    groups.append(("geometric mean", list(means(rows, "steady").items())))
    height = _TOP + sum(len(bars) * _BAR + 8 for _, bars in groups) + 20
    scale = _Scale([ratio for _, bars in groups for _, ratio in bars if ratio])
    parts = [*_heading(list(times)), *scale.grid(height), *_bars(groups, scale)]
    style = "font-family='sans-serif' font-size='12' fill='#222'"
    size = f"width='{_WIDTH}' height='{height}' viewBox='0 0 {_WIDTH} {height}'"
    white = f"<rect width='{_WIDTH}' height='{height}' fill='white'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {style}>\n{white}\n" + "\n".join(parts) + "\n</svg>\n"


def _queries(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["query"] for row in rows))


class _Scale:
    """Where a ratio is: logarithmic, with 1 always in sight."""

    def __init__(self, values: Sequence[float]) -> None:
        self._least = math.log2(min([*values, 0.5]))
        self._most = math.log2(max([*values, 2.0]))

    def x(self, ratio: float) -> float:
        share = (math.log2(ratio) - self._least) / (self._most - self._least)
        return _LEFT + share * (_WIDTH - _LEFT - 70)

    def grid(self, height: int) -> Iterator[str]:
        for tick in _TICKS:
            if self._least <= math.log2(tick) <= self._most:
                x, color = self.x(tick), "#222" if tick == 1 else "#ddd"
                yield f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{_TOP - 8}' y2='{height - 16}' stroke='{color}'/>"
                yield f"<text x='{x:.1f}' y='{_TOP - 12}' text-anchor='middle' fill='#666'>{tick:g}x</text>"


def _heading(peers: Sequence[str]) -> Iterator[str]:
    title = "Nexmark: throughput of Penstock beside its peers"
    yield f"<text x='10' y='20' font-size='15' font-weight='bold'>{title}</text>"
    for index, peer in enumerate(peers):
        x = 520 + index * 105
        yield f"<rect x='{x}' y='10' width='12' height='12' fill='{_COLORS.get(peer, _OTHER)}'/>"
        yield f"<text x='{x + 17}' y='20'>{escape(peer)}</text>"


def _bars(groups: Sequence[tuple[str, list[tuple[str, float | None]]]], scale: _Scale) -> Iterator[str]:
    y = _TOP
    for name, bars in groups:
        weight = "" if name.startswith("q") else " font-weight='bold'"
        middle = y + len(bars) * _BAR / 2 + 4
        yield f"<text x='{_LEFT - 10}' y='{middle:.1f}' text-anchor='end'{weight}>{escape(name)}</text>"
        for peer, ratio in bars:
            yield from _bar(peer, ratio, y, scale)
            y += _BAR
        y += 8


def _bar(peer: str, ratio: float | None, y: int, scale: _Scale) -> Iterator[str]:
    one = scale.x(1)
    if not ratio:
        yield f"<text x='{one + 6:.1f}' y='{y + 10}' font-size='10' fill='#999'>{escape(peer)}: not run</text>"
        return
    begin, end = sorted((one, scale.x(ratio)))
    color = _COLORS.get(peer, _OTHER)
    yield f"<rect x='{begin:.1f}' y='{y}' width='{end - begin:.1f}' height='{_BAR - 2}' fill='{color}'/>"
    yield f"<text x='{end + 5:.1f}' y='{y + 10}' font-size='10'>{ratio:.1f}</text>"
