"""Lookup joins: the rows of each batch beside those that a table has for their keys. Nothing is kept of the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.common.errors import InternalError
from penstock.common.program import LookupJoin
from penstock.connectors.key_hashes import Mask
from penstock.connectors.lookups import LookupKind, LookupOptions, LookupTable
from penstock.worker.batches import Batches, joined
from penstock.worker.metrics import LookupCounters
from penstock.worker.operators.difference import row_ids
from penstock.worker.operators.lookup_cache import Answers, LookupCache
from penstock.worker.operators.lookup_questions import Manners, Questions, taken
from penstock.worker.state.index import Int64s
from penstock.worker.state.tables import StateTable


class LookupJoins:
    """An operator of a chain that asks a table."""

    holds_changes = False
    late_rows = 0
    state_rows = 0
    state_bytes = 0
    tables: Mapping[str, StateTable] = MappingProxyType({})

    def __init__(
        self, join: LookupJoin, output: pa.Schema, table: LookupTable, questions: Questions, cache: LookupCache | None,
        counters: LookupCounters,
    ) -> None:  # fmt: skip
        self._join = join
        self._output = output
        self._table = table
        self._questions = questions
        self._cache = cache
        self._counters = counters

    async def process(self, batches: Batches) -> Batches:
        return tuple([await self._joined(batch) for batch in joined(batches) if batch.num_rows])

    async def advance(self, watermark: int) -> Batches:
        return ()

    async def flush(self) -> Batches:
        return ()

    async def restore(self, name: str, rows: pa.Table) -> None:
        raise InternalError("a lookup has no state to restore")

    async def close(self) -> None:
        await self._table.close()

    async def _joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = self._keys(batch)
        whole = np.flatnonzero(_without_nulls(keys))  # a null equals no key
        ids, distinct = _distinct(keys.take(pa.array(whole)))
        answers, place_of = await self._answers(distinct)
        places = np.full(batch.num_rows, -1, np.int64)
        places[whole] = place_of[ids]
        places[whole] = np.where(answers.found[places[whole]], places[whole], -1)
        if not self._join.outer:
            matched = np.flatnonzero(places >= 0)
            batch, places = batch.take(pa.array(matched)), places[matched]
        return self._assembled(batch, answers.values, places)

    def _keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The keys of the rows, by the names that the table has for them."""
        names = self._join.looked_up.names[: len(self._join.keys)]
        return pa.RecordBatch.from_arrays([batch.column(name) for name in self._join.keys], names)

    async def _answers(self, keys: pa.RecordBatch) -> tuple[Answers, Int64s]:
        """What is known of distinct keys by now, and where among that each key is."""
        known, cached = (np.zeros(0, np.int64), None) if self._cache is None else self._cache.find(keys)
        self._counters.cache_hits += known.size
        is_missing = np.ones(keys.num_rows, np.bool_)
        is_missing[known] = False
        missing = np.flatnonzero(is_missing)
        asked = await self._questions.ask(keys.take(pa.array(missing))) if missing.size else []
        if self._cache is not None:
            for part in asked:
                self._cache.add(part)
        parts = [*([] if cached is None else [cached]), *asked] or [self._nothing(keys)]
        place_of = np.empty(keys.num_rows, np.int64)
        place_of[np.concatenate([known, missing])] = np.arange(keys.num_rows)
        return Answers.joined(parts), place_of

    def _nothing(self, keys: pa.RecordBatch) -> Answers:
        """The answers to no question."""
        rows = pa.RecordBatch.from_pylist([], self._join.looked_up)
        return Answers(keys, taken(rows, np.zeros(0, np.int64)), np.zeros(0, np.bool_))

    def _assembled(self, batch: pa.RecordBatch, values: pa.RecordBatch, places: Int64s) -> pa.RecordBatch:
        """The columns of the output: those of the rows, and of the table by its own names."""
        found = taken(values, places)
        arrays = [
            found.column(self._join.names[field.name]) if field.name in self._join.names else batch.column(field.name)
            for field in self._output
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._output)


def open_lookup(
    join: LookupJoin,
    output: pa.Schema,
    table: LookupTable,
    kind: LookupKind,
    options: LookupOptions,
    counters: LookupCounters,
    clock: Callable[[], float] = time.monotonic,
) -> LookupJoins:
    """A lookup join with a table that asks and remembers as its options say."""
    manners = Manners(options.batch_keys, options.in_flight, options.retries, options.timeout.total_seconds())
    ttl_seconds = options.cache_ttl.total_seconds()
    keeps = not kind.is_local and ttl_seconds > 0 and options.cache_size > 0
    cache = LookupCache(ttl_seconds, options.cache_size, clock) if keeps else None
    return LookupJoins(join, output, table, Questions(join.table, table, manners, counters), cache, counters)


def _without_nulls(keys: pa.RecordBatch) -> Mask:
    present = np.ones(keys.num_rows, np.bool_)
    for column in keys.columns:
        if column.null_count:
            present &= np.asarray(column.is_valid())
    return present


def _distinct(keys: pa.RecordBatch) -> tuple[Int64s, pa.RecordBatch]:
    """The number of each row's key among the distinct ones, and these."""
    ids = row_ids(keys.columns, keys.num_rows)
    firsts = np.empty(int(ids.max(initial=-1)) + 1, np.int64)
    firsts[ids[::-1]] = np.arange(ids.size)[::-1]  # the last one that is written is the first of its key
    return ids, keys.take(pa.array(firsts))
