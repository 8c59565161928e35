"""Values of every type cross to Spark and back unchanged."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.spark import DataError, Engine, FragmentRefused, FragmentSpec
from penstock.spark.partitioning import partition_of

_LIMITS = (datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - timestamps without a zone are under test


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda unscaled: Decimal(f"{unscaled}e-{scale}"))


text = st.text(st.characters(codec="utf-8"), max_size=12)
intervals = st.tuples(integers(32), integers(32), st.integers(-(10**12), 10**12)).map(
    lambda parts: pa.MonthDayNano([parts[0], parts[1], parts[2] * 1000])
)

LEAVES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64),
    pa.uint8(): integers(8, signed=False),
    pa.uint16(): integers(16, signed=False),
    pa.uint32(): integers(32, signed=False),
    pa.uint64(): integers(64, signed=False),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.string(): text,
    pa.large_string(): text,
    pa.binary(): st.binary(max_size=12),
    pa.date32(): st.dates(date(1, 1, 2)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(*_LIMITS),
    pa.timestamp("ms"): st.datetimes(*_LIMITS).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    pa.timestamp("us", tz="UTC"): st.datetimes(*_LIMITS).map(lambda at: at.replace(tzinfo=UTC)),
    pa.duration("us"): st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000)),
    pa.month_day_nano_interval(): intervals,
    pa.dictionary(pa.int32(), pa.string()): text,
    pa.null(): st.none(),
}
# Arrow casts these only at the top of a row, so only there do they cross.
_TOP_ONLY = {pa.dictionary(pa.int32(), pa.string())}

Typed = tuple[pa.DataType, st.SearchStrategy[object]]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def structs(fields: list[Typed]) -> Typed:
        names = [f"f{index}" for index in range(len(fields))]
        kind = pa.struct([pa.field(name, kind) for name, (kind, _) in zip(names, fields, strict=True)])
        return kind, st.fixed_dictionaries(
            {name: st.none() | values for name, (_, values) in zip(names, fields, strict=True)}
        )

    def lists(element: Typed) -> Typed:
        return pa.list_(element[0]), st.lists(st.none() | element[1], max_size=4)

    def maps(value: Typed) -> Typed:
        pairs = st.dictionaries(text, st.none() | value[1], max_size=4).map(lambda entries: list(entries.items()))
        return pa.map_(pa.string(), value[0]), pairs

    return st.lists(inner, min_size=1, max_size=3).map(structs) | inner.map(lists) | inner.map(maps)


leaves = st.sampled_from(sorted(LEAVES.items(), key=lambda item: str(item[0])))
inner_leaves = leaves.filter(lambda typed: typed[0] not in _TOP_ONLY)
any_type = leaves | st.recursive(inner_leaves, nested, max_leaves=5)


@st.composite
def batches(draw: st.DrawFn, columns: st.SearchStrategy[Typed] = any_type) -> pa.RecordBatch:
    typed = draw(st.lists(columns, min_size=1, max_size=5))
    rows = draw(st.integers(0, 12))
    arrays, fields = [], []
    for index, (kind, values) in enumerate(typed):
        nullable = draw(st.booleans()) or pa.types.is_null(kind)
        cells = draw(st.lists(st.none() | values if nullable else values, min_size=rows, max_size=rows))
        arrays.append(pa.array(cells, kind))
        fields.append(pa.field(f"c{index}", kind, nullable))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


crossing = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@crossing
@given(batch=batches())
@pytest.mark.parametrize("sql", ["SELECT * FROM rows", "SELECT * FROM rows LIMIT 1000"])
async def test_identity_returns_what_was_sent(engine: Engine, batch: pa.RecordBatch, sql: str) -> None:
    """Without a limit, columns that are only passed on need not cross to the JVM."""
    spec = FragmentSpec(sql, {"rows": batch.schema}, batch.schema)
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(batch)
        assert result.schema == batch.schema
        assert result.to_pylist() == batch.to_pylist()


@st.composite
def keyed(draw: st.DrawFn) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    batch = draw(batches(inner_leaves.filter(lambda typed: not pa.types.is_null(typed[0]))))
    keys = draw(st.lists(st.sampled_from(batch.schema.names), min_size=1, unique=True))
    return batch, tuple(keys)


@crossing
@given(sample=keyed(), partitions=st.sampled_from([1, 2, 3, 7]))
async def test_partitions_are_a_permutation_placed_by_hash(
    engine: Engine, sample: tuple[pa.RecordBatch, tuple[str, ...]], partitions: int
) -> None:
    batch, keys = sample
    sql = f"SELECT *, hash({', '.join(keys)}) AS h FROM rows"
    spec = FragmentSpec(sql, {"rows": batch.schema}, None, keys if partitions > 1 else (), partitions)
    async with await engine.plan(spec) as fragment:
        parts = await fragment.run(batch)
    assert len(parts) == partitions
    for index, part in enumerate(parts):
        assert all(partition_of(row_hash, partitions) == index for row_hash in part["h"].to_pylist())
    async with await engine.plan(FragmentSpec(sql, {"rows": batch.schema})) as fragment:
        (whole,) = await fragment.run(batch)
    rows = [str(row) for part in parts for row in part.to_pylist()]
    assert sorted(rows) == sorted(str(row) for row in whole.to_pylist())


async def test_nan_and_negative_zero_are_kept(engine: Engine) -> None:
    batch = pa.record_batch({"x": pa.array([float("nan"), -0.0, 0.0, float("inf"), None])})
    async with await engine.plan(FragmentSpec("SELECT * FROM rows", {"rows": batch.schema})) as fragment:
        (result,) = await fragment.run(batch)
    assert str(result["x"].to_pylist()) == str(batch["x"].to_pylist())


async def test_year_month_interval_arrives_as_calendar_interval(engine: Engine) -> None:
    one = pa.record_batch({"x": [1]})
    sql = """SELECT INTERVAL '1-2' YEAR TO MONTH AS i, INTERVAL '3' YEAR AS y,
                    INTERVAL '1 2:03:04' DAY TO SECOND AS d FROM rows"""
    async with await engine.plan(FragmentSpec(sql, {"rows": one.schema})) as fragment:
        (result,) = await fragment.run(one)
    assert result.to_pylist() == [
        {
            "i": pa.MonthDayNano([14, 0, 0]),
            "y": pa.MonthDayNano([36, 0, 0]),
            "d": timedelta(days=1, hours=2, minutes=3, seconds=4),
        }
    ]


async def test_nested_year_month_interval_is_refused(engine: Engine) -> None:
    one = pa.schema([("x", pa.int64())])
    with pytest.raises(FragmentRefused, match="year-month interval inside a nested type"):
        await engine.plan(FragmentSpec("SELECT array(INTERVAL '1' MONTH) AS i FROM rows", {"rows": one}))


async def test_map_whose_entries_have_other_names_crosses(engine: Engine) -> None:
    kind = pa.map_(pa.field("word", pa.string(), nullable=False), pa.field("count", pa.int64()))
    schema = pa.schema([("m", kind)])
    batch = pa.RecordBatch.from_pylist([{"m": [("one", 1), ("none", None)]}, {"m": None}], schema)
    async with await engine.plan(FragmentSpec("SELECT m, m['one'] AS n FROM input", {"input": schema})) as fragment:
        (result,) = await fragment.run(batch)
    assert result.to_pylist() == [{"m": [("one", 1), ("none", None)], "n": 1}, {"m": None, "n": None}]


async def test_time_of_day_is_a_type(engine: Engine) -> None:
    batch = pa.record_batch({"t": pa.array([time(1, 2, 3, 4), None], pa.time64("us"))})
    spec = FragmentSpec("SELECT t, hour(t) AS h FROM rows", {"rows": batch.schema})
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(batch)
    assert result["h"].to_pylist() == [1, None]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.duration("ns"), pa.decimal256(50, 2), pa.dense_union([pa.field("a", pa.int8())])]
)
def test_type_without_counterpart_is_refused_with_its_column(kind: pa.DataType) -> None:
    with pytest.raises(FragmentRefused, match=r"column s\.inner is of type"):
        FragmentSpec("SELECT 1", {"rows": pa.schema([("s", pa.struct([("inner", kind)]))])})


async def test_value_that_does_not_fit_the_declared_output_is_the_users_error(engine: Engine) -> None:
    batch = pa.record_batch({"x": pa.array([1, -1], pa.int64())})
    spec = FragmentSpec("SELECT x FROM rows", {"rows": batch.schema}, pa.schema([("x", pa.uint32())]))
    async with await engine.plan(spec) as fragment:
        with pytest.raises(DataError, match="does not fit"):
            await fragment.run(batch)
        (result,) = await fragment.run(batch.slice(0, 1))
    assert result.schema.field("x").type == pa.uint32()


async def test_declared_output_of_another_type_is_refused(engine: Engine) -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(FragmentRefused, match="column x is of type int64, not string"):
        await engine.plan(FragmentSpec("SELECT x FROM rows", {"rows": schema}, pa.schema([("x", pa.string())])))


async def test_null_in_a_not_null_column_is_refused(engine: Engine) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], schema=schema)
    async with await engine.plan(FragmentSpec("SELECT x FROM rows", {"rows": schema})) as fragment:
        with pytest.raises(ValueError, match="declared not null"):
            await fragment.run(batch)


@pytest.mark.parametrize(
    ("kind", "two"),
    [
        (pa.bool_(), [True, False]), (pa.int8(), [1, 2]), (pa.int16(), [1, 2]), (pa.int32(), [1, 2]),
        (pa.int64(), [1, 2]), (pa.float32(), [0.5, 2]), (pa.float64(), [0.1, 2]), (pa.string(), ["a", "long enough"]),
        (pa.date32(), [1, 2]), (pa.timestamp("us"), [1, 2]), (pa.timestamp("us", "UTC"), [1, 2]),
        (pa.binary(), [b"a", b""]), (pa.decimal128(9, 2), [Decimal(1), Decimal(2)]), (pa.list_(pa.int64()), [[1], []]),
    ],
    ids=str,
)  # fmt: skip
async def test_batches_of_a_run_have_their_own_values_and_nulls(
    engine: Engine, kind: pa.DataType, two: list[object]
) -> None:
    values = pa.array([two[n % 2] for n in range(100)], kind)
    nulls = pa.array([None, *values.to_pylist()[1:], None], kind)
    schema = pa.schema([("a", kind)])
    sent = [pa.RecordBatch.from_arrays([array], schema=schema) for array in (values, nulls, values.slice(3), nulls)]
    async with await engine.plan(FragmentSpec("SELECT a FROM t WHERE rand() >= 0", {"t": schema}, schema)) as fragment:
        (result,) = await fragment.run(sent)
    assert result.column(0).equals(pa.concat_arrays([batch.column(0) for batch in sent]))


@pytest.mark.parametrize(("kind", "other"), [("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"), ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ")])
async def test_a_local_time_is_an_instant_of_utc(engine: Engine, kind: str, other: str) -> None:
    micros = [0, -1, 1_711_846_799_999_999, -(2**62), 2**62, None]
    schema = pa.schema([("t", pa.timestamp("us", "UTC" if kind == "TIMESTAMP_LTZ" else None))])
    spec = FragmentSpec(
        f"SELECT CAST(t AS {other}) AS a, CAST(CAST(t AS {other}) AS {kind}) AS b FROM rows", {"rows": schema}
    )
    async with await engine.plan(spec) as fragment:
        (result,) = await fragment.run(pa.record_batch([pa.array(micros).cast(schema.field("t").type)], schema=schema))
    assert result.column("a").cast(pa.int64()).to_pylist() == micros
    assert result.column("b").cast(pa.int64()).to_pylist() == micros
    assert result.schema.field("a").type.tz != result.schema.field("b").type.tz
