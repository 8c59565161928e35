"""What every benchmark of the project has in common: its options, and a result as a table or as one JSON object."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import structlog


def options(description: str | None) -> argparse.Namespace:
    """`--json` prints one JSON object and nothing else; `--quick` ends within a minute."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object with the figures and ratios")
    parser.add_argument("--quick", action="store_true", help="a run of less than a minute, with rougher figures")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return parser.parse_args()


def show(result: Mapping[str, Any], columns: Mapping[str, str], as_json: bool) -> None:
    """Prints a result: `rows` is its table, the rest are lines under it; `columns` maps a key to its format."""
    if as_json:
        print(json.dumps(result))
        return
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    cells = [list(columns)] + [[format(row[key], spec) for key, spec in columns.items()] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    for key, value in result.items():
        if key != "rows":
            print(f"{key}: {value:.3g}" if isinstance(value, float) else f"{key}: {value}")
