"""What stands before every request: who may ask, and how much may be sent."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.api.http_errors import BodyTooLarge, ForbiddenHost, Unauthorized, http_error
from penstock.common.errors import PenstockError
from penstock.common.quantities import format_size
from penstock.common.rpc import is_loopback

PREFIX = "/api/v1"
# Load balancers and health checks have no token.
_OPEN = frozenset({f"{PREFIX}/ping"})


class Guard:
    """Refuses requests without the token, or where there is none, those not meant for this machine; reads the body.

    Without a token the api is on this machine alone, and yet a page in its user's browser could reach it under a name
    of its own that leads here; that name is in the request.
    """

    def __init__(self, app: ASGIApp, *, token: str, max_body: int) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode() if token else None
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if scope["path"] not in _OPEN:
                self._authorize(headers)
            body = await self._read(headers, receive)
        except PenstockError as error:
            await http_error(error)(scope, receive, send)
            return
        await self._app(scope, _replaying(body, receive), send)

    def _authorize(self, headers: Headers) -> None:
        if self._expected is None:
            host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
            if not is_loopback(host):
                raise ForbiddenHost("this api serves its own machine alone", hint="ask for it as 127.0.0.1")
        elif not hmac.compare_digest(headers.get("authorization", "").encode(), self._expected):
            raise Unauthorized("the token is missing or wrong", hint="send authorization: Bearer with api.token")

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        declared = headers.get("content-length", "0")
        chunks: list[bytes] = []
        size = int(declared) if declared.isdecimal() else 0
        more = size <= self._max_body
        received = 0
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            received += len(chunks[-1])
            size = max(size, received)
            more = message.get("more_body", False) and size <= self._max_body
        if size > self._max_body:
            raise BodyTooLarge(
                f"the body is larger than {format_size(self._max_body)}", hint="api.max_body is the limit"
            )
        return b"".join(chunks)


def _replaying(body: bytes, receive: Receive) -> Receive:
    """The body that was read, then whatever comes: the client's leaving."""
    replayed = False

    async def replay() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
