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
    CHECK_FAILED = "check_failed"
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

    # services/api
    API_SERVING = "api_serving"
    REQUEST_FAILED = "request_failed"
    PREVIEWS_UNKNOWN = "previews_unknown"

    # services/worker
    WORKER_READY = "worker_ready"
    WORKER_FENCED = "worker_fenced"
    WORKER_ORPHANED = "worker_orphaned"
    EXECUTION_STARTED = "execution_started"
    EXECUTION_STOPPING = "execution_stopping"
    EXECUTION_FINISHED = "execution_finished"
    SUBTASK_FAILED = "subtask_failed"
    SUBTASK_CLOSE_FAILED = "subtask_close_failed"
    REPORT_DELAYED = "report_delayed"
    REPORT_REFUSED = "report_refused"
    HEARTBEAT_FAILED = "heartbeat_failed"

    # services/controller
    STATE_TRANSITION = "state_transition"
    STATE_CRASHED = "state_crashed"
    JOB_ADOPTED = "job_adopted"
    JOB_DELETED = "job_deleted"
    JOURNAL_DELAYED = "journal_delayed"
    JOURNAL_CAUGHT_UP = "journal_caught_up"
    JOURNAL_REFUSED = "journal_refused"
    CONFIG_POLL_FAILED = "config_poll_failed"
    CONFIG_POLL_RESUMED = "config_poll_resumed"
    MIRROR_FAILED = "mirror_failed"
    NODE_REGISTERED = "node_registered"
    NODE_LOST = "node_lost"
    WORKER_REGISTERED = "worker_registered"
    WORKER_LOST = "worker_lost"
    SLOTS_MISSING = "slots_missing"
    SLOTS_SHARED = "slots_shared"
    WORKER_START_FAILED = "worker_start_failed"
    WORKER_STOP_FAILED = "worker_stop_failed"

    # services/node
    WORKER_SPAWNED = "worker_spawned"
    WORKER_GIVEN = "worker_given"
    WORKER_EXITED = "worker_exited"
    WORKER_KILLED = "worker_killed"
    STANDBY_FAILED = "standby_failed"
    CONTROLLER_JOINED = "controller_joined"
    CONTROLLER_AWAY = "controller_away"

    # services/compiler
    QUERY_COMPILED = "query_compiled"
