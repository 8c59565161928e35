"""A program as a picture: boxes in columns from sources to sinks, drawn as SVG without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from penstock.common.program import ArrowValue, EdgeKind, Node, NodeKey, Operator, Output, Program

_CHARACTER: Final = 7.3  # the width of one, at 12px in a monospaced font
_LINE: Final = 18
_PADDING: Final = 12
_COLUMN_GAP: Final = 90
_ROW_GAP: Final = 28
_MARGIN: Final = 24
_LONGEST_LINE: Final = 48

_STYLE: Final = """
  .box { fill: #f7f9fb; stroke: #55708a; stroke-width: 1.2 }
  .source { fill: #e6f4ea; stroke: #3d7a52 } .sink { fill: #fdeee1; stroke: #a8672a }
  text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1d2a36 }
  .note { fill: #6a7a89; font-size: 11px }
  .edge { fill: none; stroke: #55708a; stroke-width: 1.4 } .shuffle { stroke-dasharray: 6 4 }
  .dead { stroke: #b3423a }
"""
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ margin: 0; font: 14px system-ui, sans-serif }} main {{ overflow: auto; padding: 12px }}</style>
<main>
{svg}</main>
</html>
"""


@dataclass(frozen=True, slots=True)
class _Box:
    lines: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float


def draw_svg(program: Program) -> str:
    """The program as an SVG image."""
    boxes = _place(program)
    width = max((box.x + box.width for box in boxes.values()), default=0) + _MARGIN
    height = max((box.y + box.height for box in boxes.values()), default=0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#55708a"/></marker></defs>',
    ]
    for edge in program.edges:
        shuffle = "" if edge.kind is EdgeKind.FORWARD else " shuffle"
        dead = " dead" if edge.output is Output.DEAD_LETTERS else ""
        note = " ".join(filter(None, [shuffle.strip(), *edge.keys, "dead letters" if dead else ""]))
        parts += _draw_edge(boxes[edge.source], boxes[edge.target], f"edge{shuffle}{dead}", note)
    for node in program.nodes:
        parts += _draw_box(node, boxes[node.key])
    return "\n".join([*parts, "</svg>"]) + "\n"


def draw_html(program: Program, title: str) -> str:
    """The program as a page."""
    return _PAGE.format(title=escape(title), svg=draw_svg(program))


def _place(program: Program) -> Mapping[NodeKey, _Box]:
    """Each node in the column after its last input's, beside the others in the order of what feeds them."""
    columns: list[list[Node]] = []
    column_of: dict[NodeKey, int] = {}
    row_of: dict[NodeKey, float] = {}
    for node in program.nodes:
        column = max((column_of[edge.source] + 1 for edge in program.inputs_of(node.key)), default=0)
        column_of[node.key] = column
        columns += [[] for _ in range(column + 1 - len(columns))]
        columns[column].append(node)
    for nodes in columns:
        nodes.sort(key=lambda node: _mean([row_of[edge.source] for edge in program.inputs_of(node.key)]))
        row_of.update((node.key, float(row)) for row, node in enumerate(nodes))
    return _sized(columns)


def _sized(columns: Sequence[Sequence[Node]]) -> Mapping[NodeKey, _Box]:
    texts = {node.key: _lines(node) for nodes in columns for node in nodes}
    heights = [sum(_height(texts[node.key]) + _ROW_GAP for node in nodes) - _ROW_GAP for nodes in columns]
    tallest = max(heights, default=0)
    boxes: dict[NodeKey, _Box] = {}
    x = float(_MARGIN)
    for nodes, height in zip(columns, heights, strict=True):
        width = max(len(line) for node in nodes for line in texts[node.key]) * _CHARACTER + 2 * _PADDING
        y = _MARGIN + (tallest - height) / 2
        for node in nodes:
            boxes[node.key] = _Box(texts[node.key], x, y, width, _height(texts[node.key]))
            y += _height(texts[node.key]) + _ROW_GAP
        x += width + _COLUMN_GAP
    return boxes


def _lines(node: Node) -> tuple[str, ...]:
    lines = [_shortened(operator.description) for operator in node.operators]
    return (*lines, f"at most {node.parallelism}") if node.parallelism else tuple(lines)


def _height(lines: Sequence[str]) -> float:
    return len(lines) * _LINE + 2 * _PADDING - 4


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


def _draw_box(node: Node, box: _Box) -> list[str]:
    kind = " source" if node.is_source else " sink" if node.is_sink else ""
    tip = "\n".join(map(_tip, node.operators))
    parts = [
        f"<g><title>{escape(tip)}</title>",
        f'<rect class="box{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        'rx="6"/>',
    ]
    for row, line in enumerate(box.lines):
        y = box.y + _PADDING + _LINE * row + 12
        note = ' class="note"' if row >= len(node.operators) else ""
        parts.append(f'<text{note} x="{box.x + _PADDING:.1f}" y="{y:.1f}">{escape(line)}</text>')
    return [*parts, "</g>"]


def _tip(operator: Operator) -> str:
    return operator.kind.sql if isinstance(operator.kind, ArrowValue) else operator.description


def _draw_edge(source: _Box, target: _Box, classes: str, note: str) -> list[str]:
    x1, y1 = source.x + source.width, source.y + source.height / 2
    x2, y2 = target.x, target.y + target.height / 2
    bend = (x2 - x1) / 2
    path = f"M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    parts = [f'<path class="{classes}" d="{path}" marker-end="url(#arrow)"/>']
    if note:
        middle = f'x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 - 6:.1f}"'
        parts.append(f'<text class="note" text-anchor="middle" {middle}>{escape(note)}</text>')
    return parts
