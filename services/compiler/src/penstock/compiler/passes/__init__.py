"""The passes: each takes the logical plan and gives a better one, until it is a program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.compiler.analysis import Analyst
from penstock.compiler.passes.chain_steps import chain_steps
from penstock.compiler.passes.collapse_queries import collapse_queries
from penstock.compiler.passes.drop_identities import drop_identities
from penstock.compiler.passes.drop_observations import drop_observations
from penstock.compiler.passes.drop_unread import drop_unread
from penstock.compiler.passes.encode_lines import encode_lines
from penstock.compiler.passes.prune_columns import prune_columns
from penstock.compiler.passes.prune_sources import prune_sources
from penstock.compiler.passes.share_windows import share_windows
from penstock.compiler.plan import Plan

Pass = Callable[[Plan, Analyst], Awaitable[Plan]]

PASSES: Final[tuple[Pass, ...]] = (
    drop_unread,  # steps whose rows go nowhere
    drop_observations,  # watermarks that nobody waits for
    prune_columns,  # columns that no later step reads
    drop_identities,  # steps that change nothing
    collapse_queries,  # queries that follow each other become one
    share_windows,  # of steps that group the same rows, one does it for all
    prune_sources,  # what of a source no query reads, inside structs too
    drop_identities,  # and those that change nothing now
    encode_lines,  # rows become lines before they reach a sink that writes those
    collapse_queries,  # in the query that makes the rows
    chain_steps,  # steps that run in one subtask
)

__all__ = ["PASSES", "Pass"]
