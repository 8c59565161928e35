"""The controllers of a cluster, of which one leads: finds it, and has calls answered by it.

async with Controllers("one:5116,two:5116", settings) as controllers, calling(settings):
    await controllers.stub.HeartbeatNode(request)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import grpc.aio
import structlog

from penstock.common.errors import NotLeader, PeerUnavailable, PenstockError, SettingsError
from penstock.common.events import LogEvent
from penstock.common.fencing import GENERATION_KEY, UNSURE_KEY, Fence
from penstock.common.proto import controller_pb2 as proto
from penstock.common.proto.controller_pb2_grpc import ControllerServiceStub
from penstock.common.rpc import RpcSettings, calling, connect, remote_error

if TYPE_CHECKING:
    from penstock.common.proto.controller_pb2_grpc import ControllerServiceAsyncStub

_ATTEMPTS: Final = 3
_PATIENCE_SECONDS: Final = 1.5
"""How long a call may be unanswered before others are asked who leads."""
_ANSWER: Final = timedelta(seconds=1)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderClaim:
    """What the controller at `asked` says: whether it leads, and else who does."""

    asked: str
    leads: bool
    leader: str
    generation: int


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses that a setting names, separated by commas, each once."""
    addresses = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not addresses:
        raise SettingsError("no controller is named", hint="set its host and port, several separated by commas")
    return addresses


def resolve_leader(claims: Iterable[LeaderClaim], newest: int) -> LeaderClaim | None:
    """The newest of those that claim to lead; one that is older than what is known of has been deposed."""
    leading = [claim for claim in claims if claim.leads and claim.generation >= newest]
    return max(leading, key=lambda claim: claim.generation, default=None)


class Controllers:
    """Calls go to one controller until another is known to lead: it says so, or the one does not answer and another
    claims to. What is learnt of leaders is told to `fence`, and one that is older than that is not believed."""

    def __init__(self, addresses: str, settings: RpcSettings, fence: Fence | None = None) -> None:
        self._addresses = parse_addresses(addresses)
        self._settings = settings
        self._fence = fence or Fence()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._current = self._addresses[0]
        self._asking = asyncio.Lock()
        self._doubting: asyncio.Task[bool] | None = None
        routes: Any = _Routes(self)
        self.stub: ControllerServiceAsyncStub = cast(Any, ControllerServiceStub(routes))

    @property
    def address(self) -> str:
        """Where calls go now."""
        return self._current

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._doubting is not None:
            self._doubting.cancel()
            await asyncio.wait({self._doubting})
        await asyncio.gather(*(channel.close(None) for channel in self._channels.values()))

    # Calls

    async def call(self, send: Callable[[grpc.aio.Channel], Any]) -> Any:
        """The leader's answer."""
        for attempt in range(_ATTEMPTS):
            asked = self._current
            try:
                return await self._attempt(asked, send)
            except (NotLeader, PeerUnavailable) as error:
                told = error.leader if isinstance(error, NotLeader) else ""
                if not await self._leave(asked, told) or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    async def stream(self, send: Callable[[grpc.aio.Channel], Any]) -> AsyncGenerator[Any, None]:
        """The leader's answers; closing the iterator ends the call."""
        for attempt in range(_ATTEMPTS):
            asked, begun = self._current, False
            call = send(self._channel(asked))
            try:
                async for answer in call:
                    begun = True
                    yield answer
                return
            except grpc.aio.AioRpcError as failure:
                error = remote_error(failure)
                elsewhere = not begun and attempt < _ATTEMPTS - 1 and isinstance(error, NotLeader | PeerUnavailable)
                told = error.leader if isinstance(error, NotLeader) else ""
                if not elsewhere or not await self._leave(asked, told):
                    raise error from failure
            finally:
                call.cancel()

    async def _attempt(self, asked: str, send: Callable[[grpc.aio.Channel], Any]) -> Any:
        call = send(self._channel(asked))
        try:
            answer = await (self._patiently(asked, call) if len(self._addresses) > 1 else call)
            self._learn(asked, await call.trailing_metadata() or ())
        except grpc.aio.AioRpcError as error:
            raise remote_error(error) from error
        finally:
            call.cancel()
        return answer

    async def _patiently(self, asked: str, call: Any) -> Any:
        """Wait for an answer, unless another controller turns out to lead."""
        answering = asyncio.ensure_future(_answer(call))
        try:
            while True:
                done, _ = await asyncio.wait({answering}, timeout=_PATIENCE_SECONDS)
                if done:
                    return answering.result()
                if await self._leave(asked):
                    raise PeerUnavailable(f"the controller at {asked} does not answer, and another leads")
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await answering

    def _learn(self, asked: str, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        told = dict(metadata)
        generation = str(told.get(GENERATION_KEY, ""))
        if generation.isdecimal():
            if int(generation) < self._fence.newest:
                raise NotLeader(f"the controller at {asked} has been deposed and does not know it")
            self._fence.observe(int(generation))
        if UNSURE_KEY in told and (self._doubting is None or self._doubting.done()):
            self._doubting = asyncio.create_task(self._leave(asked), name="doubting-leader")

    # Who leads

    async def _leave(self, asked: str, told: str = "") -> bool:
        """Whether there is another controller to ask instead."""
        async with self._asking:
            if self._current != asked:
                return True
            listed = dict.fromkeys((*self._addresses, asked, *((told,) if told else ())))
            if len(listed) == 1:
                return False
            claims = await self._ask(listed)
            named = dict.fromkeys(claim.leader for claim in claims if claim.leader and claim.leader not in listed)
            claims += await self._ask(named)
            found = resolve_leader(claims, self._fence.newest)
            if found is None or found.asked == asked:
                return False
            log.info(LogEvent.LEADER_FOUND, address=found.asked, generation=found.generation)
            self._fence.observe(found.generation)
            self._current = found.asked
            await self._drop_channels()
            return True

    async def _ask(self, addresses: Iterable[str]) -> list[LeaderClaim]:
        answers = await asyncio.gather(*map(self._ask_one, addresses))
        return [answer for answer in answers if answer is not None]

    async def _ask_one(self, address: str) -> LeaderClaim | None:
        try:
            async with calling(self._settings, within=_ANSWER):
                answer = await ControllerServiceStub(self._channel(address)).GetLeader(proto.GetLeaderRequest())
        except PenstockError:
            return None
        return LeaderClaim(address, answer.leads, answer.address, answer.generation)

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = connect(address, self._settings)
        return self._channels[address]

    async def _drop_channels(self) -> None:
        """Those of leaders of the past that no setting names."""
        for address in self._channels.keys() - {*self._addresses, self._current}:
            await self._channels.pop(address).close(None)


class _Routes:
    """What a stub takes for a channel."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers

    def unary_unary(self, *method: Any, **codec: Any) -> Callable[[Any], Any]:
        return lambda request: self._controllers.call(lambda channel: channel.unary_unary(*method, **codec)(request))

    def unary_stream(self, *method: Any, **codec: Any) -> Callable[[Any], Any]:
        return lambda request: self._controllers.stream(lambda channel: channel.unary_stream(*method, **codec)(request))


async def _answer(call: Any) -> Any:
    return await call
