"""Lines are found where they are, and the odd ones among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.formats.lines import Lines


@given(st.binary(max_size=60).map(lambda data: data.replace(b"x", b"\n").replace(b"y", b"\r\n")))
def test_a_block_is_split_at_its_line_ends(data: bytes) -> None:
    lines = Lines.split(data)
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [lines[index] for index in range(len(lines))] == [line.removesuffix(b"\r") for line in expected]


@given(st.lists(st.sampled_from([b"", b"a", b"bc"]), max_size=8), st.data())
def test_joined_lines_are_those_asked_for(content: list[bytes], data: st.DataObject) -> None:
    lines = Lines.split(b"".join(line + b"\n" for line in content))
    wanted = sorted(data.draw(st.sets(st.integers(0, len(content) - 1)))) if content else []
    joined = lines.join(np.array(wanted, np.int64))
    assert [line for line in joined.split(b"\n") if line] == [content[index] for index in wanted if content[index]]


@pytest.mark.parametrize(
    ("line", "odd"),
    [
        (b"{}", False),
        (b'{"a":"\xc3\xa9"}', False),
        (b"", False),
        (b" {}", True),
        (b"{} ", True),
        (b"null", True),
        (b'{"a":"\xff"}', True),
        (b'{"a":NaN}', True),
        (b'{"a":-Infinity}', True),
        (b'{"a":"Nan Na N"}', False),
    ],
)
def test_odd_lines_are_those_a_lenient_reader_could_misread(line: bytes, odd: bool) -> None:
    lines = Lines.split(b'{"a":1}\n' + line + b"\n{}\n")
    assert lines.odd().tolist() == [False, odd, False]
