"""A process that runs a source, and tells what its function is or what is wrong with it.

The source is the user's, and may do anything: so it has limits of time and memory, no output, and an environment
without secrets. What it is asked comes as JSON on standard input, and the answer goes to what was standard output
before.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import traceback
from typing import IO, Any

from penstock.common.udfs import Shape
from penstock.udf import sources
from penstock.udf.signatures import Place, Refused, definition_of, known, parsed


def main() -> None:
    """Answers one question."""
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    faults = os.fdopen(os.dup(2), "w")
    _silence()
    _limit(request, faults)
    sys.path[:0] = request["path"]
    answer = inspected(request["source"], request["file"], request["name"], request["shape"])
    faulthandler.cancel_dump_traceback_later()
    json.dump(answer, answers)
    answers.flush()
    os._exit(0)  # threads that the source has started do not matter


def inspected(source: str, file: str, name: str | None, shape: str | None) -> dict[str, Any]:
    """The signature, or what is wrong."""
    try:
        tree = parsed(source)
        definition = definition_of(tree, name)
        names = _run(source, file)
        signature = known(definition, names, None if shape is None else Shape(shape)).signature
    except Refused as refused:
        place = refused.place
        where = None if place is None else [place.line, place.column, place.end_line, place.end_column]
        return {"code": refused.code, "message": refused.message, "hint": refused.hint, "place": where}
    return {"signature": signature.to_json()}


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _limit(request: dict[str, Any], faults: IO[str]) -> None:
    """The end of time shows where the source was."""
    faulthandler.dump_traceback_later(request["seconds"], exit=True, file=faults)
    memory = request["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(source: str, file: str) -> dict[str, Any]:
    try:
        return sources.load(source, file)
    except MemoryError as error:
        place = _place(source, file, error)
        raise Refused("udf_memory", "the source needs more memory than it may have", place) from None
    except ModuleNotFoundError as error:
        hint = f'add a block: # /// script, # dependencies = ["{error.name}"], # ///'
        raise Refused("udf_dependency", f"there is no module {error.name}", _place(source, file, error), hint) from None
    except BaseException as error:
        message = f"the source fails when it is loaded: {type(error).__name__}: {error}"
        raise Refused("udf_fails", message.removesuffix(": "), _place(source, file, error)) from None


def _place(source: str, file: str, error: BaseException) -> Place | None:
    """The line of the source that an error came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if not frames or frames[-1].lineno is None:
        return None
    line = frames[-1].lineno
    text = source.splitlines()[line - 1]
    return Place(line, len(text) - len(text.lstrip()) + 1, line, max(1, len(text.rstrip())))


if __name__ == "__main__":
    main()
