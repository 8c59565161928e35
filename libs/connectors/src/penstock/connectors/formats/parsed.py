"""Asks a parser of the engine for blocks of lines, for as long as it takes most of them."""

from __future__ import annotations

from typing import Final

from penstock.connectors.base import LineParser, ParsedLines

_LARGEST_BLOCK: Final = 64 * 1024 * 1024
_ODD_SHARE: Final = 16
"""From one line in so many on, reading each that the parser left takes longer than reading all without it."""
_PAUSE_BLOCKS: Final = 15
"""How many blocks are not shown to a parser that left too much of one."""


class BlockParser:
    """A parser that is left out where it does not pay."""

    def __init__(self, parser: LineParser) -> None:
        self._parser = parser
        self._pause = 0

    def parse(self, data: bytes | memoryview) -> ParsedLines | None:
        """The rows that the parser found in a block; None when it is to be read in another way."""
        if not data or len(data) > _LARGEST_BLOCK:
            return None
        if self._pause:
            self._pause -= 1
            return None
        parsed = self._parser.decode(data)
        _, line_count, odd = parsed
        if len(odd) * _ODD_SHARE > line_count:
            self._pause = _PAUSE_BLOCKS
            return None
        return parsed

    def close(self) -> None:
        """Gives back what the parser holds."""
        self._parser.close()
