"""The block of PEP 723 in a source."""

from __future__ import annotations

import pytest

from penstock.udf.scripts import ScriptBlock, WrongBlock, script_block

SOURCE = """
# /// script
# requires-python = ">=3.11"
# dependencies = ["humanize>=4", "idna"]
#
# [tool.penstock]
# in_flight = 500
# ordered = false
# timeout = "2s"
# ///

async def f(a: int) -> int:
    return a
"""


def test_block_tells_dependencies_and_options() -> None:
    block = script_block(SOURCE)
    assert block.dependencies == ("humanize>=4", "idna")
    assert block.requires_python == ">=3.11"
    assert block.options == {"in_flight": "500", "ordered": "false", "timeout": "2s"}
    assert block.line == 2


def test_source_without_a_block_needs_nothing() -> None:
    assert script_block("def f(a: int) -> int: ...\n# dependencies = ['x']\n") == ScriptBlock()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# dependencies = [", "not TOML"),
        ("# dependencies = 'idna'", "a list of texts"),
        ("# [tool]\n# penstock = 3", "a table"),
    ],
)
def test_block_that_cannot_be_read_is_refused_with_its_line(content: str, message: str) -> None:
    with pytest.raises(WrongBlock, match=message) as raised:
        script_block(f"\n\n# /// script\n{content}\n# ///\n")
    assert raised.value.line == 3
