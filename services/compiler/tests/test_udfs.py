"""Sources become functions, or end with a clear error that harms nothing."""

from __future__ import annotations

import hashlib
import os
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from penstock.common.diagnostics import Diagnostic
from penstock.common.errors import NotFound
from penstock.common.storage import open_storage
from penstock.common.udfs import DEPENDENCIES, LOCK, SOURCE, Shape, Style
from penstock.compiler.diagnostics import Refused
from penstock.compiler.udf_child import ChildLimits
from penstock.compiler.udf_options import WrongOption
from penstock.compiler.udfs import UdfLimits, Udfs

LIMITS: Final = UdfLimits(ChildLimits(timedelta(seconds=3), 4 << 30), timedelta(seconds=60))
DOUBLED: Final = "def doubled(a: int) -> int:\n    return a * 2\n"


async def refused(source: str) -> Diagnostic:
    with pytest.raises(Refused) as raised:
        await Udfs(limits=LIMITS).build(source, None)
    return raised.value.diagnostic


async def test_source_becomes_a_function_with_an_artifact(tmp_path: Path) -> None:
    built = await Udfs(open_storage(str(tmp_path)), LIMITS).build(DOUBLED, None)
    function = built.function
    assert (function.signature.shape, function.signature.style) == (Shape.SCALAR, Style.PLAIN)
    assert function.key.startswith("doubled__")
    folder = tmp_path / "udfs" / function.hash
    assert (folder / SOURCE).read_text() == DOUBLED
    assert open_storage(function.url).url == folder.as_uri()


async def test_each_version_has_its_own_key_and_artifact(tmp_path: Path) -> None:
    udfs = Udfs(open_storage(str(tmp_path)), LIMITS)
    one = (await udfs.build(DOUBLED, None)).function
    other = (await udfs.build(DOUBLED.replace("2", "3"), None)).function
    again = (await Udfs(open_storage(str(tmp_path)), LIMITS).build(DOUBLED, "doubled")).function
    assert one == again
    assert one.key != other.key and one.hash != other.hash


async def test_artifact_can_be_read_again(tmp_path: Path) -> None:
    udfs = Udfs(open_storage(str(tmp_path)), LIMITS)
    function = (await udfs.build(DOUBLED, None)).function
    assert await udfs.get(function.hash) == (DOUBLED, "")
    with pytest.raises(NotFound):
        await udfs.get("0" * 64)


async def test_function_that_is_only_looked_at_is_not_stored(tmp_path: Path) -> None:
    built = await Udfs(open_storage(str(tmp_path)), LIMITS).build(DOUBLED, None, store=False)
    assert not built.function.url
    assert not os.listdir(tmp_path)


async def test_endless_loop_is_ended_and_its_line_is_told() -> None:
    found = await refused("import time\nn = 0\nwhile True:\n    n += 1\ndef f(a: int) -> int:\n    return a\n")
    assert found.code == "udf_timeout"
    assert found.message == "the source is not loaded within 3s"
    assert found.span is not None and found.span.line in (3, 4)


async def test_large_allocation_is_refused_and_its_line_is_told() -> None:
    found = await refused("def f(a: int) -> int:\n    return a\n\nblock = bytearray(10 << 30)\n")
    assert found.code == "udf_memory"
    assert found.message == "the source needs more memory than it may have: 4GiB"
    assert found.span is not None and (found.span.line, found.span.column) == (4, 1)


async def test_syntax_error_has_its_line_and_column() -> None:
    found = await refused("def f(a: int) -> int:\n    return a +\n")
    assert found.code == "udf_syntax"
    assert found.span is not None and (found.span.line, found.span.column) == (2, 15)


async def test_module_that_is_not_there_is_named() -> None:
    found = await refused("import no_such_module_at_all\ndef f(a: int) -> int:\n    return a\n")
    assert found.code == "udf_dependency"
    assert found.message == "there is no module no_such_module_at_all"
    assert found.hint is not None and 'dependencies = ["no_such_module_at_all"]' in found.hint
    assert found.span is not None and found.span.line == 1


