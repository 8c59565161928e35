"""Changes are read from and written to files as Debezium's envelopes, and mean what the tables behind them hold."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from reference.cases import FULL
from reference.comparison import Row, difference, rows_of
from reference.runs import Cut, compiled, run_job

from penstock.connectors.registry import CONNECTORS
from penstock.spark import Engine

ACCOUNTS: Final = pa.schema([("id", pa.int64()), ("owner", pa.string()), ("balance", pa.int64())])

QUERIES: Final = {
    "sums_of_a_table_that_changes": (
        "SELECT owner, sum(balance) AS total, count(*) AS n FROM accounts GROUP BY owner",
        "SELECT owner, sum(balance), count(*) FROM accounts GROUP BY owner",
    ),
    "rows_of_a_table_that_changes": (
        "SELECT id, owner, balance * 2 AS twice FROM accounts WHERE balance % 3 = 0",
        "SELECT id, owner, balance * 2 FROM accounts WHERE balance % 3 = 0",
    ),
    "extremes_of_a_table_that_changes": (
        "SELECT max(balance) AS most, min(balance) AS least, count(DISTINCT owner) AS owners FROM accounts",
        "SELECT max(balance), min(balance), count(DISTINCT owner) FROM accounts",
    ),
    "top_of_a_table_that_changes": (
        """SELECT owner, id, balance FROM (
             SELECT owner, id, balance, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY balance DESC, id) AS place
             FROM accounts) WHERE place <= 2""",
        """SELECT owner, id, balance FROM accounts
           QUALIFY ROW_NUMBER() OVER (PARTITION BY owner ORDER BY balance DESC, id) <= 2""",
    ),
    "counts_of_counts_of_a_table_that_changes": (
        "SELECT n, count(*) AS owners FROM (SELECT owner, count(*) AS n FROM accounts GROUP BY owner) GROUP BY n",
        "SELECT n, count(*) FROM (SELECT owner, count(*) AS n FROM accounts GROUP BY owner) GROUP BY n",
    ),
}


def history(count: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Changes of a table, as Debezium tells them, and what the table holds after all of them."""
    dice = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    changes = []
    for number in range(count):
        before = rows.pop(dice.choice(list(rows))) if rows and dice.random() < 0.6 else None
        after: dict[str, Any] | None = None
        if before is None or dice.random() < 0.7:
            identity = number if before is None else before["id"]
            after = {"id": identity, "owner": dice.choice(["ann", "bob", "cy", None]), "balance": dice.randint(0, 50)}
            rows[identity] = after
        op = "d" if after is None else dice.choice("cr") if before is None else "u"
        changes.append({"before": before, "after": after, "op": op, "ts_ms": 1_709_280_000_000 + number})
    return changes, list(rows.values())


def left_by(path: Path) -> list[dict[str, Any]]:
    """What envelopes in a file leave, one after the other."""
    present: Counter[str] = Counter()
    for envelope in map(json.loads, path.read_text().splitlines()):
        before, after = envelope["before"], envelope["after"]
        assert (
            envelope["op"]
            == {(True, False): "c", (False, False): "u", (False, True): "d"}[before is None, after is None]
        )
        if before is not None:
            present[json.dumps(before)] -= 1
            assert present[json.dumps(before)] >= 0, f"a row is taken back that is not there: {before}"
        if after is not None:
            present[json.dumps(after)] += 1
    return [json.loads(row) for row in present.elements()]


def values(rows: Sequence[dict[str, Any]]) -> Iterator[Row]:
    return (tuple(row.values()) for row in rows)


