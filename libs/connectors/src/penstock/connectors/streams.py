"""Which numbered events a subtask makes, at the beginning and where a job goes on, at whatever parallelism.

A stream has the events of one subtask's share from a number on. When the parallelism changes, streams of the new one
begin where the furthest of the old ones was; what the others still had below that is left over, and has an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.connectors.shares import Share


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a share from the number `at` on, and before `end`."""

    share: Share
    at: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        place = f"{self.share.subtask}/{self.share.parallelism}"
        return place if self.end is None else f"{place}<{self.end}"

    def indexes(self, total: int | None) -> range:
        """The share's indexes of the events that are to come, when there are `total` of all subtasks; None: no end."""
        ends = [end for end in (self.end, total) if end is not None]
        first = self.share.count_below(self.at)
        return range(first, max(first, self.share.count_below(min(ends)))) if ends else range(first, 1 << 62)

    def cut(self, pieces: int) -> Iterator[Stream]:
        """The same events as so many streams."""
        share = self.share
        for piece in range(pieces):
            subtask = share.subtask + piece * share.parallelism
            yield replace(self, share=Share(subtask, share.parallelism * pieces, share.block))


def frontier(streams: Sequence[Stream]) -> int:
    """How far the furthest stream is: no event from this number on has been given away."""
    return max((stream.at for stream in streams if stream.end is None), default=0)


def deal_streams(restored: Sequence[Stream], own: Share) -> tuple[Stream, ...]:
    """A subtask's streams: first its own without an end, then some of those that are left over."""
    endless = [stream for stream in restored if stream.end is None]
    left = [stream for stream in restored if stream.end is not None and stream.at < stream.end]
    kept = next((stream for stream in endless if stream.share == own), None)
    if kept is None or len(endless) != own.parallelism:
        furthest = frontier(restored)
        left += [replace(stream, end=furthest) for stream in endless if stream.at < furthest]
        kept = Stream(own, own.number(own.count_below(furthest)))
    left.sort(key=lambda stream: (stream.at, stream.name))
    pieces = -(-own.parallelism // len(left)) if left else 1
    cut = [piece for stream in left for piece in stream.cut(pieces)]
    return (kept, *cut[own.subtask :: own.parallelism])
