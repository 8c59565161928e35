"""A process that feeds a peer: lines `microseconds,number` over a local socket, each when its event is due.

Says its port, waits for one reader, and sends it `count` events at `rate` a second; the first is due when the reader is
there. What is due is sent at once, but not more often than once a millisecond.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TICK_US = 1000


def lines(start_us: int, rate: int, numbers: range) -> bytes:
    """The events of some numbers."""
    return "".join(f"{start_us + number * 1_000_000 // rate},{number}\n" for number in numbers).encode()


def feed(reader: socket.socket, rate: int, count: int) -> None:
    """Sends all events, each when it is due."""
    start_us, sent = time.time_ns() // 1000, 0
    while sent < count:
        now_us = time.time_ns() // 1000
        due = min((now_us - start_us) * rate // 1_000_000 + 1, count)
        reader.sendall(lines(start_us, rate, range(sent, due)))
        sent = due
        next_us = max(start_us + sent * 1_000_000 // rate, now_us + _TICK_US)
        time.sleep(max(next_us - time.time_ns() // 1000, 0) / 1e6)


@contextmanager
def feeder(rate: int, count: int) -> Iterator[int]:
    """Starts the process; gives its port."""
    command = [sys.executable, __file__, str(rate), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def main() -> None:
    rate, count = map(int, sys.argv[1:])
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        reader, _ = server.accept()
    reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with reader:
        feed(reader, rate, count)


if __name__ == "__main__":
    main()
