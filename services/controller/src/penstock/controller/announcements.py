"""What NATS is told of jobs: JSON of state changes, checkpoints and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.common import subjects
from penstock.controller.checkpoints.records import CheckpointRecord
from penstock.controller.records import Entry, EventKind, JobEvent


class Bus(Protocol):
    def publish(self, subject: str, payload: bytes) -> None: ...


def announcer(bus: Bus) -> Callable[[Entry], None]:
    """Publishes the events of entries."""

    def announce(entry: Entry) -> None:
        for subject, payload in encode_announcements(entry):
            bus.publish(subject, payload)

    return announce


def encode_announcements(entry: Entry) -> Iterator[tuple[str, bytes]]:
    """The subject and payload of each message that an entry makes."""
    for event in entry.events:
        if event.kind is EventKind.STATE:
            yield subjects.job_state(event.job_id), _encode(event, **_state(event))
        else:
            yield subjects.job_error(event.job_id), _encode(event, **_error(event))
    if entry.checkpoint is not None:
        yield subjects.job_checkpoint(entry.job_id), _encode_checkpoint(entry.checkpoint)


def _encode(event: JobEvent, **more: object) -> bytes:
    common = {"job_id": event.job_id, "at": event.at.isoformat(), "kind": event.kind, "generation": event.generation}
    return json.dumps({**common, **more}).encode()


def _encode_checkpoint(checkpoint: CheckpointRecord) -> bytes:
    finished_at = checkpoint.finished_at
    return json.dumps(
        {
            "job_id": checkpoint.job_id,
            "epoch": checkpoint.epoch,
            "generation": checkpoint.generation,
            "state": checkpoint.state,
            "then_stop": checkpoint.then_stop,
            "savepoint_id": checkpoint.savepoint_id,
            "started_at": checkpoint.started_at.isoformat(),
            "finished_at": finished_at.isoformat() if finished_at else None,
            "bytes": checkpoint.bytes,
            "error": checkpoint.error,
        }
    ).encode()


def _state(event: JobEvent) -> dict[str, object]:
    return {"from_state": event.from_state, "to_state": event.to_state}


def _error(event: JobEvent) -> dict[str, object]:
    failure = event.failure
    if failure is None:
        return {}
    return {
        "node": failure.task.node if failure.task else None,
        "subtask": failure.task.subtask if failure.task else None,
        "message": failure.message,
        "hint": failure.hint,
        "domain": failure.domain,
    }