@pytest.mark.parametrize("batch_rows", [7, 1000])
@pytest.mark.parametrize("name", QUERIES)
async def test_debezium_in_and_out_leaves_what_the_table_holds(
    engine: Engine, tmp_path: Path, name: str, batch_rows: int
) -> None:
    sql, question = QUERIES[name]
    changes, held = history(4000 if FULL else 600, seed=batch_rows)
    (tmp_path / "accounts.json").write_text("".join(json.dumps(change) + "\n" for change in changes))
    tables = f"""CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner TEXT, balance BIGINT)
        WITH (connector = 'single_file', path = '{tmp_path}/accounts.json', format = 'debezium_json', type = 'source');
      CREATE TABLE results WITH (connector = 'single_file', path = '{tmp_path}/results.json', format = 'debezium_json')
        AS {sql};"""
    program = await compiled(engine, "", tables)
    await run_job(engine, program, Cut(1, batch_rows), CONNECTORS)
    with duckdb.connect() as connection:
        connection.register("accounts", pa.Table.from_pylist(held, ACCOUNTS))
        expected = rows_of([connection.sql(question).to_arrow_table()])
    assert difference(list(values(left_by(tmp_path / "results.json"))), expected) is None


async def test_rows_are_written_as_changes_that_add_them(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"id": 1, "name": "a"}\n{"id": 2, "name": null}\n')
    tables = f"""CREATE TABLE plain (id BIGINT, name TEXT)
        WITH (connector = 'single_file', path = '{tmp_path}/rows.json', type = 'source');
      CREATE TABLE results (id BIGINT, name TEXT)
        WITH (connector = 'single_file', path = '{tmp_path}/results.json', format = 'debezium_json', type = 'sink');
      INSERT INTO results SELECT id, name FROM plain;"""
    await run_job(engine, await compiled(engine, "", tables), Cut(1, 10), CONNECTORS)
    assert left_by(tmp_path / "results.json") == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
async def test_rows_meet_what_a_table_that_changes_held_at_their_time(
    engine: Engine, tmp_path: Path, batch_rows: int
) -> None:
    dice = random.Random(batch_rows)
    held: dict[int, dict[str, Any]] = {}
    envelopes, versions, orders = [], [], []
    for second in range(3000 if FULL else 300):
        moment = f"2024-03-01T{9 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        identity = dice.randrange(12)
        after = {"id": identity, "owner": dice.choice(["ann", "bob", None]), "balance": second, "changed": moment}
        before = held.get(identity)
        envelopes.append({"before": before, "after": after, "op": "c" if before is None else "u"})
        held[identity] = after
        versions.append(after)
        orders.append({"id": second, "account": dice.randrange(14), "ts": moment})
    (tmp_path / "accounts.json").write_text("".join(json.dumps(envelope) + "\n" for envelope in envelopes))
    (tmp_path / "orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders))
    tables = f"""CREATE TABLE accounts (id BIGINT PRIMARY KEY, owner TEXT, balance BIGINT, changed TIMESTAMP NOT NULL,
        WATERMARK FOR changed AS changed - INTERVAL '3 seconds')
        WITH (connector = 'single_file', path = '{tmp_path}/accounts.json', format = 'debezium_json', type = 'source');
      CREATE TABLE orders (id BIGINT, account BIGINT, ts TIMESTAMP NOT NULL,
        WATERMARK FOR ts AS ts - INTERVAL '3 seconds')
        WITH (connector = 'single_file', path = '{tmp_path}/orders.json', type = 'source');
      CREATE TABLE results WITH (connector = 'single_file', path = '{tmp_path}/results.json')
        AS SELECT o.id AS id, a.owner AS owner, a.balance AS balance
           FROM orders o LEFT JOIN accounts FOR SYSTEM_TIME AS OF o.ts AS a ON o.account = a.id;"""
    await run_job(engine, await compiled(engine, "", tables), Cut(1, batch_rows), CONNECTORS)
    with duckdb.connect() as connection:
        connection.register("accounts", pa.Table.from_pylist(versions))
        connection.register("orders", pa.Table.from_pylist(orders))
        question = """SELECT o.id, a.owner, a.balance FROM orders o
                      ASOF LEFT JOIN accounts a ON o.account = a.id AND o.ts >= a.changed"""
        expected = rows_of([connection.sql(question).to_arrow_table()])
    found = list(map(json.loads, (tmp_path / "results.json").read_text().splitlines()))
    assert difference(list(values(found)), expected) is None
