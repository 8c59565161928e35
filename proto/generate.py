"""Generates the Python code of the .proto files; with --check, says whether the committed code is up to date."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROTO = ROOT / "proto"
PACKAGE = Path("penstock/common/proto")
TARGET = ROOT / "libs/common/src"


def generate(into: Path) -> set[str]:
    """Writes the generated modules; returns their names."""
    sources = sorted((PROTO / PACKAGE).glob("*.proto"))
    outputs = [f"--{kind}_out={into}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    bin_folder = Path(sys.executable).parent
    plugins = [f"--plugin=protoc-gen-{name}={bin_folder}/protoc-gen-{name}" for name in ("mypy", "mypy_grpc")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", *plugins, *outputs, *map(str, sources)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    for source in sources:
        if "\nservice " not in source.read_text():
            for suffix in ("py", "pyi"):
                (into / PACKAGE / f"{source.stem}_pb2_grpc.{suffix}").unlink()
    return {path.name for path in (into / PACKAGE).glob("*_pb2*")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the code is out of date")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fresh, committed = Path(folder) / PACKAGE, TARGET / PACKAGE
        names = generate(Path(folder))
        old = {path.name for path in committed.glob("*_pb2*")}
        _, changed, missing = filecmp.cmpfiles(fresh, committed, sorted(names), shallow=False)
        stale = sorted({*changed, *missing, *(old - names)})
        if arguments.check:
            sys.exit(f"out of date with proto/, run 'make proto': {', '.join(stale)}" if stale else 0)
        for name in old - names:
            (committed / name).unlink()
        for name in names:
            shutil.copy(fresh / name, committed / name)


if __name__ == "__main__":
    main()
