"""The names of the log events: one that is not listed here is not logged."""

from __future__ import annotations

from enum import StrEnum


class LogEvent(StrEnum):
    """What a log line tells; grouped by who logs it."""

    # libs/spark
    ENGINE_STARTING = "engine_starting"
    ENGINE_STARTED = "engine_started"
    ENGINE_STOPPED = "engine_stopped"
    ENGINE_LOST = "engine_lost"
    JVM_LOG = "jvm_log"
    CLASS_CACHE_BUILDING = "class_cache_building"
    CLASS_CACHE_BUILT = "class_cache_built"
    CLASS_CACHE_FAILED = "class_cache_failed"
    BRIDGE_BUILT = "bridge_built"
