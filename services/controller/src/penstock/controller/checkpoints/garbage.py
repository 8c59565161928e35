"""Which files of a job's folder nobody needs any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from penstock.common.checkpoint.paths import epoch_of
from penstock.common.ids import Epoch


def derive_kept(completed: Iterable[Epoch], retained: int, wanted: Collection[Epoch] = ()) -> tuple[Epoch, ...]:
    """The completed checkpoints to keep: the newest ones, and those that a savepoint is still to be made of."""
    ordered = sorted(completed)
    newest = ordered[-retained:]
    return tuple(epoch for epoch in ordered if epoch in newest or epoch in wanted)


def derive_garbage(paths: Iterable[str], kept: Collection[Epoch], needed: Collection[str]) -> Iterator[str]:
    """The files that are in folders of epochs below all that are kept, and that nothing kept refers to.

    Without a kept one there is no garbage: whatever is there may belong to one that is under way."""
    oldest = min(kept, default=Epoch(0))
    for path in paths:
        epoch = epoch_of(path)
        if epoch is not None and epoch < oldest and path not in needed:
            yield path
