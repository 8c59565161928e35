"""Ranges that meet have every line once, however lines and blocks fall."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.formats.line_blocks import FileBlock, Limits, LongLine, count_lines, find_blocks


def read_range(data: bytes, start: int, end: int, limits: Limits) -> list[FileBlock | LongLine]:
    return list(find_blocks(io.BytesIO(data), start, end, limits))


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"x")), max_size=20),
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 40),
)
def test_ranges_have_all_lines_once_in_whole_blocks(lines: list[bytes], ended: bool, ranges: int, size: int) -> None:
    data = b"\n".join(lines) + (b"\n" if ended else b"")
    found: list[bytes] = []
    for index in range(ranges):
        start, end = len(data) * index // ranges, len(data) * (index + 1) // ranges
        for block in read_range(data, start, end, Limits(size, 100, 10)):
            assert isinstance(block, FileBlock)
            content = block.read()
            assert data[block.offset : block.offset + len(block)] == content
            assert content.endswith(b"\n") or block.offset + len(block) == len(data)
            found.append(content)
    assert b"".join(found) == data


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(1, 30), st.integers(1, 4))
def test_a_line_over_the_limit_is_cut_and_its_neighbours_survive(lengths: list[int], size: int, ranges: int) -> None:
    lines = [bytes([97 + index]) * length for index, length in enumerate(lengths)]
    data = b"".join(line + b"\n" for line in lines)
    kept: list[bytes] = []
    for index in range(ranges):
        start, end = len(data) * index // ranges, len(data) * (index + 1) // ranges
        for block in read_range(data, start, end, Limits(size, 20, 5)):
            match block:
                case FileBlock():
                    kept += block.read().splitlines()
                case LongLine(offset, head):
                    assert len(head) == 5
                    assert data[offset : offset + 5] == head
                    kept.append(head)
    assert len(kept) == len(lines)
    for found, line in zip(kept, lines, strict=True):
        assert found == line or (len(line) > 20 and found == line[:5])


def test_memory_is_bounded_for_a_line_without_end() -> None:
    class Endless(io.RawIOBase):
        largest = 0

        def seek(self, position: int, whence: int = 0) -> int:
            self.position = position
            return position

        def read(self, size: int = -1) -> bytes:
            self.largest = max(self.largest, size)
            data = b"x" * min(size, 10_000_000 - self.position)
            self.position += len(data)
            return data

    file = Endless()
    [line] = find_blocks(file, 0, 10_000_000, Limits(1000, 5000, 10))  # type: ignore[arg-type]
    assert line == LongLine(0, b"x" * 10)
    assert file.largest <= 1024 * 1024


def test_lines_before_a_position_are_counted() -> None:
    data = b"a\nb\n\nc"
    assert [count_lines(io.BytesIO(data), end) for end in range(len(data) + 1)] == [0, 0, 1, 1, 2, 3, 3]
