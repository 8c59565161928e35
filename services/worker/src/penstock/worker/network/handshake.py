"""How two workers know each other: by the cluster's token, which neither sends, the job and its generation.

whoever was connected to                          whoever connected
  CHALLENGE version, nonce             →
                                       ←          HELLO version, job, generation, both workers, nonce, proof
  WELCOME proof  |  REFUSED reason     →
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import asdict, dataclass
from typing import Final

from penstock.common.errors import PeerUnavailable
from penstock.common.ids import Generation, JobId, WorkerId
from penstock.worker.network.frames import BadFrame, Frame, FrameType, encode_frame
from penstock.worker.network.link import Link

VERSION: Final = 1
_CHALLENGE: Final = struct.Struct("<4sH32s")
_MAGIC: Final = b"PNST"
_NONCE_BYTES: Final = 32
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is connected with whom, and for what."""

    job: JobId
    generation: Generation
    dialer: WorkerId
    acceptor: WorkerId

    def __str__(self) -> str:
        return f"worker {self.dialer} with generation {self.generation} of job {self.job}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who has the token, and has said who they are; not yet welcome."""

    identity: Identity
    answer: bytes


async def introduce(link: Link, identity: Identity, token: str) -> None:
    """The part of whoever connected; raises PeerUnavailable when they are refused, BadFrame for a stranger."""
    challenge = _nonce_of(_expect(await link.next_frame(), FrameType.CHALLENGE))
    nonce = secrets.token_bytes(_NONCE_BYTES)
    said = asdict(identity) | {"version": VERSION, "nonce": nonce.hex()}
    said["proof"] = _proof(token, "dialer", challenge, nonce, identity).hex()
    link.write([encode_frame(FrameType.HELLO, json.dumps(said).encode())])
    answer = await link.next_frame()
    if answer.type is FrameType.REFUSED:
        reason = bytes(answer.payload)[:_LONGEST_REASON].decode(errors="replace")
        raise PeerUnavailable(f"worker {identity.acceptor} refused the connection: {reason}")
    proof = bytes(_expect(answer, FrameType.WELCOME).payload)
    if not hmac.compare_digest(proof, _proof(token, "acceptor", challenge, nonce, identity)):
        raise BadFrame("whoever answered does not have the cluster's token")


async def meet(link: Link, token: str) -> Claim:
    """The first part of whoever was connected to; raises BadFrame for a stranger."""
    challenge = secrets.token_bytes(_NONCE_BYTES)
    link.write([encode_frame(FrameType.CHALLENGE, _CHALLENGE.pack(_MAGIC, VERSION, challenge))])
    identity, nonce, proof = _hello_of(_expect(await link.next_frame(), FrameType.HELLO))
    if not hmac.compare_digest(proof, _proof(token, "dialer", challenge, nonce, identity)):
        raise BadFrame("the cluster's token is missing or wrong", hint="set the same rpc.token for all services")
    return Claim(identity, _proof(token, "acceptor", challenge, nonce, identity))


def welcome(link: Link, claim: Claim) -> None:
    link.write([encode_frame(FrameType.WELCOME, claim.answer)])


def refuse(link: Link, reason: str) -> None:
    """Says why, and closes the connection."""
    link.write([encode_frame(FrameType.REFUSED, reason.encode()[:_LONGEST_REASON])])
    link.close()


def _proof(token: str, role: str, challenge: bytes, nonce: bytes, identity: Identity) -> bytes:
    said = json.dumps([role, VERSION, challenge.hex(), nonce.hex(), asdict(identity)], sort_keys=True)
    return hmac.new(token.encode(), said.encode(), hashlib.sha256).digest()


def _expect(frame: Frame, type: FrameType) -> Frame:
    if frame.type is not type:
        raise BadFrame(f"a frame of type {frame.type.name} came instead of {type.name}")
    return frame


def _nonce_of(frame: Frame) -> bytes:
    if frame.payload.size != _CHALLENGE.size:
        raise BadFrame("a challenge of a wrong length")
    magic, version, nonce = _CHALLENGE.unpack(frame.payload)
    if magic != _MAGIC:
        raise BadFrame("whoever answered is no worker")
    _check_version(version)
    return bytes(nonce)


def _hello_of(frame: Frame) -> tuple[Identity, bytes, bytes]:
    try:
        said = json.loads(bytes(frame.payload))
        version, generation = int(said["version"]), Generation(int(said["generation"]))
        job, dialer, acceptor = (str(said[key]) for key in ("job", "dialer", "acceptor"))
        nonce, proof = bytes.fromhex(said["nonce"]), bytes.fromhex(said["proof"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFrame("a hello that cannot be read") from error
    _check_version(version)
    return Identity(JobId(job), generation, WorkerId(dialer), WorkerId(acceptor)), nonce, proof


def _check_version(version: int) -> None:
    if version != VERSION:
        raise BadFrame(
            f"the other side speaks version {version} of the protocol, this one {VERSION}",
            hint="run the same release of Penstock on all machines",
        )
