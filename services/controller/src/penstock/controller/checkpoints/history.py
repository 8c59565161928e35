"""What happened in each subtask during a checkpoint, for whoever looks at it later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.common.proto.controller_pb2 import (
    CHECKPOINT_STEP_ALIGNMENT_STARTED,
    CHECKPOINT_STEP_FROZEN,
    CHECKPOINT_STEP_STARTED,
    CheckpointStep,
)
from penstock.controller.checkpoints.messages import Part
from penstock.controller.records import TaskId

_STEPS: Final[Mapping[CheckpointStep.ValueType, str]] = {
    CHECKPOINT_STEP_ALIGNMENT_STARTED: "alignment_started_at_us",
    CHECKPOINT_STEP_STARTED: "started_at_us",
    CHECKPOINT_STEP_FROZEN: "frozen_at_us",
}


class EpochHistory:
    """The times and bytes of one epoch; the first word of a task counts."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, dict[str, Any]] = {}
        self.bytes = 0

    def note_step(self, task: TaskId, step: CheckpointStep.ValueType, at_us: int) -> None:
        name = _STEPS.get(step)
        if name is not None:
            self._tasks.setdefault(task, {}).setdefault(name, at_us)

    def note_completed(self, task: TaskId, part: Part) -> None:
        seen = self._tasks.setdefault(task, {})
        if "finished_at_us" in seen:
            return
        written = {each.operator_id: each.written_bytes for each in part.operators}
        self.bytes += sum(written.values())
        seen.update(finished_at_us=part.at_us, operators=written)

    def note_committed(self, task: TaskId, at_us: int) -> None:
        self._tasks.setdefault(task, {}).setdefault("committed_at_us", at_us)

    def details(self) -> Mapping[str, Any] | None:
        """By node and subtask; None when nothing is known.

        {"nodes": [{"node_id": "in", "subtasks": [{"subtask": 0, "started_at_us": …, "operators": {"op": bytes}}]}]}
        """
        nodes: dict[str, list[dict[str, Any]]] = {}
        for task in sorted(self._tasks):
            nodes.setdefault(task.node, []).append({"subtask": task.subtask, **self._tasks[task]})
        return {"nodes": [{"node_id": node, "subtasks": each} for node, each in nodes.items()]} if nodes else None
