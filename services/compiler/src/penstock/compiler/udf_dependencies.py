"""The dependencies of Python functions: which versions they are, and their files. Nothing of theirs is run or built."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from penstock.common.quantities import format_duration
from penstock.compiler.diagnostics import refusal

_LONGEST_REASON: Final = 400
_SETTINGS: Final = "PENSTOCK"
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")


async def lock_dependencies(dependencies: Sequence[str], within: timedelta) -> str:
    """The versions of all that is needed, with their hashes; raises Refused where there is no such thing."""
    for one in dependencies:
        if "@" in one and not re.search(r"@\s*(file|https)://\S+\.whl\b", one):
            message = f"the dependency {one} is not a wheel"
            hint = "name a package and its version, or the address of a file that ends in .whl"
            raise refusal("udf_dependency", message, None, hint)
    command = ("pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes", "-")
    return await _uv(*command, content="\n".join(dependencies), within=within)


async def install_dependencies(lock: str, folder: Path, within: timedelta) -> None:
    """Puts the files of locked dependencies into a folder."""
    file = folder.with_suffix(".lock")
    file.write_text(lock)
    options = ("--quiet", "--no-deps", "--require-hashes", "--link-mode", "copy")
    await _uv("pip", "install", *options, "--target", str(folder), "-r", str(file), within=within)


async def _uv(*command: str, content: str = "", within: timedelta) -> str:
    process = await asyncio.create_subprocess_exec(
        *(_executable(), "--no-config", *command, "--only-binary", ":all:", "--python", sys.executable),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_environment(),
    )
    try:
        async with asyncio.timeout(within.total_seconds()):
            out, err = await process.communicate(content.encode())
    except TimeoutError:
        message = f"the dependencies were not there within {format_duration(within)}"
        raise refusal("udf_dependency", message, None, "is the package index reachable?") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise refusal("udf_dependency", f"the dependencies cannot be installed: {_reason(err.decode())}")
    return out.decode()


def _executable() -> str:
    from uv import find_uv_bin

    return find_uv_bin()


def _environment() -> dict[str, str]:
    """The machine's own, for indexes and proxies are told there, without the service's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_SETTINGS)}
    return {"UV_SYSTEM_CERTS": "true", **kept} if _CERTIFICATES.exists() else kept


def _reason(said: str) -> str:
    """What uv says, in one line."""
    words = re.sub(r"[\u00d7\u2500-\u25ff]|^\s*(error|hint):", " ", said, flags=re.MULTILINE)
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"
