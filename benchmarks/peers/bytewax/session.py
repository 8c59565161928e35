"""Bytewax in processes of their own, of which threads would share one interpreter: a flow a line, run to its end.

Reads JSON objects with `query`, `files` and `into`; answers each with its `seconds`: those of the slower process, once
it has loaded its code.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE

PROCESSES = 2
LEAD_SECONDS = 0.05
PROCESS = Path(__file__).with_name("flow_process.py")


def answer(query: str, files: str, into: str | None) -> dict[str, object]:
    """What is said of a flow."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports()]
    arguments = [sys.executable, str(PROCESS), query, files, into or ""]
    processes = [
        subprocess.Popen([*arguments, str(number), *addresses], stdin=PIPE, stdout=PIPE, text=True)
        for number in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:  # the first listens before the second connects, which else tries again after a second
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        time.sleep(LEAD_SECONDS)
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        return {"refused": "its flow failed"}
    return {"seconds": max(float(one.split()[-1]) for one in said)}


def free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(PROCESSES)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps(version("bytewax")), file=answers)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
