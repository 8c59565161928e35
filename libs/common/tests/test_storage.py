from __future__ import annotations

import asyncio
import itertools
import socket
import traceback
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from penstock.common.errors import InternalError, ObjectNotFound, SettingsError, StorageError
from penstock.common.storage import Storage, open_storage

# More than obstore sends in one request, so that it uploads in parts.
LARGE = 12 * 1024 * 1024


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/bucket", method="PUT")).close()
    yield {
        "endpoint": endpoint,
        "allow_http": "true",
        "region": "us-east-1",
        "access_key_id": "key",
        "secret_access_key": "hunter2",
    }
    server.stop()


@pytest.fixture(params=["folder", "file", "memory", "s3", "child"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A new, empty storage of each kind."""
    match request.param:
        case "folder":
            return open_storage(str(tmp_path / "a folder"))
        case "file":
            return open_storage(f"{(tmp_path / 'a folder').as_uri()}/")
        case "s3":
            return open_storage(f"s3://bucket/{next(_numbers)}", request.getfixturevalue("s3_options"))
        case "child":
            return open_storage("memory://").child("jobs/a b")
        case _:
            return open_storage("memory://")


_numbers = itertools.count()


async def paths(storage: Storage, prefix: str = "") -> set[str]:
    return {info.path async for info in storage.list(prefix)}


@pytest.mark.parametrize("data", [b"", b"hello", bytearray(b"hello"), memoryview(b"hello")])
async def test_what_was_put_is_got(storage: Storage, data: bytes) -> None:
    await storage.put("a/b", data)
    assert await storage.get("a/b") == data


async def test_a_large_object_is_kept_whole(storage: Storage) -> None:
    data = bytes(range(256)) * (LARGE // 256)
    await storage.put("large", data)
    assert await storage.get("large") == data
    assert await storage.put_if_absent("other", data)
    assert await storage.get("other") == data


async def test_put_replaces(storage: Storage) -> None:
    await storage.put("a", b"a longer first")
    await storage.put("a", b"second")
    assert await storage.get("a") == b"second"


async def test_put_if_absent_keeps_the_first(storage: Storage) -> None:
    assert await storage.put_if_absent("a", b"first")
    assert not await storage.put_if_absent("a", b"second")
    assert await storage.get("a") == b"first"


async def test_of_concurrent_creators_exactly_one_wins(storage: Storage) -> None:
    wins = await asyncio.gather(*(storage.put_if_absent("a", str(n).encode()) for n in range(8)))
    assert wins.count(True) == 1
    assert await storage.get("a") == str(wins.index(True)).encode()


async def test_a_reader_sees_the_whole_object_or_nothing(storage: Storage) -> None:
    versions = [bytes([n]) * LARGE for n in range(4)]

    async def write() -> None:
        for version in versions:
            await storage.put("a", version)

    writing = asyncio.create_task(write())
    while not writing.done():
        with suppress(ObjectNotFound):
            assert await storage.get("a") in versions
        assert await paths(storage) <= {"a"}
    await writing


@pytest.mark.parametrize(("start", "length", "part"), [(0, 2, b"he"), (3, 2, b"lo"), (3, 99, b"lo"), (1, 0, b"")])
async def test_a_range_ends_with_the_object(storage: Storage, start: int, length: int, part: bytes) -> None:
    await storage.put("a", b"hello")
    assert await storage.get_range("a", start=start, length=length) == part


async def test_a_range_beyond_the_end_is_refused(storage: Storage) -> None:
    await storage.put("a", b"hello")
    with pytest.raises(StorageError):
        await storage.get_range("a", start=9, length=1)
    with pytest.raises(InternalError):
        await storage.get_range("a", start=-1, length=1)


async def test_head_tells_size_and_time(storage: Storage) -> None:
    await storage.put("a/b", b"hello")
    info = await storage.head("a/b")
    assert (info.path, info.size) == ("a/b", 5)
    assert abs(info.modified_at - datetime.now(UTC)) < timedelta(minutes=1)


async def test_what_is_missing_is_object_not_found_with_its_url(storage: Storage) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: storage.get("a/missing"),
        lambda: storage.get_range("a/missing", start=0, length=1),
        lambda: storage.head("a/missing"),
    ]
    for call in calls:
        with pytest.raises(ObjectNotFound) as caught:
            await call()
        assert caught.value.message == f"there is no object {storage.child('a').url}/missing"


async def test_a_folder_is_not_an_object(storage: Storage) -> None:
    await storage.put("a/b", b"1")
    assert await storage.exists("a/b")
    assert not await storage.exists("a")


async def test_list_finds_objects_below_a_folder_and_no_others(storage: Storage) -> None:
    assert await paths(storage) == set()
    for path in ("a/b", "a/c/d", "ab", "e"):
        await storage.put(path, path.encode())
    assert await paths(storage) == {"a/b", "a/c/d", "ab", "e"}
    assert await paths(storage, "a") == {"a/b", "a/c/d"}
    assert await paths(storage, "missing") == set()
    assert {info.path: info.size async for info in storage.list("a")} == {"a/b": 3, "a/c/d": 5}


async def test_list_goes_on_past_one_page(storage: Storage) -> None:
    names = {f"many/{n:04}" for n in range(1_010)}
    waiting = sorted(names)
    while waiting:  # a process may open a thousand files, and each write is one
        now, waiting = waiting[:100], waiting[100:]
        await asyncio.gather(*(storage.put(name, b"") for name in now))
    assert await paths(storage, "many") == names


async def test_delete_is_idempotent_and_leaves_the_rest(storage: Storage) -> None:
    for path in ("a", "b", "c/d"):
        await storage.put(path, b"1")
    await storage.delete("a", "missing", "c/d")
    await storage.delete("a")
    await storage.delete()
    assert await paths(storage) == {"b"}


async def test_a_child_sees_its_folder_alone(storage: Storage) -> None:
    child = storage.child("jobs").child("x/y")
    await storage.put("other", b"0")
    await child.put("a/b", b"1")
    assert await paths(child) == {"a/b"}
    assert (await child.head("a/b")).path == "a/b"
    assert await storage.get("jobs/x/y/a/b") == b"1"
    assert child.url == f"{storage.url.rstrip('/')}/jobs/x/y" or storage.url == "memory://"
    await child.delete("a/b")
    assert await paths(storage) == {"other"}


async def test_unusual_names_are_kept(storage: Storage) -> None:
    name = "day=1/x y/é+%25%2F&~.parquet"
    await storage.put(name, b"1")
    assert await paths(storage) == {name}
    assert await storage.get(name) == b"1"


@pytest.mark.parametrize("path", ["", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b", "a\nb"])
async def test_a_path_that_escapes_or_is_empty_is_refused(storage: Storage, path: str) -> None:
    with pytest.raises(InternalError):
        await storage.put(path, b"1")
    with pytest.raises(InternalError):
        await storage.get_range(path, start=0, length=0)
    with pytest.raises(InternalError):
        await storage.delete("a", path)
    with pytest.raises(InternalError):
        storage.child(path)
    if path:
        with pytest.raises(InternalError):
            await paths(storage, path)


async def test_each_memory_storage_is_its_own() -> None:
    first, second = open_storage("memory://"), open_storage("memory://some/where")
    await first.put("a", b"1")
    assert not await second.exists("a")
    assert (first.url, second.url) == ("memory://", "memory://some/where")


async def test_a_relative_path_is_below_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await open_storage("state/x").put("a", b"1")
    assert (tmp_path / "state/x/a").read_bytes() == b"1"


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot open file://"):
        open_storage(str(tmp_path / "file" / "folder"))


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket/prefix", {}),
        ("az://container/prefix", {"account_name": "account"}),
        ("https://account.blob.core.windows.net/container/prefix", {"azure_allow_http": "true"}),
        ("abfss://container@account.dfs.core.windows.net/prefix", {}),
        ("https://bucket.s3.eu-west-1.amazonaws.com/prefix", {"AWS_ALLOW_HTTP": "true", "aws_timeout": "7s"}),
    ],
)
def test_clouds_open_without_network(url: str, options: dict[str, str]) -> None:
    assert open_storage(url, options).url == url


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("", {}, "is empty"),
        ("file://relative/path", {}, "absolute"),
        ("ftp://host/path", {}, "ftp://host/path"),
        ("https://example.com/path", {}, "is not a storage URL"),
        ("s3://", {}, "s3:"),
        ("az://container", {}, "Account must be specified"),
        ("s3://bucket", {"regoin": "x"}, "regoin"),
        ("s3://bucket", {"timeout": "soon"}, "timeout|duration|soon"),
    ],
)
def test_what_is_not_a_storage_is_a_settings_error(url: str, options: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        open_storage(url, options)


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/a", "s3://bucket/a?sig=hunter2"])
def test_credentials_in_a_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_storage(url)
    assert "s3://bucket/a" in caught.value.message
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_a_missing_bucket_is_a_storage_error_not_a_missing_object(s3_options: dict[str, str]) -> None:
    storage = open_storage("s3://nowhere/a", s3_options)
    with pytest.raises(StorageError, match=r"cannot write s3://nowhere/a/b: .*\(NoSuchBucket\)"):
        await storage.put("b", b"1")
    with pytest.raises(StorageError) as caught:
        await storage.get("b")
    assert not isinstance(caught.value, ObjectNotFound)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


async def test_a_storage_that_cannot_be_reached_is_a_storage_error(s3_options: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}"
    storage = open_storage("s3://bucket/a", {**s3_options, "endpoint": endpoint})
    with pytest.raises(StorageError, match="cannot read s3://bucket/a/b"):
        await storage.get("b")
