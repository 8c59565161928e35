"""Rows and signals through their frames."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.network.codec import (
    Chunk,
    Compression,
    RowsDecoder,
    RowsEncoder,
    decode_signal,
    encode_signal,
)
from penstock.worker.network.frames import BadFrame, Frame, FrameReader, FrameType, Route
from penstock.worker.signals import Barrier, EndOfData, Watermark

ROUTE = Route(1, 2, 3, 4, 5)


def frames_of(content: bytes) -> list[Frame]:
    reader = FrameReader(1 << 24, frozenset(FrameType))
    frames: list[Frame] = []
    at = 0
    while at < len(content):
        space = reader.space()
        count = min(len(space), len(content) - at)
        space[:count] = content[at : at + count]
        frames += reader.received(count)
        at += count
    return frames


def content_of(encoded: tuple[Sequence[Chunk], int]) -> bytes:
    chunks, size = encoded
    content = b"".join(bytes(memoryview(chunk)) for chunk in chunks)
    assert len(content) == size
    return content


def table(numbers: range) -> pa.RecordBatch:
    texts = pa.array([None if number % 7 == 0 else f"text {number}" for number in numbers], pa.string())
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            "even": pa.array([number % 2 == 0 for number in numbers]),
            "text": texts,
            "code": pa.array([f"code {number % 3}" for number in numbers]).dictionary_encode(),
            "list": pa.array([[number, number + 1] for number in numbers]),
        }
    )


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_batches_arrive_as_they_were_with_their_schema_in_the_first_frame_alone(compression: Compression) -> None:
    encoder, decoder = RowsEncoder(compression), RowsDecoder()
    whole = table(range(20_000))
    sent = [whole, whole.slice(3, 1), whole.slice(1001, 4000), table(range(5, 9))]
    contents = [content_of(encoder.encode(ROUTE, batch)) for batch in sent]
    assert b"text" in contents[0] and len(contents[1]) < 2000
    for batch, content in zip(sent, contents, strict=True):
        (frame,) = frames_of(content)
        received = decoder.decode(frame)
        received.validate(full=True)
        assert frame.route == ROUTE and received.equals(batch)


@given(st.integers(0, 10_000), st.binary(min_size=1, max_size=20))
def test_rows_that_are_damaged_are_refused_or_have_their_number(place: int, damage: bytes) -> None:
    (frame,) = frames_of(content_of(RowsEncoder().encode(ROUTE, table(range(40)).select(["n", "text"]))))
    payload = bytearray(bytes(frame.payload))
    place %= len(payload)
    payload[place : place + len(damage)] = damage[: len(payload) - place]
    try:
        received = RowsDecoder().decode(Frame(FrameType.ROWS, ROUTE, False, 40, pa.py_buffer(bytes(payload))))
    except BadFrame:
        return
    assert received.num_rows == 40


@given(st.integers(0, 3000))
def test_rows_that_are_cut_are_refused(length: int) -> None:
    (frame,) = frames_of(content_of(RowsEncoder().encode(ROUTE, table(range(40)))))
    cut = frame.payload.slice(0, min(length, frame.payload.size - 1))
    with pytest.raises(BadFrame):
        RowsDecoder().decode(Frame(FrameType.ROWS, ROUTE, False, 40, cut))


def test_rows_of_another_number_than_was_counted_are_refused() -> None:
    (frame,) = frames_of(content_of(RowsEncoder().encode(ROUTE, table(range(40)))))
    with pytest.raises(BadFrame, match="39 rows has 40"):
        RowsDecoder().decode(Frame(FrameType.ROWS, ROUTE, False, 39, frame.payload))


@pytest.mark.parametrize(
    "signal",
    [
        Watermark(None),
        Watermark(-(2**63)),
        Watermark(2**63 - 1),
        Barrier(7),
        Barrier(2**40, last=True),
        EndOfData(),
        EndOfData(complete=False),
    ],
)
def test_signals_arrive_as_they_were(signal: Watermark | Barrier | EndOfData) -> None:
    (frame,) = frames_of(encode_signal(ROUTE, signal))
    assert (frame.route, decode_signal(frame)) == (ROUTE, signal)
