"""Tracebacks as users want them: without the frames through which their function is called."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

_OURS: Final = str(Path(__file__).parent)


def users_traceback(error: BaseException) -> str:
    """The traceback of an error from the user's first frame on."""
    told = traceback.TracebackException.from_exception(error)
    while told.stack and (told.stack[0].filename.startswith(_OURS) or _is_loops(told.stack[0].filename)):
        del told.stack[0]
    return "".join(told.format()).strip()


def _is_loops(file: str) -> bool:
    return Path(file).parent.name == "asyncio"
