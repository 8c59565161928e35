"""What a source says of itself in its comments: the block of PEP 723, with dependencies and `[tool.penstock]`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

_BLOCK: Final = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")


class WrongBlock(Exception):
    """A block that cannot be read; `line` is where it is."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class ScriptBlock:
    """The block `# /// script`."""

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """`[tool.penstock]`, each value as its text."""
    line: int = 1


def script_block(source: str) -> ScriptBlock:
    """The block of a source; raises WrongBlock."""
    found = [match for match in _BLOCK.finditer(source) if match["type"] == "script"]
    if not found:
        return ScriptBlock()
    match = found[0]
    line = source[: match.start()].count("\n") + 1
    if len(found) > 1:
        raise WrongBlock("there is more than one block of script metadata", line)
    lines = match["content"].splitlines(keepends=True)
    content = "".join(text[2:] if text.startswith("# ") else text[1:] for text in lines)
    try:
        table = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise WrongBlock(f"the script metadata is not TOML: {error}", line) from None
    return _block(table, line)


def _block(table: Mapping[str, Any], line: int) -> ScriptBlock:
    dependencies = table.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
        raise WrongBlock("the dependencies are a list of texts", line)
    options = table.get("tool", {}).get("penstock", {})
    if not isinstance(options, dict):
        raise WrongBlock("tool.penstock is a table", line)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    requires = str(table.get("requires-python", ""))
    return ScriptBlock(tuple(dependencies), requires, MappingProxyType(texts), line)
