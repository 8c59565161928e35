from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa

from penstock.cli.drawing import draw_html, draw_svg
from penstock.common.program import (
    ArrowValue,
    ConnectorSink,
    ConnectorSource,
    Edge,
    EdgeKind,
    Node,
    NodeKey,
    Operator,
    OperatorKey,
    OperatorKind,
    Output,
    Program,
)

SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = pa.schema([("a", pa.int64())])


def node(key: str, kind: OperatorKind, parallelism: int = 0) -> Node:
    return Node(NodeKey(key), key, (Operator(OperatorKey(key), f"<{key}>", kind, SCHEMA),), parallelism)


def program() -> Program:
    nodes = (
        node("one", ConnectorSource("impulse", "one", {}, {}), 1),
        node("two", ConnectorSource("impulse", "two", {}, {})),
        node("both", ArrowValue("SELECT a FROM input WHERE a < 3")),
        node("out", ConnectorSink("stdout", "out", {}, SCHEMA)),
        node("bad", ConnectorSink("stdout", "bad", {}, SCHEMA)),
    )
    edges = (
        Edge(NodeKey("one"), NodeKey("both")),
        Edge(NodeKey("two"), NodeKey("both"), EdgeKind.SHUFFLE, ("a",)),
        Edge(NodeKey("both"), NodeKey("out")),
        Edge(NodeKey("one"), NodeKey("bad"), output=Output.DEAD_LETTERS),
    )
    return Program(nodes, edges)


def test_picture_has_every_node_and_edge_and_needs_nothing_else() -> None:
    text = draw_svg(program())
    root = ElementTree.fromstring(text)
    assert len(root.findall(f".//{SVG}rect")) == 5
    assert len([path for path in root.iter(f"{SVG}path") if "edge" in path.get("class", "")]) == 4
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"<one>", "at most 1", "shuffle a", "dead letters"} <= set(texts)
    assert "href" not in text and "script" not in text


def test_boxes_do_not_overlap_and_rows_flow_to_the_right() -> None:
    root = ElementTree.fromstring(draw_svg(program()))
    boxes = {}
    for group in root.iter(f"{SVG}g"):
        rect, text = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        assert rect is not None and text is not None
        boxes[text.text] = [float(rect.get(name, "")) for name in ("x", "y", "width", "height")]
    for a, (ax, ay, aw, ah) in boxes.items():
        for b, (bx, by, bw, bh) in boxes.items():
            assert a == b or ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay, (a, b)
    assert boxes["<one>"][0] < boxes["<both>"][0] < boxes["<out>"][0]


def test_page_escapes_its_title() -> None:
    assert "<title>a &lt; b</title>" in draw_html(program(), "a < b")
