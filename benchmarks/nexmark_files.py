"""Writes the events of Nexmark into files: python benchmarks/nexmark_files.py FOLDER --events 1000000"""

from __future__ import annotations

import argparse
from pathlib import Path

from nexmark.events import write_events

from penstock.connectors.nexmark import NexmarkOptions


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the events of Nexmark into files of JSON lines.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", default="1000000", help="of all kinds together")
    parser.add_argument("--parts", type=int, default=2, help="files of each kind")
    parser.add_argument("--interval", default="1ms", help="the event time between two events")
    parser.add_argument("--max-delay", default="0s", help="how far out of order events are, at most")
    given = parser.parse_args()
    options = NexmarkOptions.model_validate(
        {"events": given.events, "inter_event_delay": given.interval, "max_delay": given.max_delay}
    )
    write_events(given.folder, options, given.parts)


if __name__ == "__main__":
    main()
