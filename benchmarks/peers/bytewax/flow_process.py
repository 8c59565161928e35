"""One process of a flow: its query, its files, where results go, its number and all addresses.

Says when it has loaded its code, waits for a line, and prints its seconds when the flow has ended.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main


def main() -> None:
    query, files, into, number, *addresses = sys.argv[1:]
    flow = Dataflow(query)
    importlib.import_module(query).build(flow, Path(files), Path(into) if into else None)
    print("loaded", flush=True)
    sys.stdin.readline()
    started = time.perf_counter()
    cluster_main(flow, addresses, int(number))
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
