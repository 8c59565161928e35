"""A job with a lookup: its table is opened with its secrets, counted, told apart when it fails, and closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from penstock.common.errors import ErrorDomain
from penstock.common.ids import WorkerId
from penstock.common.program import Edge, LookupJoin, NodeKey, Operator, OperatorKey, Program
from penstock.connectors.base import Options, SourceBatch
from penstock.connectors.lookups import LookupKind, LookupOptions, LookupSpec, LookupTable
from penstock.connectors.testing import MemoryLookup
from penstock.worker.engine import Execution
from penstock.worker.prometheus import SubtaskCollector
from penstock.worker.testing import (
    SCHEMA,
    TEST_PACE,
    ListSource,
    MemoryConnector,
    MemoryReporter,
    PassingEngine,
    assignment,
    node,
    rows,
    sink,
    source,
    surroundings,
    value,
)
from penstock.worker.worker import Tools, Worker

USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
TABLE = pa.table({"id": [1, 3, 4], "name": ["ann", "cy", None]}, schema=USERS)
OUTPUT = pa.schema([SCHEMA.field(0), ("u.name", pa.string()), SCHEMA.field(1)])
FORWARD = Edge(NodeKey("a"), NodeKey("b"))


class SecretOptions(LookupOptions):
    url: str = ""


@dataclass
class LookupMemory(MemoryConnector):
    """Sources and sinks in memory, and a lookup table."""

    lookup: ClassVar[LookupKind] = LookupKind(SecretOptions)

    table: MemoryLookup = field(default_factory=lambda: MemoryLookup(TABLE))
    specs: list[LookupSpec] = field(default_factory=list)

    def check_lookup(self, options: Options, key: pa.Schema, values: pa.Schema) -> None: ...

    def open_lookup(self, spec: LookupSpec) -> LookupTable:
        self.specs.append(spec)
        return self.table


def program(**options: str) -> Program:
    join = LookupJoin("memory", "users", options, USERS, ("n",), {"u.name": "name"})
    lookup = Operator(OperatorKey("lookup"), "look up users", join, OUTPUT)
    return Program((node("a", source(), value("keys")), node("b", lookup, sink(schema=OUTPUT))), (FORWARD,))


def connector(table: MemoryLookup | None = None) -> LookupMemory:
    batches = [SourceBatch(rows([1, 2, 3])), SourceBatch(rows([3, 4, 1]))]
    return LookupMemory({("t", 0): ListSource(batches)}, table=table or MemoryLookup(TABLE))


async def run(
    connector: MemoryConnector, program: Program, environment: Mapping[str, str] | None = None
) -> MemoryReporter:
    reporter = MemoryReporter()
    around = surroundings(connector, environment=environment)
    await Execution(assignment(program), around, reporter).run()
    return reporter


async def test_rows_leave_with_what_was_found_and_the_table_is_closed() -> None:
    memory = connector()
    reporter = await run(memory, program())
    assert not reporter.failed
    written = [batch for batch in memory.sinks["out", 0].written if batch is not None]
    found = [(row["n"], row["u.name"]) for batch in written for row in batch.to_pylist()]
    assert found == [(1, "ann"), (3, "cy"), (3, "cy"), (4, None), (1, "ann")]
    assert memory.table.closed


async def test_secrets_are_filled_in_where_the_table_is_opened() -> None:
    memory = connector()
    reporter = await run(memory, program(url="redis://:{{ PASSWORD }}@db"), {"PASSWORD": "hunter2"})
    assert not reporter.failed
    [spec] = memory.specs
    assert (spec.table, spec.options["url"], spec.key_columns) == ("users", "redis://:hunter2@db", 1)
    assert spec.key.names == ["id"] and spec.values.names == ["name"]


async def test_a_secret_that_the_worker_lacks_is_the_users_error() -> None:
    reporter = await run(connector(), program(url="{{ PASSWORD }}"))
    [(_, error)] = reporter.failed
    assert error.domain is ErrorDomain.USER and "users needs the secret PASSWORD" in error.message


@pytest.mark.parametrize("option", ["cache_ttl", "unheard_of"])
async def test_an_option_that_became_wrong_is_the_users_error(option: str) -> None:
    reporter = await run(connector(), program(**{option: "{{ VALUE }}"}), {"VALUE": "soon"})
    [(_, error)] = reporter.failed
    assert error.domain is ErrorDomain.USER and option in error.message


async def test_a_table_that_does_not_answer_fails_the_job_with_its_name() -> None:
    memory = connector(MemoryLookup(TABLE, failures=99))
    reporter = await run(memory, program(retries="1"))
    [(task, error)] = reporter.failed
    assert task.node == "b"
    assert error.domain is ErrorDomain.EXTERNAL
    assert error.message == "looking up rows of users failed 2 times: the table is not to be reached"
    assert memory.table.closed


async def test_a_connector_without_lookup_tables_is_an_internal_error() -> None:
    plain = MemoryConnector({("t", 0): ListSource([SourceBatch(rows([1]))])})
    [(_, error)] = (await run(plain, program())).failed
    assert error.domain is ErrorDomain.INTERNAL and "memory" in error.message


async def test_prometheus_shows_lookups_hits_and_failures() -> None:
    registry = CollectorRegistry()
    collector = SubtaskCollector(registry)
    memory = connector(MemoryLookup(TABLE, failures=1))
    tools = Tools(PassingEngine(), {"memory": memory}, {}, TEST_PACE)
    worker = Worker(WorkerId.new(), tools, lambda _job: MemoryReporter())
    job = assignment(program())
    with collector.showing(worker):
        worker.start(job)
        await worker.run()
        text = generate_latest(registry).decode()
    labels = f'{{job="{job.job.id}",node="b",subtask="0"}}'
    shown = {
        name: float(line.rpartition(" ")[2])
        for name in ("lookups", "lookup_cache_hits", "lookup_failures")
        for line in text.splitlines()
        if line.startswith(f"penstock_subtask_{name}_total{labels}")
    }
    # The batches may have come together or one by one: four keys are asked for, some of them twice.
    asked = sum(map(len, memory.table.asked))
    assert shown["lookups"] == asked > 4
    assert shown["lookup_failures"] == 1
    assert shown["lookup_cache_hits"] in (0, 2)
