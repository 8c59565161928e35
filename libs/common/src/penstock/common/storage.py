"""Object storage: whole objects by path, over a folder, S3, Google Cloud Storage, Azure or memory.

    open_storage("s3://bucket/prefix", {"region": "eu-west-1"})

A path is relative to the storage's URL, and is an object's or a folder's but not both. A write is atomic: a reader
sees the whole object or none of it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from penstock.common.errors import InternalError, ObjectNotFound, SettingsError, StorageError
from penstock.common.redaction import redact_message, without_credentials

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

Data = bytes | bytearray | memoryview

_CLOUDS = {"s3", "gcs", "azure"}
# Azure's own form has the container where others have the user: abfss://container@account.dfs.core.windows.net/path
_CONTAINER_AS_USER = {"abfs", "abfss"}
_RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=5), "base": 2},
}
# A request's time includes its body, and the 30 seconds that are usual are short for a large object.
_CLIENT: ClientConfig = {"connect_timeout": "5s", "timeout": "5m"}
# obstore takes these apart from a storage's own options, and aborts on one among them.
_CLIENT_OPTION = re.compile(
    r"(?:aws_|google_|azure_)?"
    r"(allow_http|allow_invalid_certificates|default_content_type|http[12]_\w+|pool_\w+|proxy_\w+|randomize_addresses"
    r"|connect_timeout|read_timeout|timeout|user_agent)"
)
_LIST_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    modified_at: datetime


class Storage(Protocol):
    """Whole objects by path. Failures are StorageError; an object that is not there is ObjectNotFound."""

    @property
    def url(self) -> str:
        """Where this is, without credentials."""

    async def put(self, path: str, data: Data | AsyncIterator[bytes]) -> None:
        """Write an object, in place of one that is there; a large one as its parts come."""

    async def put_if_absent(self, path: str, data: Data) -> bool:
        """Write an object unless there is one; returns whether it was written.

        False can also mean that an attempt of this very call was written and its answer lost: where that matters,
        compare what is there.
        """

    async def get(self, path: str) -> bytes: ...

    async def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """A part of an object, shorter where the object ends first; a start beyond the end is an error."""

    async def head(self, path: str) -> ObjectInfo: ...

    async def exists(self, path: str) -> bool: ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """The objects below a folder, at any depth and in no order."""

    async def delete(self, *paths: str) -> None:
        """Delete objects; those that are not there are none to delete."""

    def child(self, prefix: str) -> Storage:
        """A view of a folder, with paths relative to it."""


def open_storage(url: str, options: Mapping[str, str] | None = None) -> Storage:
    """The storage at a URL or a local path; raises SettingsError when it is not one.

    Options are obstore's for S3, Google and Azure, such as region, endpoint or allow_http; a folder and memory take
    none. Each `memory://` is a storage of its own.
    """
    scheme, separator, rest = url.partition("://")
    if not url:
        raise SettingsError("the storage URL is empty")
    if not separator:
        return _open_folder(Path(url).expanduser())
    if scheme == "file":
        if not rest.startswith("/"):
            raise SettingsError(f"{url} must name an absolute path", hint="write file:///path")
        return _open_folder(Path(unquote(rest)))
    if scheme == "memory":
        storage = _ObstoreStorage(MemoryStore(), "memory://", "")
        return storage.child(rest.strip("/")) if rest.strip("/") else storage
    return _open_cloud(url, options or {})


def _open_folder(folder: Path) -> Storage:
    url = folder.absolute().as_uri()
    with _mapped_errors("open", url):
        return _ObstoreStorage(LocalStore(folder.absolute(), mkdir=True), url, "")


def _open_cloud(url: str, options: Mapping[str, str]) -> Storage:
    parts, shown = urlsplit(url), without_credentials(url)
    if parts.query or ("@" in parts.netloc and parts.scheme not in _CONTAINER_AS_USER):
        raise SettingsError(
            f"the storage URL {shown} must hold neither credentials nor a query string",
            hint="put credentials into storage.options",
        )
    client: dict[str, Any] = dict(_CLIENT)
    own: dict[str, Any] = {}
    for name, value in options.items():
        match = _CLIENT_OPTION.fullmatch(name.lower())
        if match is None:
            own[name] = value
        else:
            client[match[1]] = value
    try:
        if obstore.parse_scheme(url) not in _CLOUDS:
            raise SettingsError(f"{shown} is not a storage URL", hint="it is a path, file://, s3://, gs:// or az://")
        typed: Any = {"config": own, "client_options": client, "retry_config": _RETRY}
        return _ObstoreStorage(from_url(url, **typed), url.rstrip("/"), "")
    except (BaseError, OSError, ValueError) as error:
        raise SettingsError(f"cannot use the storage {shown}: {_reason(error)}") from None


class _ObstoreStorage:
    """Storage over any store of obstore's."""

    def __init__(self, store: ObjectStore, url: str, prefix: str) -> None:
        self._store = store
        self._url = url
        self._prefix = prefix

    @property
    def url(self) -> str:
        return self._url

    async def put(self, path: str, data: Data | AsyncIterator[bytes]) -> None:
        with self._errors("write", path):
            await self._store.put_async(self._full(path), data)

    async def put_if_absent(self, path: str, data: Data) -> bool:
        with self._errors("write", path):
            try:
                await self._store.put_async(self._full(path), data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    async def get(self, path: str) -> bytes:
        with self._errors("read", path):
            result = await self._store.get_async(self._full(path))
            return bytes(await result.bytes_async())

    async def get_range(self, path: str, *, start: int, length: int) -> bytes:
        full = self._full(path)
        if start < 0 or length < 0:
            raise InternalError(f"a range cannot start at {start} and have {length} bytes")
        if length == 0:
            return b""
        with self._errors("read", path):
            return bytes(await self._store.get_range_async(full, start=start, length=length))

    async def head(self, path: str) -> ObjectInfo:
        with self._errors("read", path):
            return self._info(await self._store.head_async(self._full(path)))

    async def exists(self, path: str) -> bool:
        try:
            await self.head(path)
        except ObjectNotFound:
            return False
        return True

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        folder = self._full(prefix) if prefix else self._prefix
        with self._errors("list", prefix):
            async for chunk in self._store.list(folder or None, chunk_size=_LIST_CHUNK):
                for meta in chunk:
                    yield self._info(meta)

    async def delete(self, *paths: str) -> None:
        full = [self._full(path) for path in paths]
        if not full:
            return
        with self._errors("delete", paths[0] if len(paths) == 1 else ""):
            try:
                await self._store.delete_async(full)
            except FileNotFoundError:
                # A folder stops at the first that is missing; a cloud storage does not tell.
                for path in full:
                    with suppress(FileNotFoundError):
                        await self._store.delete_async(path)

    def child(self, prefix: str) -> Storage:
        return _ObstoreStorage(self._store, _joined(self._url, prefix), self._full(prefix))

    def _full(self, path: str) -> str:
        if not path.isprintable() or any(part in {"", ".", ".."} for part in path.split("/")):
            raise InternalError(f"{path!r} is not the path of an object")
        return f"{self._prefix}/{path}" if self._prefix else path

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        path = meta["path"].removeprefix(f"{self._prefix}/") if self._prefix else meta["path"]
        return ObjectInfo(path, meta["size"], meta["last_modified"])

    def _errors(self, action: str, path: str) -> AbstractContextManager[None]:
        return _mapped_errors(action, _joined(self._url, path))


def _joined(url: str, path: str) -> str:
    return f"{url}{'' if url.endswith('/') or not path else '/'}{path}"


@contextmanager
def _mapped_errors(action: str, url: str) -> Iterator[None]:
    """Raise obstore's errors as ours, without their cause: it spells out requests, which can hold credentials."""
    try:
        yield
    except FileNotFoundError as error:
        # A write does not miss its object, nor is an object missing whose bucket is: both are faults of the storage.
        if action != "read" or _code(error) in {"NoSuchBucket", "ContainerNotFound"}:
            raise StorageError(f"cannot {action} {url}: {_reason(error)}") from None
        raise ObjectNotFound(f"there is no object {url}") from None
    except (BaseError, OSError, ValueError) as error:
        raise StorageError(f"cannot {action} {url}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """The first line of obstore's message, and the code of the answer if there was one."""
    first = redact_message(str(error).partition("\n")[0])
    code = _code(error)
    return re.sub(r":?\s*<.*", "", first) + (f" ({code})" if code else "")


def _code(error: Exception) -> str | None:
    match = re.search(r"<Code>(\w+)</Code>", str(error))
    return match[1] if match else None
