from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.diagnostics import (
    Diagnostic,
    Severity,
    Span,
    diagnostic_from_proto,
    diagnostic_to_proto,
    has_errors,
    render_diagnostic,
)

NUMBERS = st.integers(1, 1000)
SPANS = st.builds(Span, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
DIAGNOSTICS = st.builds(
    Diagnostic, st.sampled_from(Severity), st.text(), st.text(), st.none() | st.text(min_size=1), st.none() | SPANS
)


@given(DIAGNOSTICS)
def test_diagnostic_survives_its_protobuf_form(diagnostic: Diagnostic) -> None:
    assert diagnostic_from_proto(diagnostic_to_proto(diagnostic)) == diagnostic


@given(DIAGNOSTICS, st.text())
def test_any_diagnostic_of_any_query_can_be_shown(diagnostic: Diagnostic, query: str) -> None:
    assert render_diagnostic(diagnostic, query).startswith(diagnostic.severity.name.lower())


def test_diagnostic_is_shown_with_its_line_and_a_caret_under_its_place() -> None:
    query = "SELECT\n\tusr_id FROM clicks"
    diagnostic = Diagnostic(
        Severity.ERROR, "unknown_column", "unknown column usr_id", "did you mean user_id?", Span.of(query, 8, 13)
    )
    assert render_diagnostic(diagnostic, query, "q.sql") == (
        "error[unknown_column]: unknown column usr_id\n"
        "  --> q.sql:2:2\n"
        "   |\n"
        "2  |     usr_id FROM clicks\n"
        "   |     ^^^^^^\n"
        "   = hint: did you mean user_id?"
    )


def test_long_line_is_cut_around_the_place() -> None:
    query = "x" * 5000 + "HERE" + "y" * 5000
    shown = render_diagnostic(Diagnostic(Severity.WARNING, "c", "m", None, Span.of(query, 5000, 5003)), query)
    line, caret = shown.split("\n")[-2:]
    assert len(line) < 200
    assert line[caret.index("^") : caret.rindex("^") + 1] == "HERE"


def test_diagnostic_of_the_whole_query_has_no_line() -> None:
    shown = render_diagnostic(Diagnostic(Severity.ERROR, "no_output", "it does nothing", "add one"), "")
    assert shown == "error[no_output]: it does nothing\n  = hint: add one"


@pytest.mark.parametrize(
    ("offsets", "span"), [((0, 2), Span(1, 1, 1, 3)), ((4, 7), Span(2, 1, 3, 1)), ((99, 99), Span(3, 2, 3, 2))]
)
def test_span_of_offsets_counts_lines_and_characters_from_one(offsets: tuple[int, int], span: Span) -> None:
    assert Span.of("abc\nde\nü", *offsets) == span


def test_warnings_alone_are_no_error() -> None:
    warning = Diagnostic(Severity.WARNING, "unused", "not used")
    assert not has_errors([warning])
    assert has_errors([warning, Diagnostic(Severity.ERROR, "x", "y")])
