"""Frames out of bytes, however they are cut and whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.worker.network.frames import (
    HEADER_BYTES,
    BadFrame,
    Frame,
    FrameReader,
    FrameType,
    Route,
    encode_frame,
    encode_header,
)

EVERYTHING = frozenset(FrameType)
MAX_BYTES = 1 << 20
ROUTES = st.builds(Route, *(st.integers(0, 65535),) * 5)


def read(reader: FrameReader, content: bytes, sizes: list[int] | None = None) -> list[Frame]:
    """All frames of some bytes that come in pieces, of these sizes in turn."""
    frames: list[Frame] = []
    at = turn = 0
    while at < len(content):
        space = reader.space()
        count = min(len(space), len(content) - at, sizes[turn % len(sizes)] if sizes else MAX_BYTES)
        space[:count] = content[at : at + count]
        frames += reader.received(count)
        at, turn = at + count, turn + 1
    return frames


def test_a_header_has_24_bytes() -> None:
    assert HEADER_BYTES == 24


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            ROUTES, st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0, 1, 100, 5000, 61_000, 200_000])
        ),
        max_size=6,
    ),
    st.lists(st.integers(1, 150_000), min_size=1, max_size=5),
)
def test_frames_are_the_same_however_their_bytes_are_cut(
    sent: list[tuple[Route, int, bool, int]], sizes: list[int]
) -> None:
    content = b"".join(
        encode_frame(FrameType.ROWS, bytes([number % 251]) * length, route, flag=flag, rows=rows)
        for number, (route, rows, flag, length) in enumerate(sent)
    )
    reader = FrameReader(MAX_BYTES, EVERYTHING)
    frames = read(reader, content, sizes)
    assert reader.is_between_frames
    assert [(frame.route, frame.rows, frame.flag, frame.payload.size) for frame in frames] == sent
    for number, frame in enumerate(frames):
        assert set(bytes(frame.payload)) <= {number % 251}


@given(st.binary(min_size=HEADER_BYTES, max_size=500))
def test_any_bytes_are_frames_or_refused_and_never_more_memory_than_allowed(content: bytes) -> None:
    reader = FrameReader(1000, EVERYTHING)
    try:
        frames = read(reader, content)
    except BadFrame:
        return
    assert all(frame.payload.size <= 1000 for frame in frames)
    assert len(reader.space()) <= 64 << 10


def test_a_frame_that_is_too_large_is_refused_by_its_header() -> None:
    with pytest.raises(BadFrame, match="too many"):
        read(FrameReader(1000, EVERYTHING), encode_header(FrameType.ROWS, Route(), 1001))
    with pytest.raises(BadFrame, match="too many"):
        read(FrameReader(MAX_BYTES), encode_header(FrameType.HELLO, Route(), 5000))


def test_rows_before_the_handshake_are_refused() -> None:
    with pytest.raises(BadFrame, match="out of turn"):
        read(FrameReader(MAX_BYTES), encode_header(FrameType.ROWS, Route(), 10))
