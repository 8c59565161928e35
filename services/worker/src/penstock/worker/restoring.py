"""What a subtask gets of the checkpoint that its job goes on from, at whichever parallelism it was made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.common.checkpoint.matching import match_state
from penstock.common.checkpoint.metadata import read_snapshot
from penstock.common.errors import UserError
from penstock.common.program import INPUT, OperatorKey, Program
from penstock.common.proto.checkpoint_pb2 import OperatorMetadata, SubtaskState, TableState
from penstock.common.storage import Storage
from penstock.spark import FragmentSpec
from penstock.spark.partitioning import HASH_SPACE
from penstock.worker import state_files
from penstock.worker.operators.base import ChainOperator, Planner
from penstock.worker.signals import START_OF_TIME
from penstock.worker.snapshots import POSITIONS, WATERMARKS, KeptTable
from penstock.worker.state.tables import ExpiringTimeKey, KeyValueView, TableKind, values_of


@dataclass(frozen=True, slots=True)
class Share:
    """One subtask of several, and the keys by which rows are dealt to them."""

    subtask: int
    parallelism: int
    keys: tuple[str, ...]


class RestorePoint:
    """A checkpoint or a savepoint, as its metadata has it."""

    def __init__(self, storage: Storage, operators: Iterable[OperatorMetadata], *, is_own: bool = True) -> None:
        self._storage = storage
        self._operators = {OperatorKey(one.operator_id): one for one in operators}
        self._is_own = is_own

    @classmethod
    async def load(cls, storage: Storage, path: str, program: Program, *, is_own: bool) -> RestorePoint:
        """What a program can go on with; a file that is missing or damaged is named. One that is not the job's own has
        files that the job's checkpoints cannot refer to."""
        snapshot = await read_snapshot(storage, path)
        kept = match_state(snapshot.operators, program).kept
        return cls(storage, (one for one in snapshot.operators if one.operator_id in kept), is_own=is_own)

    def has(self, operator: OperatorKey) -> bool:
        return operator in self._operators

    def commits(self, operator: OperatorKey) -> list[bytes]:
        """By what the staged rows of a sink are committed."""
        return [state.commit for state in self._states(operator) if state.HasField("commit")]

    def watermark(self, operator: OperatorKey, share: Share) -> int:
        """How far the subtask was: at another parallelism, as far as the slowest."""
        states = self._states(operator)
        own = [state for state in states if state.subtask == share.subtask and self._is_same(operator, share)]
        return min((state.watermark_us for state in own or states), default=START_OF_TIME)

    async def positions(self, operator: OperatorKey) -> Mapping[str, bytes]:
        """How far all partitions of a source had been given away."""
        return await self._values(operator, POSITIONS)

    async def watermarks(self, operator: OperatorKey) -> Mapping[str, int]:
        """The watermarks of all partitions of a source."""
        values = await self._values(operator, WATERMARKS)
        return {name: int.from_bytes(value, "little", signed=True) for name, value in values.items()}

    async def restore(
        self, key: OperatorKey, operator: ChainOperator, share: Share, planner: Planner
    ) -> Sequence[KeptTable]:
        """Puts a subtask's share into an operator that is as new; returns its tables and the files that hold them.

        At another parallelism the files are shared with other subtasks: what was read of them is noted as new."""
        watermark = self.watermark(key, share)
        if watermark != START_OF_TIME:
            await operator.advance(watermark)
        tables = []
        for name, table in operator.tables.items():
            table.begin()
            kept = KeptTable(key, name, table)
            for state in self._states(key):
                if _overlap(state.subtask, self._operators[key].parallelism, share):
                    await self._restore(kept, operator, state, share, planner)
            tables.append(kept)
        return tables

    async def _restore(
        self, kept: KeptTable, operator: ChainOperator, state: SubtaskState, share: Share, planner: Planner
    ) -> None:
        found = next((table for table in state.tables if table.name == kept.name), None)
        if found is None or not found.files:
            return
        if self._is_same(kept.operator, share):
            if isinstance(kept.table, KeyValueView):
                kept.table.expect(sum(file.rows for file in found.files))
            async for rows in self._rows(kept, found):
                await operator.restore(kept.name, rows)
            kept.files.extend(found.files)
        else:
            async for rows in _share_of(self._rows(kept, found), share, planner):
                _note(kept, rows)
                await operator.restore(kept.name, rows)

    def _rows(self, kept: KeptTable, table: TableState) -> AsyncIterator[pa.Table]:
        if table.kind != kept.table.kind.value:
            raise UserError(f"the state of {kept.operator} was kept in another way than it is now")
        match kept.table:
            case ExpiringTimeKey() as by_time:
                # What was gone when the checkpoint was made is in files that have other rows too.
                return state_files.unexpired(self._storage, table.files, by_time.column, by_time.expired_before)
            case _:
                return state_files.latest(self._storage, table.files, tombstones=False)

    async def _values(self, operator: OperatorKey, name: str) -> dict[str, bytes]:
        values: dict[str, bytes] = {}
        for state in self._states(operator):
            for table in state.tables:
                if table.name == name and table.kind == TableKind.GLOBAL_KEYED.value:
                    for file in table.files:
                        async for rows in state_files.read(self._storage, file):
                            values |= values_of(rows)
        return values

    def _states(self, operator: OperatorKey) -> Sequence[SubtaskState]:
        found = self._operators.get(operator)
        return () if found is None else found.subtasks

    def _is_same(self, operator: OperatorKey, share: Share) -> bool:
        return self._is_own and self._operators[operator].parallelism == share.parallelism


def _overlap(subtask: int, parallelism: int, share: Share) -> bool:
    """Whether two ranges of hashes have any in common."""
    return subtask * share.parallelism < (share.subtask + 1) * parallelism and (
        share.subtask * parallelism < (subtask + 1) * share.parallelism
    )


async def _share_of(parts: AsyncIterator[pa.Table], share: Share, planner: Planner) -> AsyncIterator[pa.Table]:
    """The rows that the shuffle would deal to a subtask."""
    hashed = ", ".join(f"`{key}`" for key in share.keys)
    fragment = None
    try:
        async for rows in parts:
            keys = rows.select(list(share.keys))
            if fragment is None:
                spec = FragmentSpec(f"SELECT hash({hashed}) AS `_range` FROM {INPUT}", {INPUT: keys.schema})
                fragment = await planner.plan(spec)
            found = [await fragment.run([batch]) for batch in keys.to_batches()]
            hashes = np.concatenate([batch.column(0).to_numpy() for (batch,) in found]).astype(np.int64)
            own = (hashes % HASH_SPACE) * share.parallelism // HASH_SPACE == share.subtask
            if own.any():
                yield rows.filter(pa.array(own))
    finally:
        if fragment is not None:
            await fragment.close()


def _note(kept: KeptTable, rows: pa.Table) -> None:
    match kept.table:
        case ExpiringTimeKey() as by_time:
            by_time.add(rows.to_batches())
        case KeyValueView() as by_hash:
            by_hash.note(rows)
        case _:
            pass
