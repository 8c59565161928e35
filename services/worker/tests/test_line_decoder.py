"""The engine's parser of JSON lines takes no line otherwise than `json_line`, which says what a line means."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common.testing import eventually
from penstock.connectors.base import LineParser, LineParsers, ParsedLines
from penstock.connectors.filesystem import Filesystem
from penstock.connectors.formats.json import JsonDecoder
from penstock.connectors.formats.json_line import JSON_METADATA, BadLine, RowReader
from penstock.connectors.single_file import SingleFile
from penstock.connectors.testing import batches_of, rows_of, table_spec
from penstock.spark import DecodedLines, Engine, EngineLost
from penstock.spark.testing import spark_settings

FUZZED_LINES, SCHEMAS = (500_000, 4000) if os.environ.get("PENSTOCK_TEST_FULL") else (20_000, 150)
LIMIT = 1 << 24

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tiny", pa.int8()),
        pa.field("size", pa.uint32()),
        pa.field("huge", pa.uint64()),
        pa.field("ratio", pa.float64()),
        pa.field("part", pa.float32()),
        pa.field("text", pa.string()),
        pa.field("naïve", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us")),
        pa.field("zoned", pa.timestamp("us", "UTC")),
        pa.field("flag", pa.bool_()),
        pa.field(
            "inner",
            pa.struct(
                [
                    pa.field("x", pa.int32(), nullable=False),
                    pa.field("s", pa.string()),
                    pa.field("deep", pa.struct([("at", pa.timestamp("us"))])),
                ]
            ),
        ),
    ]
)


def column(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("a", kind, nullable=nullable)])


async def decode(engine: Engine, schema: pa.Schema, block: bytes, max_line_bytes: int = LIMIT) -> DecodedLines:
    decoder = engine.line_decoder(schema, max_line_bytes)
    assert decoder is not None
    try:
        return await asyncio.to_thread(decoder.decode, block)
    finally:
        decoder.close()


def check(schema: pa.Schema, lines: list[bytes], decoded: DecodedLines) -> None:
    """Every line that was taken means what was read."""
    assert decoded.line_count == len(lines)
    odd = set(decoded.odd.tolist())
    assert len(odd) == len(decoded.odd)
    reader, expected = RowReader(schema, set()), []
    for index, line in enumerate(lines):
        if index not in odd:
            try:
                expected.append(reader.read(line.removesuffix(b"\r")))
            except BadLine as error:
                raise AssertionError(f"taken, but {error}: {line!r}") from None
    assert decoded.rows.num_rows == len(expected)
    decoded.rows.validate(full=True)
    for index, field in enumerate(schema):
        wanted = pa.array([row[index] for row in expected], field.type)
        assert decoded.rows.column(index).equals(wanted), _difference(decoded.rows.column(index), wanted)


def _difference(found: Any, wanted: Any) -> str:
    row = next(i for i in range(len(found)) if found[i] != wanted[i])
    return f"row {row}: {found[row]} instead of {wanted[row]}"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.bool_(), "true"),
        (pa.bool_(), "null"),
        (pa.int8(), "-128"),
        (pa.int64(), "9223372036854775807"),
        (pa.int64(), " 7 "),
        (pa.uint8(), "255"),
        (pa.float64(), "0.1"),
        (pa.float64(), "-12.75e-3"),
        (pa.float64(), "0.30000000000000004"),
        (pa.float64(), "123456789012345678901234567890"),
        (pa.float64(), "2.2250738585072014e-308"),
        (pa.float64(), "9007199254740993"),
        (pa.float32(), "0.1"),
        (pa.float32(), "16777217.000001"),
        (pa.string(), '"a longer text without anything special in it"'),
        (pa.string(), r'"tab \t quote \" slash \\ \/ é é 😀 😀"'),
        (pa.string(), r'"\u0000\u00e9\u20ac\ud83d\ude00"'),
        (pa.date32(), '"2024-02-29"'),
        (pa.date32(), '"0001-01-01"'),
        (pa.date32(), '"9999-12-31"'),
        (pa.timestamp("us"), '"1969-12-31T23:59:59.9999999"'),
        (pa.timestamp("us"), '"2023-09-18 14:23:10Z"'),
        (pa.timestamp("us"), "-1"),
        (pa.timestamp("us", "Europe/Zurich"), '"2023-09-18T14:23:10"'),
        (pa.struct([("x", pa.int64())]), '{"y":[1,{"z":[]}],"x":1}'),
        (pa.struct([("x", pa.int64())]), "{}"),
    ],
)
async def test_a_usual_value_is_taken(engine: Engine, kind: pa.DataType, text: str) -> None:
    line = f'{{"a":{text}}}'.encode()
    decoded = await decode(engine, column(kind), line)
    assert not len(decoded.odd)
    check(column(kind), [line], decoded)


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"{", b"{}", b"null", b"[]", b'{"a":null}', b'{"a":1,"a":2}', b'{"a":01}', b'{"a":-0}', b'{"a":1.0}',
        b'{"a":1e2}', b'{"a":+1}', b'{"a":9223372036854775808}', b'{"a":"1"}', b'{"a":true}', b'{"a":1,}', b'{"a":1}}',
        b'{"a":1} {"a":2}', b'{"\\u0061":1}', b'{"a":1,"b":"\t"}', b'{"a":1,"b":"\xff"}', b'{"a":1,"b":"\\ud800"}',
        b'{"a":1,"b":"\xed\xa0\x80"}', b'{"a":1,"b":"\xc0\xaf"}', b'{"a":1,"b":NaN}', b'{"a":1,"b":-Infinity}',
        b'{"a":1,"b":[1,]}', b'{"a":1,"b":1.}', b'{"a":1,"b":.5}', b'{"a":1,"b":1e}', b'{"a":1,"b":nul}',
        b'{"a":1,"b":tru}', b"{'a':1}", b'{"a" 1}', b'{"a":1,b:2}', b'\xef\xbb\xbf{"a":1}', b'{"a":1}\x00',
        b'{"a":1,"b":' + b"[" * 100 + b"]" * 100 + b"}",
    ],
)  # fmt: skip
async def test_a_line_in_doubt_is_left(engine: Engine, line: bytes) -> None:
    decoded = await decode(engine, column(pa.int64(), nullable=False), b'{"a":1}\n' + line + b'\n{"a":2}')
    assert decoded.odd.tolist() == [1]
    assert decoded.rows.column(0).to_pylist() == [1, 2]


async def test_lines_end_in_newlines_with_or_without_a_return(engine: Engine) -> None:
    decoded = await decode(engine, column(pa.int64()), b'{"a":1}\r\n\r\n{"a":2}\n\n {"a":3}\t\r\n')
    assert (decoded.line_count, decoded.odd.tolist()) == (5, [1, 3])
    assert decoded.rows.column(0).to_pylist() == [1, 2, 3]


async def test_a_line_over_the_limit_is_left(engine: Engine) -> None:
    decoded = await decode(engine, column(pa.int64()), b'{"a":1}\n{"a":123}\n', max_line_bytes=8)
    assert decoded.odd.tolist() == [1]


async def test_keys_in_any_order_and_more_than_are_remembered(engine: Engine) -> None:
    mixed = random.Random(5)
    lines = []
    for number in range(3000):
        items = [("id", number), ("text", f"t{number}"), *((f"k{mixed.randrange(2000)}", 1) for _ in range(4))]
        mixed.shuffle(items)
        lines.append(json.dumps(dict(items)).encode())
    decoded = await decode(engine, SCHEMA, b"\n".join(lines))
    assert not len(decoded.odd)
    check(SCHEMA, lines, decoded)


async def test_memory_grows_with_blocks_and_is_given_back(engine: Engine) -> None:
    text = json.dumps({"id": 1, "text": "x" * 3_000_000}).encode()
    lines = [json.dumps({"id": n, "text": str(n), "flag": n % 3 == 0 or None}).encode() for n in range(60_000)]
    before = (await engine.status()).arrow_allocated
    decoder = engine.line_decoder(SCHEMA, LIMIT)
    assert decoder is not None
    for part in (lines[:10], lines, [text] * 12, lines[:1], lines):
        check(SCHEMA, part, await asyncio.to_thread(decoder.decode, b"\n".join(part)))
    assert (await engine.status()).arrow_allocated > before
    decoder.close()

    async def is_free() -> bool:
        return (await engine.status()).arrow_allocated <= before

    await eventually(is_free)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        column(pa.list_(pa.int64())),
        column(pa.decimal128(10, 2)),
        column(pa.binary()),
        column(pa.time64("us")),
        column(pa.timestamp("ms")),
        column(pa.struct([("x", pa.large_string())])),
        pa.schema([("a", pa.int64()), ("a", pa.int64())]),
        pa.schema([('a"b', pa.int64())]),
    ],
)
async def test_a_schema_that_the_parser_does_not_know_has_none(engine: Engine, schema: pa.Schema) -> None:
    assert engine.line_decoder(schema, LIMIT) is None


async def test_a_column_of_json_is_not_left_to_the_parser(engine: Engine) -> None:
    decoder = JsonDecoder(pa.schema([pa.field("a", pa.string(), metadata=JSON_METADATA)]), parsers=engine)
    assert decoder.decode(b'{"a":"x"}').rows.column(0).to_pylist() == ['"x"']


async def test_a_lost_engine_is_told() -> None:
    async with await Engine.start(spark_settings()) as engine:
        decoder = engine.line_decoder(SCHEMA, LIMIT)
        assert decoder is not None
        await asyncio.to_thread(decoder.decode, b'{"id":1}')
        os.kill(engine.pid, 9)
        with pytest.raises(EngineLost, match="signal 9"):
            await asyncio.to_thread(decoder.decode, b'{"id":1}')
        decoder.close()


async def test_a_file_is_read_with_its_odd_lines_in_their_places(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "lines.json"
    texts = [f'{{"a":{n}}}' if n % 40 else f'{{"a":{n}.0}}' for n in range(5000)]
    file.write_text("\n".join(texts))
    options = {"path": str(file), "bad_data": "drop"}
    metadata = {"line": "line", "offset": "offset"}
    schema = pa.schema([("a", pa.int64()), ("line", pa.int64()), ("offset", pa.int64())])
    spec = table_spec(schema, options, metadata=metadata, lines=engine)
    rows = await rows_of(SingleFile().open_source(spec))
    without = await rows_of(SingleFile().open_source(table_spec(schema, options, metadata=metadata)))
    assert rows.column("a").to_pylist() == list(range(5000))
    assert rows.drop_columns("_timestamp").equals(without.drop_columns("_timestamp"))


# What lines may hold, right and wrong.

wild_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "at", "id"]), inner, max_size=3),
    max_leaves=4,
)
stamps = st.datetimes().map(lambda value: value.isoformat()) | st.datetimes().map(lambda value: f"{value} Z")
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-129, 128),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31),
    pa.int64(): st.integers(-(2**63), 2**63),
    pa.uint16(): st.integers(-1, 2**16),
    pa.uint64(): st.integers(0, 2**64),
    pa.float32(): st.floats(width=32, allow_nan=False) | st.floats() | st.integers(),
    pa.float64(): st.floats() | st.integers() | st.decimals(places=2, min_value=-(10**6), max_value=10**6).map(float),
    pa.string(): st.text(max_size=20),
    pa.date32(): st.dates().map(str),
    pa.timestamp("us"): stamps | st.integers(-(10**17), 10**17),
    pa.timestamp("us", "UTC"): stamps,
}


NAMES = ["a", "b", "ab", "a long name", "é", "12345678", ""]
INSERTIONS = [b"", b"}", b",", b"\xff", b"\x00", b'"', b"\\", b"0"]


@st.composite
def typed_fields(draw: st.DrawFn, depth: int = 0) -> list[tuple[pa.Field, st.SearchStrategy[Any]]]:
    names = draw(
        st.lists(st.sampled_from(["a", "b", "ab", "a long name", "é", "12345678", ""]), unique=True, min_size=1)
    )
    return [(pa.field(name, *part[:2]), part[2]) for name in names for part in [draw(typed(depth))]]


@st.composite
def typed(draw: st.DrawFn, depth: int) -> tuple[pa.DataType, bool, st.SearchStrategy[Any]]:
    nullable = draw(st.booleans())
    if depth < 2 and draw(st.integers(0, 4)) == 0:
        members = draw(typed_fields(depth + 1))
        kind, values = pa.struct([field for field, _ in members]), objects(members)
    else:
        kind = draw(st.sampled_from(list(KINDS)))
        values = KINDS[kind]
    return kind, nullable, values | st.none() if nullable else values


def objects(fields: list[tuple[pa.Field, st.SearchStrategy[Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: values for field, values in fields if not field.nullable}
    optional = {field.name: values for field, values in fields if field.nullable}
    return st.fixed_dictionaries(required, optional={**optional, "unwanted": wild_values})


@st.composite
def schemas_and_lines(draw: st.DrawFn) -> tuple[pa.Schema, list[bytes]]:
    fields = draw(typed_fields())
    good, wild = objects(fields), st.dictionaries(st.sampled_from([f.name for f, _ in fields]), wild_values)
    lines = []
    for value in draw(st.lists(st.one_of(good, good, good, wild), max_size=12)):
        separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators)
        line = text.encode("utf-8", "surrogatepass")
        if draw(st.integers(0, 5)) == 0:
            cut = draw(st.integers(0, len(line)))
            line = line[:cut] + draw(st.sampled_from(INSERTIONS)) + line[cut:]
        lines.append(line)
    return pa.schema([field for field, _ in fields]), lines


@settings(max_examples=SCHEMAS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas_and_lines())
async def test_rows_of_any_schema_are_what_their_lines_mean(
    engine: Engine, example: tuple[pa.Schema, list[bytes]]
) -> None:
    schema, lines = example
    check(schema, lines, await decode(engine, schema, b"".join(line + b"\n" for line in lines)))


# Valid lines with a few bytes changed.

TOKENS = [
    b"0", b"-", b".", b"e", b"E", b"+", b"1", b"9", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"\r",
    b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"null",
    b"true", b"false", b"NaN", b"Infinity", b"\\u", b"\\ud83d", b"\\ude00", b"\\u0041", b'"id":1,', b'"x":', b"Z", b"T",
    b"1e400", b"1e-400", b"-0", b"00", b"{}", b"[]", b'""', b"2024-02-30", b"24:00:00", b"99999999999999999999",
]  # fmt: skip


def valid_lines(chance: random.Random) -> Iterator[bytes]:
    while True:
        at = chance.randrange(-(10**13), 10**13)
        value: dict[str, Any] = {
            "id": chance.randrange(-(2 ** chance.randrange(1, 64)), 2 ** chance.randrange(1, 64)),
            "tiny": chance.randrange(-128, 128),
            "size": chance.choice([None, chance.randrange(2**32)]),
            "huge": chance.randrange(2**63),
            "ratio": chance.choice(
                [chance.random(), round(chance.uniform(-1e6, 1e6), 2), 10 ** chance.uniform(-310, 300)]
            ),
            "part": chance.choice([chance.random(), round(chance.uniform(-9, 9), 3), 10 ** chance.uniform(-38, 38)]),
            "text": chance.choice(["", "plain text of some length", 'es"ca\\ped\n', "é€😀", "\x7f\u2028"]),
            "naïve": "ï" * chance.randrange(4),
            "day": f"{chance.randrange(1, 10000):04}-{chance.randrange(1, 13):02}-{chance.randrange(1, 30):02}",
            "at": chance.choice([at, "2023-09-18T14:23:10.123456Z", "1582-10-04 00:00:00"]),
            "zoned": f"2000-02-{chance.randrange(1, 30):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:07",
            "flag": chance.choice([True, False, None]),
            "inner": chance.choice([None, {"x": 1}, {"x": -7, "s": "é", "deep": {"at": 5}}, {"s": "", "x": 2, "q": 1}]),
            "other": chance.choice([1, "a", None, [1, [2.5e-3, {}]], {"a": {"b": [True, "\\"]}}, -1.5, "\ud83d\ude00"]),
        }
        items = [item for item in value.items() if item[0] == "id" or chance.random() < 0.6]
        if chance.random() < 0.3:
            chance.shuffle(items)
        spaces = chance.choice([(",", ":"), (", ", ": "), (" ,\t", " : ")])
        text = json.dumps(dict(items), ensure_ascii=chance.random() < 0.5, separators=spaces)
        yield text.encode("utf-8", "surrogatepass")


def mutated(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        at, length = chance.randrange(len(line) + 1), chance.choice([0, 0, 1, 1, 2, 5])
        put = chance.choice([b"", chance.choice(TOKENS), chance.choice(TOKENS), bytes([chance.randrange(256)])])
        line = line[:at] + put + line[at + length :]
    return line.replace(b"\n", b"")


@pytest.mark.timeout(1200)
async def test_changed_bytes_never_make_a_line_mean_something_else(engine: Engine) -> None:
    chance = random.Random(FUZZED_LINES)
    source = valid_lines(chance)
    decoder = engine.line_decoder(SCHEMA, LIMIT)
    assert decoder is not None
    taken = 0
    for _ in range(FUZZED_LINES // 2000):
        lines = [mutated(next(source), chance) for _ in range(2000)]
        decoded = await asyncio.to_thread(decoder.decode, b"".join(line + b"\n" for line in lines))
        check(SCHEMA, lines, decoded)
        taken += decoded.rows.num_rows
    decoder.close()
    assert taken > FUZZED_LINES / 10


async def test_a_block_with_some_odd_lines_is_what_it_is_without_the_parser(engine: Engine) -> None:
    chance = random.Random(1)
    source = valid_lines(chance)
    fast, slow = JsonDecoder(SCHEMA, parsers=engine), JsonDecoder(SCHEMA)
    for _ in range(10):
        lines = [
            mutated(next(source), chance) if chance.random() < 0.02 else b'{"id":1,"flag":true}' for _ in range(1000)
        ]
        block = b"\n".join(lines)
        found, wanted = await asyncio.to_thread(fast.decode, block, 7), slow.decode(block, 7)
        assert found.rows.equals(wanted.rows)
        assert found.rejected == wanted.rejected
        assert found.row_lines.tolist() == wanted.row_lines.tolist()
        assert found.row_offsets.tolist() == wanted.row_offsets.tolist()
        assert found.line_count == wanted.line_count
    fast.close()


async def test_a_block_of_odd_lines_is_read_without_the_parser(engine: Engine) -> None:
    decoder = JsonDecoder(column(pa.int64()), parsers=engine)
    for block in (b'{"a":1.0}\n' * 100, b'{"a":1}\n' * 100):
        assert decoder.decode(block).rows.column(0).to_pylist() == [1] * 100
    decoder.close()


PLACED = SCHEMA.append(pa.field("line", pa.int64())).append(pa.field("place", pa.int64()))


async def read_file(path: Path, lines: LineParsers | None, parallelism: int = 1) -> tuple[list[Any], list[Any]]:
    """All rows of a file, and what was refused of it, whoever reads it."""
    rows: list[Any] = []
    refused: list[Any] = []
    options = {"path": str(path), "bad_data": "dead_letter", "dead_letter": "bad"}
    for subtask in range(parallelism):
        spec = table_spec(
            PLACED,
            options,
            metadata={"line": "line", "place": "offset"},
            subtask=subtask,
            parallelism=parallelism,
            lines=lines,
        )
        async for batch in batches_of(SingleFile().open_source(spec)):
            rows += batch.rows.drop_columns(["_timestamp"]).to_pylist()
            if batch.dead_letters is not None:
                refused += batch.dead_letters.drop_columns(["_timestamp"]).to_pylist()
    return rows, refused


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
async def test_a_file_that_the_engine_reads_has_the_same_rows_and_places(
    engine: Engine, tmp_path: Path, mark: bytes
) -> None:
    chance = random.Random(2)
    source = valid_lines(chance)
    lines = [mutated(next(source), chance) if chance.random() < 0.01 else next(source) for _ in range(8000)]
    path = tmp_path / "rows.json"
    path.write_bytes(mark + b"\n".join(lines))
    wanted = await read_file(path, None)
    assert wanted[1]
    for parallelism in (1, 3):
        assert await read_file(path, engine, parallelism) == wanted


async def test_a_file_that_was_removed_while_it_is_read_is_read_to_its_end(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"a":1}\n' * 200_000)
    source = SingleFile().open_source(table_spec(column(pa.int64()), {"path": str(path)}, lines=engine))
    first = await source.read()
    assert first is not None
    path.unlink()
    rest = [batch.rows.num_rows async for batch in batches_of(source)]
    assert first.rows.num_rows + sum(rest) == 200_000


async def test_blocks_are_sent_to_a_parser_that_cannot_open_the_file(engine: Engine, tmp_path: Path) -> None:
    class Blind:
        def __init__(self, inner: LineParser) -> None:
            self._inner = inner
            self.asked = 0

        def decode(self, block: bytes | memoryview) -> ParsedLines:
            return self._inner.decode(block)

        def decode_file(self, path: str, offset: int, length: int) -> ParsedLines:
            self.asked += 1
            return self._inner.decode_file("/proc/self/nothing", offset, length)

        def close(self) -> None:
            self._inner.close()

    class Parsers:
        def line_decoder(self, schema: pa.Schema, max_line_bytes: int) -> LineParser | None:
            inner = engine.line_decoder(schema, max_line_bytes)
            assert inner is not None
            blinds.append(Blind(inner))
            return blinds[-1]

    blinds: list[Blind] = []
    path = tmp_path / "rows.json"
    path.write_bytes(b'{"a":1}\n' * 200_000)
    source = SingleFile().open_source(table_spec(column(pa.int64()), {"path": str(path)}, lines=Parsers()))
    assert (await rows_of(source)).num_rows == 200_000
    assert [blind.asked for blind in blinds] == [1]


async def test_files_that_had_one_descriptor_after_another_are_told_apart(engine: Engine, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}.json").write_bytes(b'{"a":%d}\n' % number * 100)
    source = Filesystem().open_source(table_spec(column(pa.int64()), {"path": str(tmp_path)}, lines=engine))
    rows = await rows_of(source)
    assert sorted(rows.column("a").to_pylist()) == [number for number in range(50) for _ in range(100)]