async def test_dependency_that_is_not_there_is_named() -> None:
    block = '# /// script\n# dependencies = ["penstock-no-such-package-at-all"]\n# ///\n'
    found = await refused(f"{block}def f(a: int) -> int:\n    return a\n")
    assert found.code == "udf_dependency"
    assert "penstock-no-such-package-at-all" in found.message
    assert found.span is not None and found.span.line == 1


async def test_source_that_raises_is_told_with_its_line() -> None:
    found = await refused("def f(a: int) -> int:\n    return a\n\nraise ValueError('not today')\n")
    assert found.code == "udf_fails"
    assert found.message == "the source fails when it is loaded: ValueError: not today"
    assert found.span is not None and found.span.line == 4


@pytest.mark.parametrize(
    "line",
    ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(0)"],
)
async def test_source_that_ends_its_process_is_refused(line: str) -> None:
    found = await refused(f"{line}\ndef f(a: int) -> int:\n    return a\n")
    assert found.code == "udf_fails"


async def test_source_sees_no_secret_and_its_output_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK__RPC__TOKEN", "secret")
    source = """
import os, sys
print("{}" * 10)
sys.stderr.write("Timeout")
os.write(1, b"nonsense")
assert not [name for name in os.environ if name.startswith("PENSTOCK")]
def f(a: int) -> int:
    return a
"""
    assert (await Udfs(limits=LIMITS).build(source, None)).name == "f"


async def test_options_of_the_block_and_those_given_count() -> None:
    block = "# /// script\n# [tool.penstock]\n# in_flight = 500\n# timeout = '2s'\n# ///\n"
    source = f"{block}async def f(a: int) -> int:\n    return a\n"
    calls = (await Udfs(limits=LIMITS).build(source, "f", {"timeout": "3s", "ordered": "false"})).calls
    assert (calls.in_flight, calls.timeout, calls.ordered) == (500, timedelta(seconds=3), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inflight": "5"}, "a function has no option inflight"),
        ({"in_flight": "many"}, "option in_flight: 'many' is not possible"),
        ({"retries": "3"}, "option retries is for async functions, and this one is not"),
    ],
)
async def test_wrong_option_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption) as raised:
        await Udfs(limits=LIMITS).build(DOUBLED, None, options)
    assert raised.value.message == message


def wheel(folder: Path, version: str) -> Path:
    """A package of one module, as pip would install it."""
    path = folder / f"penstock_sample-{version}-py3-none-any.whl"
    info = f"penstock_sample-{version}.dist-info"
    files = {
        "penstock_sample.py": f"FACTOR = {version.partition('.')[0]}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: penstock-sample\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return path


async def test_dependencies_are_locked_and_stored_with_the_source(tmp_path: Path) -> None:
    file = wheel(tmp_path, "3.0")
    block = f'# /// script\n# dependencies = ["penstock-sample @ {file.as_uri()}"]\n# ///\n'
    source = f"{block}from penstock_sample import FACTOR\ndef f(a: int) -> int:\n    return a * FACTOR\n"
    storage = tmp_path / "storage"
    function = (await Udfs(open_storage(str(storage)), LIMITS).build(source, None)).function
    folder = storage / "udfs" / function.hash
    assert hashlib.sha256(file.read_bytes()).hexdigest() in (folder / LOCK).read_text()
    assert "penstock_sample.py" in zipfile.ZipFile(folder / DEPENDENCIES).namelist()


async def test_dependency_that_would_have_to_be_built_is_refused() -> None:
    block = '# /// script\n# dependencies = ["x @ git+https://example.invalid/x.git"]\n# ///\n'
    found = await refused(f"{block}def f(a: int) -> int:\n    return a\n")
    assert found.code == "udf_dependency"
    assert "is not a wheel" in found.message
