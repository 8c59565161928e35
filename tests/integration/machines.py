"""Machines of a test: network namespaces on one bridge, that can be cut off from each other, and a Penstock over them.

The test's own namespace is the controllers' machine, with the bridge's address; each node has a machine of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from harness import PENSTOCK, Deployment, Process, plain_environment

from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres

TOKEN: Final = "a token of the machines"
_LINK: Final = "eth0"
_LOSS_PREFERENCE: Final = 1000
_DROP: Final = "6 0 0 2"  # TC_ACT_SHOT
_PASS: Final = "6 0 0 4294967295"  # TC_ACT_UNSPEC: other filters decide
_RANDOM: Final = 4294963256  # SKF_AD_OFF + SKF_AD_RANDOM


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _drop_to(address: str) -> str:
    """Classic BPF that drops the IPv4 packets to an address."""
    destination = int(IPv4Address(address))
    return f"6,40 0 0 12,21 0 3 2048,32 0 0 30,21 0 1 {destination},{_DROP},{_PASS}"


def _drop_some(share: float) -> str:
    """Classic BPF that drops a share of all packets, at random."""
    return f"4,32 0 0 {_RANDOM},53 1 0 {int(share * (1 << 32))},{_DROP},{_PASS}"


@dataclass(frozen=True, slots=True)
class Machine:
    """A namespace with one link to the bridge, whose other end is `port`."""

    name: str
    address: str
    port: str

    def command(self, *command: str) -> list[str]:
        """A command as it is run on this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    @contextmanager
    def cut_off(self, address: str) -> Iterator[None]:
        """During the block what goes to an address is dropped without a word. What comes from there still arrives."""
        with self._dropping(_drop_to(address), int(IPv4Address(address)) % 256):
            yield

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        run("ip", "link", "set", self.port, "down")
        try:
            yield
        finally:
            run("ip", "link", "set", self.port, "up")

    @contextmanager
    def on_a_bad_line(self, *, loss: float, rate: str, delay: str) -> Iterator[None]:
        """Drops a share of what it sends, and delays the rest as a line of some rate does that is used by more than it
        can take, up to a longest delay; what would wait for longer is dropped too."""
        queue = ("tc", "-n", self.name, "qdisc")
        with self._dropping(_drop_some(loss), _LOSS_PREFERENCE):
            run(*queue, "add", "dev", _LINK, "root", "tbf", "rate", rate, "burst", "1600", "latency", delay)
            try:
                yield
            finally:
                run(*queue, "del", "dev", _LINK, "root")

    @property
    def dropped(self) -> int:
        """How many packets that it sent were dropped so far, by filters or for want of room."""
        queues = json.loads(run("tc", "-n", self.name, "-s", "-j", "qdisc", "show", "dev", _LINK))
        return sum(int(queue["drops"]) for queue in queues)

    def reset_connections(self, address: str) -> int:
        """Ends all TCP connections with an address, as by RST; returns how many that were."""
        ended = run(*self.command("ss", "-K", "-t", "-n", "-H", "dst", address))
        return len(ended.splitlines())

    @contextmanager
    def _dropping(self, bytecode: str, preference: int) -> Iterator[None]:
        """Asks a program about each packet that the machine sends; each preference is for one program."""
        filters, place = ("tc", "-n", self.name, "filter"), ("dev", _LINK, "egress", "pref", str(preference))
        run(*filters, "add", *place, "bpf", "da", "bytecode", bytecode)
        try:
            yield
        finally:
            run(*filters, "del", *place)


