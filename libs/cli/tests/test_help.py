from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = [
    "",
    "run",
    "up",
    "validate",
    "visualize",
    "migrate",
    "pipelines",
    "pipelines create",
    "pipelines restart",
    "jobs",
    "jobs output",
    "savepoints",
    "savepoints create",
    "udfs",
    "udfs create",
    "nodes",
    "nodes drain",
    "jobs checkpoints",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_as_reviewed(command: str) -> None:
    """PENSTOCK_TEST_GOLDEN=write writes what is to be reviewed."""
    result = CliRunner().invoke(app, [*command.split(), "--help"], prog_name="penstock", terminal_width=100)
    file = GOLDEN / f"help_{command.replace(' ', '_') or 'penstock'}.txt"
    if os.environ.get("PENSTOCK_TEST_GOLDEN") == "write":
        file.write_text(result.stdout)
    assert result.exit_code == 0
    assert result.stdout == file.read_text()


def test_every_command_says_what_it_is_for() -> None:
    result = CliRunner().invoke(app, ["--help"], prog_name="penstock", terminal_width=100)
    listed = result.stdout.partition("Commands:")[2].strip().splitlines()
    assert len(listed) == 15
    for line in listed:
        name, _, text = line.strip().partition("  ")
        assert text.strip().endswith("."), name
        assert not text.strip().endswith("..."), name


def test_version_is_told() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == "penstock 0.1.0\n"
