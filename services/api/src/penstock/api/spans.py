"""How long each operator took for a checkpoint, from what the controller has noted of the subtasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from penstock.api.schemas import OperatorCheckpoint, SubtaskCheckpoint, TimeSpan
from penstock.common.program import NodeKey, OperatorKey, Program

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Subtask(BaseModel):
    subtask: int
    alignment_started_at_us: int | None = None
    started_at_us: int | None = None
    frozen_at_us: int | None = None
    finished_at_us: int | None = None
    committed_at_us: int | None = None
    operators: dict[str, int] = {}
    """The bytes that were written of each; those without state are not among them."""


class _Node(BaseModel):
    node_id: str
    subtasks: list[_Subtask]


class _Details(BaseModel):
    nodes: list[_Node] = []


def operator_checkpoints(program: Program, details: Mapping[str, Any] | None) -> list[OperatorCheckpoint]:
    """Every operator of the nodes that something is known of, in the program's order."""
    noted = _Details.model_validate(details or {}).nodes
    order = {node.key: position for position, node in enumerate(program.nodes)}
    nodes = sorted(noted, key=lambda node: order.get(NodeKey(node.node_id), len(order)))
    return [operator for node in nodes for operator in _operators(program, node)]


def _operators(program: Program, node: _Node) -> Iterator[OperatorCheckpoint]:
    described = {
        operator.key: operator.description
        for each in program.nodes
        if each.key == node.node_id
        for operator in each.operators
    }
    for key in _keys(described, node.subtasks):
        subtasks = [_subtask(key, noted) for noted in node.subtasks]
        yield OperatorCheckpoint(
            operator=key,
            description=described.get(key),
            node=node.node_id,
            bytes=sum(subtask.bytes for subtask in subtasks),
            subtasks=subtasks,
        )


def _keys(described: Iterable[OperatorKey], subtasks: Sequence[_Subtask]) -> Iterable[OperatorKey]:
    """The program's, and then those that only the checkpoint has."""
    written = sorted({OperatorKey(key) for subtask in subtasks for key in subtask.operators})
    return dict.fromkeys((*described, *written))


def _subtask(key: OperatorKey, noted: _Subtask) -> SubtaskCheckpoint:
    return SubtaskCheckpoint(
        subtask=noted.subtask,
        bytes=noted.operators.get(key, 0),
        alignment=_span(noted.alignment_started_at_us, noted.started_at_us),
        frozen=_span(noted.started_at_us, noted.frozen_at_us),
        written=_span(noted.frozen_at_us, noted.finished_at_us),
        committed_at=None if noted.committed_at_us is None else _instant(noted.committed_at_us),
    )


def _span(start_us: int | None, end_us: int | None) -> TimeSpan | None:
    if start_us is None:
        return None
    return TimeSpan(
        started_at=_instant(start_us),
        finished_at=None if end_us is None else _instant(end_us),
        duration_seconds=None if end_us is None else (end_us - start_us) / 1_000_000,
    )


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
