"""Windows of event time: what tumble, hop and session say, and the SQL that puts rows into them."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final, TypeAlias

from sqlglot import exp

from penstock.common.program import WATERMARK_COLUMN, WINDOW_COLUMN, WINDOW_END_COLUMN
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import WINDOWS, call
from penstock.compiler.intervals import Interval, parse_interval, spark_interval
from penstock.compiler.positions import Text
from penstock.compiler.relations import column
from penstock.compiler.watermarks import ON_TIME
from penstock.connectors.base import TIMESTAMP_COLUMN

_HINTS: Final = {
    "tumble": "write tumble(INTERVAL '1 minute')",
    "hop": "write hop(INTERVAL '10 seconds', INTERVAL '1 minute'): the slide, then the width",
    "session": "write session(INTERVAL '30 seconds')",
}
_LONG_AGO: Final = "TIMESTAMP_NTZ'-290000-01-01'"  # before every moment that Spark can write


@dataclass(frozen=True, slots=True)
class Tumble:
    """Windows of one width, one after the other."""

    width_us: int


@dataclass(frozen=True, slots=True)
class Hop:
    """Windows of one width that begin at each slide."""

    slide_us: int
    width_us: int

    @property
    def pane_us(self) -> int:
        """What windows are made of: each of them is some whole panes."""
        return gcd(self.slide_us, self.width_us)


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end when a key has been quiet for a gap."""

    gap_us: int


@dataclass(frozen=True, slots=True)
class Inherited:
    """The windows that the rows are of already."""

    width_us: int | None


Window: TypeAlias = Tumble | Hop | Session | Inherited


def is_window(node: exp.Expr) -> bool:
    """Whether a node is a call of a window."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in WINDOWS


def read_window(node: exp.Anonymous, lengths: list[exp.Expr], text: Text) -> Tumble | Hop | Session:
    """The window that a call with these lengths means."""
    name = node.name.lower()
    wanted = 2 if name == "hop" else 1
    if len(lengths) != wanted:
        message = f"{name} takes {wanted} interval{'s' if wanted > 1 else ''}, not {len(lengths)}"
        raise refusal("wrong_arguments", message, text.place(node), _HINTS[name])
    sizes = [_microseconds(name, length, text, node) for length in lengths]
    match name:
        case "tumble":
            return Tumble(*sizes)
        case "hop":
            return Hop(*sizes)
        case _:
            return Session(*sizes)


def _microseconds(name: str, length: exp.Expr, text: Text, near: exp.Expr) -> int:
    interval: Interval | None = None
    if isinstance(length, exp.Interval) and isinstance(length.this, exp.Literal):
        unit = length.args.get("unit")
        interval = parse_interval(length.this.name, unit.name if unit is not None else None)
    if interval is None:
        raise refusal("wrong_arguments", f"{name} takes a literal interval", text.span(length, near), _HINTS[name])
    if interval.months or interval.microseconds <= 0:
        hint = "months have no one length" if interval.months else None
        message = f"a window is some days, hours, minutes or seconds long, not {_shown(length)}"
        raise refusal("wrong_arguments", message, text.span(length, near), hint)
    return interval.microseconds


def _shown(length: exp.Expr) -> str:
    return length.sql().replace("INTERVAL ", "").lower()


def interval_of(microseconds: int) -> exp.Expr:
    """A length of time in Spark SQL."""
    return exp.Var(this=spark_interval(Interval(0, microseconds)))


def later(moment: exp.Expr, microseconds: int) -> exp.Expr:
    """A moment some time later, or earlier."""
    if microseconds == 0:
        return moment
    return exp.Paren(this=exp.Add(this=moment, expression=interval_of(microseconds)))


def pane_of(width_us: int) -> exp.Expr:
    """Where the pane that a row is in begins."""
    return call("penstock_pane", column(TIMESTAMP_COLUMN), width_us)


def closes_at(window: Window) -> exp.Expr:
    """Until when a row can come: when the last window that it is in ends."""
    match window:
        case Tumble(width_us):
            return later(pane_of(width_us), width_us)
        case Hop(slide_us, width_us):
            return later(pane_of(slide_us), width_us)
        case Session() | Inherited():
            # A session ends by what touches it: were a row behind the watermark let in, it could touch one that has
            # left or has not, as it happens.
            return later(column(TIMESTAMP_COLUMN), 1)


def first_window(window: Hop) -> exp.Expr:
    """Where the first window begins that a row counts in; long ago, unless it came too late for one that it is in.

    It is never null: Spark has a faster map for groups whose keys are not."""
    ended = later(column(WATERMARK_COLUMN), -window.width_us)
    last_missed = call("penstock_pane", ended, window.slide_us)
    before_all = later(pane_of(window.pane_us), window.pane_us - window.width_us - 1)
    missed = exp.GT(this=last_missed, expression=call("penstock_pane", before_all, window.slide_us))
    return call("if", missed, later(last_missed.copy(), window.slide_us), exp.Var(this=_LONG_AGO))


def is_on_time(window: Window, lateness_us: int) -> exp.Expr:
    """Whether a row's window is still open by the watermark before it; those for which it is not are counted."""
    return call(ON_TIME, later(closes_at(window), lateness_us), column(WATERMARK_COLUMN))


def ends_of(window: Window) -> tuple[exp.Expr, exp.Expr]:
    """Where the window of a finished row begins and ends."""
    start = column(WINDOW_COLUMN)
    match window:
        case Tumble(width_us) | Hop(_, width_us):
            return start, later(start.copy(), width_us)
        case Session():
            return start, column(WINDOW_END_COLUMN)
        case Inherited():
            return start, later(start.copy(), 1)


def struct_of(window: Window) -> exp.Expr:
    """The column that users see."""
    start, end = ends_of(window)
    return call("named_struct", "start", start, "end", end)


def time_of(window: Window) -> exp.Expr:
    """The event time of a finished row: just before its window ends, so that windows nest."""
    if isinstance(window, Inherited):
        return column(WINDOW_COLUMN)
    return later(ends_of(window)[1], -1)
