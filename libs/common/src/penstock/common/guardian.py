"""Runs one command, and ends it when whoever started this goes away, by whatever death.

    python guardian.py USER COMMAND…

The starter holds the other end of stdin; when that closes, the command is asked to end, and after a while killed. USER
is whom the command runs as, for a server that refuses to run as root; empty for the same user. This is run as a file
by a bare interpreter and so imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import select
import signal
import subprocess
import sys

PID_LINE = "guardian: pid "
GRACE_SECONDS = 4.0

_STOP = signal.SIGINT  # what Postgres and NATS both take for: end now, and in order
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT = 1, 8, 28, 47
_PR_CAP_AMBIENT_RAISE = 2
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_OVERRIDE = 1


def main() -> int:
    user, *command = sys.argv[1:]
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    asked: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: asked.append(received))
    guardian = os.getpid()
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: _prepare(user, guardian),
        process_group=0,
    )
    while child.poll() is None:
        readable, _, _ = select.select((sys.stdin, wake), (), ())
        if wake in readable:
            os.read(wake, 512)
        if asked or (sys.stdin in readable and not os.read(sys.stdin.fileno(), 512)):
            _end(child)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _prepare(user: str, guardian: int) -> None:
    """In the child, before it becomes the command."""
    if user:
        _become(pwd.getpwnam(user))
    if sys.platform == "linux":
        # After the change of user, which would clear it. It covers what the pipe cannot: a killed guardian.
        _libc().prctl(_PR_SET_PDEATHSIG, _STOP)
        if os.getppid() != guardian:
            os._exit(1)
    os.write(1, f"{PID_LINE}{os.getpid()}\n".encode())


def _become(entry: pwd.struct_passwd) -> None:
    """Be another user, who may still go where root may: its files and ours are often in folders of root's alone."""
    if sys.platform == "linux":
        libc = _libc()
        # Without the first, access(2) would not heed the capability; it needs a right that a container may lack.
        libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    if sys.platform == "linux":
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        kept = 1 << _CAP_DAC_OVERRIDE
        libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, kept))
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.send_signal(_STOP)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    sys.exit(main())
