"""SQL can call what `functions` lists, and divides as Postgres does."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.spark import (
    DataError,
    Engine,
    FragmentSpec,
    FunctionKind,
    Mode,
    Position,
    SqlError,
    Udf,
    UdfError,
    UdfKind,
)

NUMBERS = pa.schema(
    [
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("big", pa.int64()),
        ("real", pa.float64()),
        ("exact", pa.decimal128(10, 2)),
    ]
)
NULLS = dict.fromkeys(NUMBERS.names)


async def quotients(engine: Engine, arguments: str, *rows: dict[str, object], mode: Mode = Mode.DIRECT) -> pa.Array:
    sql = f"SELECT penstock_divide({arguments}) AS q FROM t"
    async with await engine.plan(FragmentSpec(sql, {"t": NUMBERS}, mode=mode)) as fragment:
        (result,) = await fragment.run(pa.RecordBatch.from_pylist([NULLS | row for row in rows], NUMBERS))
    return result.column(0)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("arguments", "row", "quotient"),
    [
        ("whole, 2", {"whole": 7}, pa.scalar(3, pa.int32())),
        ("whole, 2", {"whole": -7}, pa.scalar(-3, pa.int32())),
        ("whole, -2", {"whole": 7}, pa.scalar(-3, pa.int32())),
        ("tiny, tiny", {"tiny": 5}, pa.scalar(1, pa.int8())),
        ("tiny, small", {"tiny": 100, "small": 300}, pa.scalar(0, pa.int16())),
        ("small, whole", {"small": 300, "whole": 7}, pa.scalar(42, pa.int32())),
        ("big, whole", {"big": 2**62, "whole": 3}, pa.scalar(2**62 // 3, pa.int64())),
        ("whole, big", {"whole": 9, "big": 2}, pa.scalar(4, pa.int64())),
        ("whole, 2", {}, pa.scalar(None, pa.int32())),
        ("2, whole", {}, pa.scalar(None, pa.int32())),
        ("whole, NULL", {"whole": 1}, pa.scalar(None, pa.int32())),
        ("NULL, big", {"big": 0}, pa.scalar(None, pa.int64())),
        ("real, 2", {"real": 7.0}, pa.scalar(3.5)),
        ("whole, real", {"whole": 7, "real": 2.0}, pa.scalar(3.5)),
        ("exact, whole", {"exact": Decimal("7.00"), "whole": 2}, pa.scalar(Decimal("3.5"), pa.decimal128(21, 13))),
        ("penstock_divide(whole, 2), 2.0", {"whole": 7}, pa.scalar(Decimal("1.5"), pa.decimal128(17, 6))),
    ],
)
async def test_integers_are_divided_as_in_postgres_and_the_rest_as_in_spark(
    engine: Engine, mode: Mode, arguments: str, row: dict[str, object], quotient: pa.Scalar
) -> None:
    result = await quotients(engine, arguments, row, mode=mode)
    assert result.type == quotient.type
    assert result[0] == quotient or (not result[0].is_valid and not quotient.is_valid)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("arguments", "row", "error_class"),
    [
        ("1, whole", {"whole": 0}, "DIVIDE_BY_ZERO"),
        ("1, real", {"real": 0.0}, "DIVIDE_BY_ZERO"),
        ("big, -1", {"big": -(2**63)}, "ARITHMETIC_OVERFLOW"),
        ("whole, -1", {"whole": -(2**31)}, "CAST_OVERFLOW"),
    ],
)
async def test_quotient_that_does_not_exist_is_an_error_with_its_place(
    engine: Engine, mode: Mode, arguments: str, row: dict[str, object], error_class: str
) -> None:
    with pytest.raises(DataError) as failed:
        await quotients(engine, arguments, row, mode=mode)
    assert failed.value.error_class == error_class
    assert failed.value.position == (None if error_class == "CAST_OVERFLOW" else Position(1, 8))


@pytest.mark.parametrize(
    ("arguments", "error_class", "column"),
    [
        ("whole", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION", 8),
        ("whole, nope", "UNRESOLVED_COLUMN.WITH_SUGGESTION", 31),
        ("array(1), 2", "DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", 8),
    ],
)
async def test_division_that_cannot_be_analysed_is_an_error_with_its_place(
    engine: Engine, arguments: str, error_class: str, column: int
) -> None:
    with pytest.raises(SqlError) as wrong:
        await quotients(engine, arguments)
    assert wrong.value.error_class == error_class
    assert wrong.value.position == Position(1, column)


async def test_division_cannot_be_hidden_by_a_users_function(engine: Engine) -> None:
    with pytest.raises(UdfError, match="name of a built-in function"):
        await engine.register(Udf("penstock_divide", lambda a, b: a, pa.int64()))


async def test_functions_are_listed_with_their_kinds(engine: Engine) -> None:
    await engine.register(Udf("listed_scalar", lambda x: x, pa.int64()))
    await engine.register(Udf("listed_aggregate", lambda x: 1, pa.int64(), UdfKind.ARROW_AGGREGATE))
    functions = await engine.functions()
    kinds = {
        FunctionKind.SCALAR: ("upper", "transform", "aggregate", "window", "penstock_divide", "listed_scalar"),
        FunctionKind.AGGREGATE: ("sum", "max_by", "listagg", "schema_of_variant_agg", "vector_sum", "listed_aggregate"),
        FunctionKind.WINDOW: ("row_number", "lag", "nth_value"),
        FunctionKind.GENERATOR: ("explode", "posexplode_outer", "inline", "stack", "json_tuple"),
        FunctionKind.TABLE: ("range",),
    }
    for kind, names in kinds.items():
        assert {name: functions.get(name) for name in names} == dict.fromkeys(names, kind)
    assert len(functions) > 500
    assert "+" not in functions
