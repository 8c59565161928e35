"""Asks a parser of the engine for blocks of lines, for as long as it takes most of them."""

from __future__ import annotations

from typing import Final

from penstock.common.errors import InternalError, RetryHint
from penstock.connectors.base import LineParser, ParsedLines
from penstock.connectors.formats.line_blocks import FileBlock

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
        self._reads_files = True

    def parse(self, block: bytes | FileBlock) -> ParsedLines | None:
        """The rows that the parser found in a block; None when it is to be read in another way."""
        if not 0 < len(block) <= _LARGEST_BLOCK:
            return None
        if self._pause:
            self._pause -= 1
            return None
        parsed = self._decode(block)
        _, line_count, odd = parsed
        if len(odd) * _ODD_SHARE > line_count:
            self._pause = _PAUSE_BLOCKS
            return None
        return parsed

    def _decode(self, block: bytes | FileBlock) -> ParsedLines:
        if isinstance(block, bytes):
            return self._parser.decode(block)
        if self._reads_files:
            try:
                return self._parser.decode_file(block.path, block.offset, len(block))
            except InternalError as error:
                if error.retry is not RetryHint.NEVER:
                    raise
                self._reads_files = False  # it may not look into this process's files
        return self._parser.decode(block.read())

    def close(self) -> None:
        """Gives back what the parser holds."""
        self._parser.close()
