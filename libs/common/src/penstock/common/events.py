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

    # libs/common
    RPC_SERVING = "rpc_serving"
    RPC_FAILED = "rpc_failed"
    ADMIN_SERVING = "admin_serving"
    DATABASE_WAITING = "database_waiting"
    MIGRATION_APPLIED = "migration_applied"
    BUS_CONNECTED = "bus_connected"
    BUS_DISCONNECTED = "bus_disconnected"
    BUS_RECONNECTED = "bus_reconnected"
    BUS_DROPPED = "bus_dropped"
    BUS_FAILED = "bus_failed"
    EMBEDDED_STARTED = "embedded_started"
    EMBEDDED_STOPPED = "embedded_stopped"
    EMBEDDED_LOST = "embedded_lost"
    EMBEDDED_LOG = "embedded_log"
    SERVICE_STARTING = "service_starting"
    SERVICE_STOPPING = "service_stopping"
    SERVICE_STOPPED = "service_stopped"
    SERVICE_FAILED = "service_failed"
