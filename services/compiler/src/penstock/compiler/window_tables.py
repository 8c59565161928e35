"""Windows in FROM: the rows of a table, each in the windows that it is in, with `window_start` and `window_end`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from penstock.common.program import OP_COLUMN
from penstock.compiler.analysis import inputs_of
from penstock.compiler.diagnostics import refusal
from penstock.compiler.functions import call
from penstock.compiler.late_letters import note_late_letters
from penstock.compiler.planning import Planning
from penstock.compiler.relations import Relation, Windows, aliased, column, identifier, select_from_input
from penstock.compiler.tables import SelectSource
from penstock.compiler.windows import Hop, Session, interval_of, is_on_time, later, pane_of, read_window
from penstock.connectors.base import TIMESTAMP_COLUMN

START: Final = "window_start"
END: Final = "window_end"


@dataclass(frozen=True, slots=True)
class WindowTables(Planning):
    """Plans windows in FROM."""

    async def relation(self, node: exp.Anonymous, lengths: Sequence[exp.Expr], rows: Relation) -> Relation:
        """The rows, whose event time is now just before their window's end."""
        window = read_window(node, list(lengths), self.text)
        if isinstance(window, Session):
            hint = "group by session(…) instead: where a session ends depends on the key"
            raise refusal("unsupported", "session windows cannot be in FROM", self.text.place(node), hint)
        for name in (START, END):
            if name in rows.schema.names:
                raise refusal("duplicate", f"the table has a column {name} already", self.text.span(node))
        starts = pane_of(window.width_us)
        laterals: list[exp.Expr] = []
        if isinstance(window, Hop):
            starts = column("_start", "_starts")
            laterals = [_starts(window)]
        # A late row is judged by the last window that it is in.
        lateness_us = self.settings().allowed_lateness_ms * 1000
        await note_late_letters(SelectSource(rows, None, ()), None, window, lateness_us, self.analyst, self.steps)
        on_time = is_on_time(window, lateness_us) if rows.has_watermark else None
        timely = select_from_input([column(field.name) for field in rows.schema], where=on_time)
        timely_rows = self.steps.query(timely, rows, rows.schema, "rows on time", own="windows")
        end = later(starts.copy(), window.width_us)
        select = select_from_input(
            [
                *(column(field.name) for field in rows.columns),
                aliased(starts, START),
                aliased(end, END),
                *([column(OP_COLUMN)] if rows.is_updating else []),
                exp.Alias(this=later(end.copy(), -1), alias=identifier(TIMESTAMP_COLUMN)),
            ],
            laterals=laterals,
        )
        schema = await self.analyst.schema_of(select, inputs_of(rows.schema))
        relation = self.steps.query(select, timely_rows, schema, f"{node.name.lower()} windows", own="windows")
        windows = Windows(frozenset({START, END}), window.width_us)
        return Relation(relation.inputs, relation.schema, windows, times={END: 1})


def _starts(window: Hop) -> exp.Expr:
    """A row beside the start of each window that it is in; none for a row between windows."""
    last = pane_of(window.slide_us)
    first = later(last.copy(), -(window.width_us - 1) // window.slide_us * window.slide_us)
    every = call("sequence", first, last, interval_of(window.slide_us))
    parameter = exp.Identifier(this="s", quoted=True)
    inside = exp.Lambda(
        this=exp.GT(this=later(parameter.copy(), window.width_us), expression=column(TIMESTAMP_COLUMN)),
        expressions=[parameter],
    )
    return exp.Lateral(
        this=call("explode", call("filter", every, inside)),
        view=True,
        alias=exp.TableAlias(this=identifier("_starts"), columns=[identifier("_start")]),
    )
