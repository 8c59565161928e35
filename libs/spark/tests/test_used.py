"""Of its inputs a query is given no more than it reads, and then gives the same rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.spark import Engine, FragmentSpec, Mode

EVENTS = pa.schema(
    [
        ("person", pa.struct([("id", pa.int64()), ("name", pa.string()), ("at", pa.struct([("x", pa.int32())]))])),
        ("auction", pa.struct([("id", pa.int64()), ("seller", pa.int64()), ("item", pa.string())])),
        ("bid", pa.struct([("url", pa.string()), ("auction", pa.int64()), ("price", pa.int64()), ("n", pa.int32())])),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("qty", pa.uint32()), ("price", pa.float64())]))),
        ("more", pa.large_list(pa.struct([("sku", pa.large_string()), ("qty", pa.int32())]))),
        ("pair", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.int32())]), 2)),
        ("m", pa.map_(pa.string(), pa.struct([("v", pa.int32()), ("w", pa.string())]))),
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("z", pa.int16()),
    ]
)


def event(i: int) -> dict[str, object]:
    items = [{"sku": f"s{j}", "qty": i + j, "price": j / 2} for j in range(i % 4)]
    row: dict[str, object] = {
        "person": {"id": i, "name": f"p{i % 5}", "at": {"x": i % 3} if i % 4 else None},
        "auction": {"id": i % 7, "seller": i % 3, "item": f"i{i}"},
        "bid": {"url": f"u{i % 6}", "auction": i % 7, "price": i * 37 % 101 or None, "n": i % 10},
        "items": [*items, None] if i % 5 == 0 else items,
        "more": [{"sku": f"m{i}", "qty": i}],
        "pair": [{"a": i, "b": -i}, {"a": 0, "b": 1}],
        "m": [("k", {"v": i, "w": f"w{i}"})],
        "x": i % 9,
        "y": 50 - i,
        "z": i % 4,
    }
    return row | {name: None for offset, name in enumerate(row) if (i + offset) % 13 == 0}


ROWS = [event(i) for i in range(60)]


@pytest.mark.parametrize(
    ("sql", "used"),
    [
        ("SELECT x, z FROM e WHERE y > 3", "x: int64, y: int64, z: int16"),
        ("SELECT bid.price FROM e", "bid: struct<price: int64>"),
        ("SELECT e.bid['price'] AS p FROM e", "bid: struct<price: int64>"),
        ("SELECT person.at.x, auction.id FROM e", "person: struct<at: struct<x: int32>>, auction: struct<id: int64>"),
        ("SELECT b.price FROM (SELECT bid AS b FROM e) WHERE b.n > 3", "bid: struct<price: int64, n: int32>"),
        ("SELECT x FROM e ORDER BY bid.price, x, y", "bid: struct<price: int64>, x: int64, y: int64"),
        (
            "SELECT one.bid.price, two.auction.item FROM e one JOIN e two ON one.bid.auction = two.auction.id",
            "auction: struct<id: int64, item: string>, bid: struct<auction: int64, price: int64>",
        ),
        (
            "SELECT bid.auction, max(bid.price), count(DISTINCT bid.n) AS n, count(DISTINCT x) FROM e GROUP BY ALL",
            "bid: struct<auction: int64, price: int64, n: int32>, x: int64",
        ),
        (
            "SELECT bid.auction, r FROM (SELECT bid, row_number() OVER (PARTITION BY bid.auction ORDER BY bid.price, x,"
            " y) AS r FROM e) WHERE r < 3",
            "bid: struct<auction: int64, price: int64>, x: int64, y: int64",
        ),
        ("SELECT b.price FROM (SELECT bid AS b FROM e UNION ALL SELECT bid FROM e)", "bid: struct<price: int64>"),
        ("SELECT x FROM e WHERE z IN (SELECT bid.n FROM e)", "bid: struct<n: int32>, x: int64, z: int16"),
        # Structs in arrays and maps.
        ("SELECT items.sku AS s FROM e", "items: list<item: struct<sku: string>>"),
        ("SELECT pair[z % 2].b AS b FROM e", "pair: fixed_size_list<item: struct<b: int32>>[2], z: int16"),
        ("SELECT more[0].sku AS s FROM e WHERE more IS NOT NULL", "more: large_list<item: struct<sku: large_string>>"),
        ("SELECT i.price FROM (SELECT explode(items) AS i FROM e)", "items: list<item: struct<price: double>>"),
        ("SELECT x, i.qty FROM e LATERAL VIEW explode(items) AS i", "items: list<item: struct<qty: uint32>>, x: int64"),
        ("SELECT m['k'].v FROM e", "m: map<string, struct<v: int32, w: string>>"),
        # Whether a struct is there is told by its smallest field.
        ("SELECT count(*) AS c FROM e WHERE bid IS NOT NULL", "bid: struct<n: int32>"),
        ("SELECT person.at IS NULL AS a FROM e", "person: struct<at: struct<x: int32>>"),
        ("SELECT items IS NULL AS n FROM e", "items: list<item: struct<qty: uint32>>"),
        (
            "SELECT CASE WHEN bid IS NOT NULL THEN bid.auction ELSE auction.id END AS a FROM e",
            "auction: struct<id: int64>, bid: struct<auction: int64>",
        ),
        # All of a struct is read where it is used as a whole.
        ("SELECT to_json(auction) AS j, auction.id FROM e", "auction: struct<id: int64, seller: int64, item: string>"),
        ("SELECT DISTINCT auction FROM e", "auction: struct<id: int64, seller: int64, item: string>"),
        ("SELECT auction.* FROM e", "auction: struct<id: int64, seller: int64, item: string>"),
        # What the optimiser drops stays where SQL could not be analysed without it.
        ("SELECT x FROM (SELECT x, y + 1 AS w FROM e)", "x: int64, y: int64"),
        (
            "SELECT id FROM (SELECT auction.*, 1 AS one FROM e)",
            "auction: struct<id: int64, seller: int64, item: string>",
        ),
        # Rows are counted by the smallest column.
        ("SELECT count(*) AS c FROM e", "z: int16"),
        ("SELECT 1 AS one FROM e", "z: int16"),
        ("SELECT count(*) AS c FROM (SELECT * FROM e)", "z: int16"),
        # Functions that every analysis makes anew.
        ("SELECT x FROM (SELECT x, rand() AS r FROM e) WHERE r < 2", "x: int64"),
        ("SELECT x FROM (SELECT x, now() AS t, uuid() AS u FROM e) WHERE t > TIMESTAMP '2000-01-01'", "x: int64"),
        (
            "SELECT transform(items, i -> i.qty) AS q, x FROM e",
            "items: list<item: struct<sku: string, qty: uint32, price: double>>, x: int64",
        ),
    ],
)
async def test_only_what_is_read_is_used_and_gives_the_same_rows(engine: Engine, sql: str, used: str) -> None:
    narrow = (await engine.used_by(sql, {"e": EVENTS}))["e"]
    assert ", ".join(f"{field.name}: {field.type}" for field in narrow) == used
    await assert_same_rows(engine, sql, narrow)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT z FROM (SELECT * FROM e ORDER BY 9, 8 LIMIT 5)",
        "SELECT w FROM e AS t(a, b, c, d, f, g, h, i, w, k)",
        "SELECT * FROM e",
    ],
)
async def test_columns_counted_by_position_are_all_used(engine: Engine, sql: str) -> None:
    narrow = (await engine.used_by(sql, {"e": EVENTS}))["e"]
    assert narrow == EVENTS
    await assert_same_rows(engine, sql, narrow)


async def test_the_same_is_used_each_time(engine: Engine) -> None:
    sql = """
        SELECT a.x, count(DISTINCT a.bid.n), count(DISTINCT b.person.name), sum(DISTINCT b.auction.seller), max(a.z)
        FROM e AS a JOIN e AS b ON a.person.id = b.auction.id AND a.items[0].sku = b.bid.url GROUP BY ALL
    """
    found = [(await engine.used_by(sql, {"e": EVENTS}))["e"] for _ in range(10)]
    assert found[0].names == ["person", "auction", "bid", "items", "x", "z"]
    assert found == [found[0]] * 10


async def assert_same_rows(engine: Engine, sql: str, narrow: pa.Schema) -> None:
    rows = []
    for schema in (EVENTS, narrow):
        async with await engine.plan(FragmentSpec(sql, {"e": schema}, mode=Mode.JOB)) as fragment:
            (result,) = await fragment.run(pa.RecordBatch.from_pylist(ROWS, schema))
            assert result.num_rows
            rows.append(sorted(map(repr, result.to_pylist())))
    assert rows[0] == rows[1]


async def test_used_columns_keep_their_order_and_metadata(engine: Engine) -> None:
    inner = pa.field("in", pa.int64(), nullable=False, metadata={"of": "inner"})
    schema = pa.schema(
        [
            pa.field("c", pa.int64(), metadata={"of": "c"}),
            ("b", pa.string()),
            pa.field("s", pa.struct([("out", pa.string()), inner]), nullable=False, metadata={"of": "s"}),
            pa.field("a", pa.uint8(), metadata={"of": "a"}),
        ],
        metadata={"of": "all"},
    )
    expected = pa.schema(
        [schema.field("c"), schema.field("s").with_type(pa.struct([inner])), schema.field("a")], schema.metadata
    )
    used = await engine.used_by("SELECT a, s.in, c FROM t", {"t": schema, "unread": schema})
    assert used["t"].equals(expected, check_metadata=True)
    assert used["t"].field("s").type.field("in").metadata == {b"of": b"inner"}
    assert used["unread"].equals(pa.schema([schema.field("a")], schema.metadata), check_metadata=True)
