from __future__ import annotations

import re

from penstock.common.events import LogEvent


def test_names_are_snake_case_and_equal_their_member() -> None:
    for event in LogEvent:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event)
        assert event.name == event.upper()
