"""The steps of a checkpoint on the controller's side: before and after each effect that outlives a crash."""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Where a test can end the controller; in the order in which a checkpoint passes them."""

    BEFORE_BEGIN = "controller_before_begin"
    AFTER_BEGIN = "controller_after_begin"
    BEFORE_TRIGGER = "controller_before_trigger"
    AFTER_TRIGGER = "controller_after_trigger"
    BEFORE_COMPLETED = "controller_before_completed"  # a task's report
    AFTER_COMPLETED = "controller_after_completed"
    BEFORE_OPERATOR = "controller_before_operator"
    AFTER_OPERATOR = "controller_after_operator"
    BEFORE_METADATA = "controller_before_metadata"
    AFTER_METADATA = "controller_after_metadata"
    BEFORE_RECORD = "controller_before_record"
    AFTER_RECORD = "controller_after_record"
    BEFORE_COMMIT = "controller_before_commit"
    AFTER_COMMIT = "controller_after_commit"
    BEFORE_COMMITTED = "controller_before_committed"  # a task's report
    AFTER_COMMITTED = "controller_after_committed"
    BEFORE_READY = "controller_before_ready"
    AFTER_READY = "controller_after_ready"
    BEFORE_ABANDON = "controller_before_abandon"
    AFTER_ABANDON = "controller_after_abandon"
    BEFORE_ENDED = "controller_before_ended"  # a task's report
    AFTER_ENDED = "controller_after_ended"
    BEFORE_RESOLVE = "controller_before_resolve"  # what an earlier generation or controller left under way
    AFTER_RESOLVE = "controller_after_resolve"
    BEFORE_START = "controller_before_start"  # of tasks that restore a checkpoint
    AFTER_START = "controller_after_start"
    BEFORE_SAVEPOINT = "controller_before_savepoint"
    AFTER_SAVEPOINT_OPERATOR = "controller_after_savepoint_operator"
    AFTER_SAVEPOINT_METADATA = "controller_after_savepoint_metadata"
    AFTER_SAVEPOINT = "controller_after_savepoint"
    BEFORE_EXPIRE = "controller_before_expire"
    AFTER_EXPIRE = "controller_after_expire"
    BEFORE_DELETE = "controller_before_delete"
    AFTER_DELETE = "controller_after_delete"
    BEFORE_SAVEPOINT_DELETE = "controller_before_savepoint_delete"
    AFTER_SAVEPOINT_FILES = "controller_after_savepoint_files"
    AFTER_SAVEPOINT_DELETE = "controller_after_savepoint_delete"