@dataclass(frozen=True, slots=True)
class Machines:
    """`address` is that of the test's own namespace."""

    address: str
    nodes: tuple[Machine, ...]

    @classmethod
    @contextmanager
    def made(cls, count: int) -> Iterator[Machines]:
        """Machines that are there for the block; raises OSError where they cannot be made."""
        tag = f"psk{secrets.token_hex(3)}"
        # 198.18.0.0/15 is for tests of networks: nobody is there.
        network = f"198.{18 + secrets.randbelow(2)}.{secrets.randbelow(256)}"
        nodes = tuple(Machine(f"{tag}-{n}", f"{network}.{n + 1}", f"{tag}v{n}") for n in range(1, count + 1))
        try:
            run("ip", "link", "add", tag, "type", "bridge")
            run("ip", "address", "add", f"{network}.1/24", "dev", tag)
            run("ip", "link", "set", tag, "up")
            for node in nodes:
                _make(node, tag)
            yield cls(f"{network}.1", nodes)
        finally:
            # Best effort, so that the first error is the one that is seen.
            for node in nodes:
                subprocess.run(["ip", "link", "del", node.port], capture_output=True, check=False)
                subprocess.run(["ip", "netns", "del", node.name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", tag], capture_output=True, check=False)


def _make(node: Machine, bridge: str) -> None:
    run("ip", "netns", "add", node.name)
    run("ip", "link", "add", node.port, "type", "veth", "peer", "name", _LINK, "netns", node.name)
    run("ip", "link", "set", node.port, "master", bridge, "up")
    run("ip", "-n", node.name, "address", "add", f"{node.address}/24", "dev", _LINK)
    run("ip", "-n", node.name, "link", "set", _LINK, "up")
    run("ip", "-n", node.name, "link", "set", "lo", "up")
    run("tc", "-n", node.name, "qdisc", "add", "dev", _LINK, "clsact")


def why_there_are_none() -> str | None:
    """Why machines cannot be made here, if they cannot."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"network namespaces need iproute2, and there is no {' and no '.join(missing)}"
    try:
        with Machines.made(1) as machines, machines.nodes[0].cut_off(machines.address):
            return None
    except OSError as error:
        return f"network namespaces cannot be made here: {error}"


class DistributedDeployment(Deployment):
    """Nodes on machines of their own, named node1, node2 and so on; all else on that of the test."""

    def __init__(
        self,
        machines: Machines,
        folder: Path,
        postgres: EmbeddedPostgres,
        nats: EmbeddedNats,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(folder, postgres, nats, settings)
        self.machines = machines

    @classmethod
    @asynccontextmanager
    async def over(
        cls, machines: Machines, *, slots: int, settings: Mapping[str, str]
    ) -> AsyncIterator[DistributedDeployment]:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-test-")))
            postgres = await EmbeddedPostgres.start(folder / "postgres", {"fsync": "off"})
            nats = await EmbeddedNats.start(folder / "nats")
            secured = {"RPC__TOKEN": TOKEN, "CONTROLLER__HOST": machines.address, **settings}
            deployment = await stack.enter_async_context(cls(machines, folder, postgres, nats, secured))
            for service in ("compiler", "controller", "api"):
                await deployment.start(service)
            for name in deployment.nodes:
                await deployment.start_node(name, slots)
            await deployment.until_ready(len(machines.nodes))
            yield deployment

    @property
    def nodes(self) -> dict[str, Machine]:
        return {f"node{number}": machine for number, machine in enumerate(self.machines.nodes, 1)}

    @property
    def controller_addresses(self) -> str:
        return f"{self.machines.address}:{self.ports['controller']}"

    async def start_node(self, name: str, slots: int = 2) -> Process:
        machine = self.nodes[name]
        settings = {
            "NODE__CONTROLLER": self.controller_addresses,
            "NODE__HOST": machine.address,
            "NODE__RPC_PORT": "0",
            "NODE__ADMIN_PORT": "0",
            "NODE__SLOTS": str(slots),
            "SPARK__HEAP": "512MiB",
            **self.settings,
        }
        environment = plain_environment(**{f"PENSTOCK__{name}": value for name, value in settings.items()})
        process = await Process.start(name, machine.command(str(PENSTOCK), "node"), environment, self.folder)
        self.processes[name] = process
        return process

    def node_id(self, name: str) -> str:
        """The id that a node has given itself."""
        joined = (line for line in self.processes[name].lines() if line["event"] == "controller_joined")
        return str(next(joined)["node"])
