"""Where things of a query are in the user's own text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from penstock.common.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Text:
    """The user's text; offsets in trees and tokens are offsets in it."""

    content: str

    def between(self, start: int, end: int) -> Span:
        """The span of two offsets, both included."""
        return Span.of(self.content, start, end)

    def of_tokens(self, first: Token, last: Token | None = None) -> Span:
        """The span from a token to another."""
        return self.between(first.start, (last or first).end)

    def span(self, *nodes: exp.Expr | None) -> Span | None:
        """The span of the first of these nodes that has one."""
        for node in nodes:
            if node is not None and (found := extent(node)) is not None:
                return self.between(*found)
        return None

    def keyword(self, pattern: str | None, before: exp.Expr) -> Span | None:
        """The span of the last keyword before a node, and of the node; of the node alone when there is none."""
        found = extent(before)
        if found is None:
            return None
        matches = list(re.finditer(pattern, self.content[: found[0]], re.IGNORECASE)) if pattern else []
        return self.between(matches[-1].start() if matches else found[0], found[1])

    def place(self, node: exp.Expr | None) -> Span | None:
        """The span of a node's own name rather than of all of it, where it has one."""
        if node is not None and (own := _own(node)) is not None:
            return self.between(*own)
        return self.span(node)


def extent(node: exp.Expr) -> tuple[int, int] | None:
    """The offsets of the first and the last character that a node and what is in it are known to have."""
    found = [own for part in node.walk() if (own := _own(part)) is not None]
    return (min(start for start, _ in found), max(end for _, end in found)) if found else None


def _own(node: exp.Expr) -> tuple[int, int] | None:
    meta = node._meta
    return (meta["start"], meta["end"]) if meta and "start" in meta else None
