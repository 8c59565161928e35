"""The nodes and workers that are known, in memory: when each was heard of, and which are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from penstock.common.events import LogEvent
from penstock.common.ids import NodeId, WorkerId
from penstock.common.quantities import format_duration
from penstock.controller.placement import Capacity
from penstock.controller.records import TaskOwner

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    id: NodeId
    rpc_address: str
    slots: int
    slots_used: int
    seen_at: float


@dataclass(frozen=True, slots=True)
class Worker:
    id: WorkerId
    node_id: NodeId | None
    rpc_address: str
    data_address: str
    seen_at: float


@dataclass(frozen=True, slots=True)
class Grant:
    """A worker that a node started for a job; `listed` once the node has named it, `missed` how often it has not."""

    node_id: NodeId
    slots: int
    listed: bool = False
    missed: int = 0


class Registry:
    """Not persisted: nodes and workers register again with a controller that does not know them."""

    def __init__(self, *, heartbeat_timeout: timedelta, node_timeout: timedelta, clock: Callable[[], float]) -> None:
        self._heartbeat_timeout = heartbeat_timeout
        self._node_timeout = node_timeout
        self._clock = clock
        self._checked_at = clock()
        self._nodes_changed_at = clock()
        self._nodes: dict[NodeId, Node] = {}
        self._suspects: set[NodeId] = set()
        self._draining: frozenset[NodeId] = frozenset()
        self._drain_watchers: set[Callable[[], None]] = set()
        self._workers: dict[WorkerId, Worker] = {}
        self._grants: dict[WorkerId, Grant] = {}
        self._held: Counter[NodeId] = Counter()
        self._owners: dict[WorkerId, TaskOwner] = {}
        self._arrivals: dict[WorkerId, asyncio.Future[Worker]] = {}
        self._capacity_changed = asyncio.Event()
        self._on_lost: Callable[[WorkerId, TaskOwner, str], None] = lambda worker, owner, reason: None

    def on_worker_lost(self, callback: Callable[[WorkerId, TaskOwner, str], None]) -> None:
        """Tell someone of each worker of a job that is lost, once."""
        self._on_lost = callback

    @property
    def nodes(self) -> Mapping[NodeId, Node]:
        return self._nodes

    @property
    def workers(self) -> Mapping[WorkerId, Worker]:
        return self._workers

    @property
    def owners(self) -> Mapping[WorkerId, TaskOwner]:
        """Which job each worker that has one works for."""
        return self._owners

    @property
    def capacities(self) -> tuple[Capacity, ...]:
        """What each node has left: what it says itself, or less by what it has been asked for since."""
        granted = Counter(self._held)
        # Copies: figures for Prometheus are read in another thread.
        for grant in tuple(self._grants.values()):
            granted[grant.node_id] += grant.slots
        draining = self._draining
        return tuple(
            Capacity(node.id, node.slots, node.slots - max(node.slots_used, granted[node.id]), node.id in draining)
            for node in tuple(self._nodes.values())
        )

    @property
    def reachable(self) -> tuple[Capacity, ...]:
        """The capacities of the nodes that are not suspected to be gone."""
        return tuple(capacity for capacity in self.capacities if capacity.node_id not in self._suspects)

    @property
    def seconds_unchanged(self) -> float:
        """How long the nodes that can be asked have been these."""
        return self._clock() - self._nodes_changed_at

    # Nodes

    def register_node(self, node: NodeId, rpc_address: str, slots: int) -> None:
        known = self._nodes.get(node)
        if known is None or (known.rpc_address, known.slots) != (rpc_address, slots):
            log.info(LogEvent.NODE_REGISTERED, node=node, address=rpc_address, slots=slots)
        # Until its first heartbeat a node may have any number of workers.
        self._nodes[node] = Node(node, rpc_address, slots, known.slots_used if known else slots, self._clock())
        self._suspects.discard(node)
        if known is None:
            self._nodes_changed_at = self._clock()
        self._capacity_changed.set()

    def heartbeat_node(self, node_id: NodeId, slots_used: int, alive: Collection[WorkerId]) -> bool:
        """Whether the node is known; workers of it that it no longer names are lost at once."""
        node = self._nodes.get(node_id)
        if node is None:
            return False
        self._nodes[node_id] = replace(node, slots_used=slots_used, seen_at=self._clock())
        if slots_used < node.slots_used or node_id in self._suspects:
            self._suspects.discard(node_id)
            self._capacity_changed.set()
        for worker, grant in [(w, g) for w, g in self._grants.items() if g.node_id == node_id]:
            if worker in alive:
                self._grants[worker] = replace(grant, listed=True, missed=0)
            elif grant.listed or grant.missed:
                self.lose_worker(worker, "its process ended")
            else:
                # The first heartbeat after a grant may have left before the worker was started.
                self._grants[worker] = replace(grant, missed=grant.missed + 1)
        return True

    def note_used(self, node_id: NodeId, slots_used: int) -> None:
        """A node has been asked what it uses, and its next heartbeat will say the same."""
        node = self._nodes.get(node_id)
        if node is not None:
            self._nodes[node_id] = replace(node, slots_used=slots_used)
            self._capacity_changed.set()

    def suspect(self, node: NodeId) -> None:
        """A node did not answer: nothing is placed on it until it is heard of."""
        if node in self._nodes and node not in self._suspects:
            self._suspects.add(node)
            self._nodes_changed_at = self._clock()

    @property
    def draining(self) -> frozenset[NodeId]:
        """The nodes that nothing is placed on, and that what is there is to leave."""
        return self._draining

    def drain(self, nodes: frozenset[NodeId]) -> None:
        """Have these nodes drained, and no others."""
        if nodes == self._draining:
            return
        log.info(LogEvent.DRAINS_CHANGED, drained=sorted(nodes - self._draining), kept=sorted(self._draining - nodes))
        if self._draining - nodes:
            self._nodes_changed_at = self._clock()
        self._draining = nodes
        self._capacity_changed.set()
        for tell in tuple(self._drain_watchers):
            tell()

    @contextmanager
    def watching_drains(self, tell: Callable[[], None]) -> Iterator[None]:
        """Tell someone, while the block lasts, that other nodes are to be drained."""
        self._drain_watchers.add(tell)
        try:
            yield
        finally:
            self._drain_watchers.discard(tell)

    async def capacity_change(self) -> None:
        """Return once slots may have become free since the last call."""
        await self._capacity_changed.wait()
        self._capacity_changed.clear()

    def hold(self, node: NodeId, slots: int) -> None:
        """A node is about to be asked for slots: nobody else should count on them."""
        self._held[node] += slots

    def unhold(self, node: NodeId, slots: int) -> None:
        """The node has answered."""
        self._held[node] -= slots
        self._capacity_changed.set()

    def grant(self, worker: WorkerId, node: NodeId, slots: int) -> None:
        """A node has started a worker for a job."""
        self._grants[worker] = Grant(node, slots)

    # Workers

    def register_worker(
        self, worker: WorkerId, node: NodeId | None, rpc_address: str, data_address: str, owner: TaskOwner | None
    ) -> None:
        if worker not in self._workers:
            log.info(LogEvent.WORKER_REGISTERED, worker=worker, node=node, address=rpc_address)
        self._workers[worker] = Worker(worker, node, rpc_address, data_address, self._clock())
        if owner is not None:
            self._owners[worker] = owner
        arrival = self._arrivals.pop(worker, None)
        if arrival is not None and not arrival.done():
            arrival.set_result(self._workers[worker])

    def heartbeat_worker(self, worker_id: WorkerId) -> bool:
        """Whether the worker is known."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return False
        self._workers[worker_id] = replace(worker, seen_at=self._clock())
        return True

    async def registered(self, worker: WorkerId) -> Worker:
        """The worker, once it has registered."""
        if worker in self._workers:
            return self._workers[worker]
        arrival = self._arrivals.setdefault(worker, asyncio.get_running_loop().create_future())
        return await asyncio.shield(arrival)

    def own(self, worker: WorkerId, owner: TaskOwner) -> None:
        self._owners[worker] = owner

    def lose_worker(self, worker: WorkerId, reason: str) -> None:
        """A worker is gone, by plan or against it; whose job it is knows which."""
        owner = self._owners.get(worker)
        self.release_worker(worker)
        if owner is not None:
            self._on_lost(worker, owner, reason)

    def release_worker(self, worker: WorkerId) -> None:
        """A worker is gone, or soon will be, and nobody waits for it."""
        self._workers.pop(worker, None)
        self._owners.pop(worker, None)
        self._arrivals.pop(worker, None)
        if self._grants.pop(worker, None) is not None:
            self._capacity_changed.set()

    # Time

    def check_overdue(self) -> None:
        """Find who has been silent for too long. Time in which nobody listened, and nothing could be heard, is not
        counted: a controller that was suspended must not lose every worker when it wakes up."""
        now = self._clock()
        deaf = now - self._checked_at
        self._checked_at = now
        if deaf > min(self._heartbeat_timeout, self._node_timeout).total_seconds() / 2:
            self._pardon(deaf)
        for worker in [w for w in self._workers.values() if now - w.seen_at > self._heartbeat_timeout.total_seconds()]:
            self.lose_worker(worker.id, f"it has not been heard of for {format_duration(self._heartbeat_timeout)}")
        for node in [n for n in self._nodes.values() if now - n.seen_at > self._node_timeout.total_seconds()]:
            log.warning(LogEvent.NODE_LOST, node=node.id, address=node.rpc_address)
            del self._nodes[node.id]
            self._suspects.discard(node.id)
            # Fewer slots in all: a job that waited for more may share what is left.
            self._capacity_changed.set()

    def _pardon(self, seconds: float) -> None:
        self._nodes = {node.id: replace(node, seen_at=node.seen_at + seconds) for node in self._nodes.values()}
        self._workers = {w.id: replace(w, seen_at=w.seen_at + seconds) for w in self._workers.values()}
