"""What the compiler says of a query: a message with its place in the user's own text, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.common.proto import compiler_pb2 as proto

_TAB: Final = "    "
_WIDEST_LINE: Final = 160


class Severity(Enum):
    """Whether a query with such a diagnostic has no program."""

    ERROR = proto.SEVERITY_ERROR
    WARNING = proto.SEVERITY_WARNING


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of text; lines and columns count characters from 1, the end is the last character."""

    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of(cls, text: str, start: int, end: int) -> Span:
        """The stretch from one offset up to and with another."""
        return cls(*_place(text, start), *_place(text, max(start, end)))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A message about a query: lowercase, without a full stop; `span` is None when it is about all of it."""

    severity: Severity
    code: str
    message: str
    hint: str | None = None
    span: Span | None = None


def has_errors(diagnostics: Sequence[Diagnostic]) -> bool:
    """Whether any of them is an error."""
    return any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics)


def render_diagnostic(diagnostic: Diagnostic, query: str, name: str = "query") -> str:
    """The diagnostic as a terminal shows it: what, where, the line with a caret under the place, and the hint.

    error[unknown_column]: unknown column "usr_id"
      --> query.sql:3:8
       |
     3 | SELECT usr_id FROM clicks
       |        ^^^^^^
       = hint: did you mean user_id?
    """
    lines = [f"{diagnostic.severity.name.lower()}[{diagnostic.code}]: {diagnostic.message}"]
    gutter = ""
    if diagnostic.span is not None:
        gutter = " " * len(str(diagnostic.span.line))
        lines.append(f"{gutter} --> {name}:{diagnostic.span.line}:{diagnostic.span.column}")
        lines.extend(_excerpt(diagnostic.span, query, gutter))
    if diagnostic.hint is not None:
        lines.append(f"{gutter}  = hint: {diagnostic.hint}")
    return "\n".join(lines)


def _excerpt(span: Span, query: str, gutter: str) -> list[str]:
    text_lines = query.split("\n")
    if span.line > len(text_lines):
        return []
    source = text_lines[span.line - 1].rstrip("\r")
    start = min(span.column - 1, len(source))
    end = min(span.end_column, len(source)) if span.end_line == span.line else len(source)
    # A line of a machine's making can be of any length: only what is around the place is shown.
    first = max(0, start - _WIDEST_LINE // 2) if len(source) > _WIDEST_LINE else 0
    shown = source[first : first + _WIDEST_LINE]
    before, marked = shown[: start - first], shown[start - first : max(end, start + 1) - first]
    caret = " " * _width(before) + "^" * max(1, _width(marked))
    return [f"{gutter}  |", f"{span.line}  | {_printable(shown)}".rstrip(), f"{gutter}  | {caret}"]


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else _stand_in(character) for character in text)


def _stand_in(character: str) -> str:
    return _TAB if character == "\t" else "\N{REPLACEMENT CHARACTER}"


def _width(text: str) -> int:
    return len(_printable(text))


def _place(text: str, offset: int) -> tuple[int, int]:
    before = text[: max(0, min(offset, len(text)))]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def diagnostic_to_proto(diagnostic: Diagnostic) -> proto.Diagnostic:
    """The diagnostic as a message."""
    span = diagnostic.span
    return proto.Diagnostic(
        severity=diagnostic.severity.value,
        code=diagnostic.code,
        message=diagnostic.message,
        hint=diagnostic.hint or "",
        span=None
        if span is None
        else proto.Span(line=span.line, column=span.column, end_line=span.end_line, end_column=span.end_column),
    )


def diagnostic_from_proto(message: proto.Diagnostic) -> Diagnostic:
    """The diagnostic in a message."""
    span = message.span
    return Diagnostic(
        Severity(message.severity),
        message.code,
        message.message,
        message.hint or None,
        Span(span.line, span.column, span.end_line, span.end_column) if message.HasField("span") else None,
    )
