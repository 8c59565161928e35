"""The rules of the workspace that no tool checks."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common.config import load_config
from penstock.spark import SparkSettings, bridge
from penstock.spark.java import find_java

ROOT = Path(__file__).parents[1]
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir() if path.is_dir())
MEMBERS = [
    ROOT / member
    for member in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
]


def imports_of(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    yield from ((path, alias.name) for alias in names)
                case ast.ImportFrom(module=str(module)):
                    yield path, module


def test_there_are_five_services() -> None:
    assert SERVICES == ["api", "compiler", "controller", "node", "worker"]


@pytest.mark.parametrize("service", SERVICES)
def test_services_never_import_each_other(service: str) -> None:
    others = tuple(f"penstock.{other}" for other in SERVICES if other != service)
    assert not [found for found in imports_of(ROOT / "services" / service) if found[1].startswith(others)]


def test_no_lib_but_the_command_imports_services() -> None:
    services = tuple(f"penstock.{service}" for service in SERVICES)
    libs = [path for path in (ROOT / "libs").iterdir() if path.name != "cli"]
    assert not [found for lib in libs for found in imports_of(lib) if found[1].startswith(services)]


def test_every_member_is_in_the_types_path() -> None:
    paths = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["mypy_path"]
    assert {f"{member.relative_to(ROOT)}/src" for member in MEMBERS} <= set(paths)


def test_only_the_spark_library_imports_pyspark() -> None:
    places = [path for path in MEMBERS if path.name != "spark"]
    assert not [
        found for place in places for found in imports_of(place) if found[1].split(".")[0] in ("pyspark", "py4j")
    ]


def test_every_member_has_its_readme_and_asks_for_the_same_python() -> None:
    for member in MEMBERS:
        project = tomllib.loads((member / "pyproject.toml").read_text())["project"]
        assert project["requires-python"] == ">=3.11", member
        assert (member / "README.md").read_text().startswith(f"# {project['name']}"), member


def test_lock_holds_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_defaults_hold_exactly_the_settings_of_the_engine() -> None:
    assert (
        load_config(environment={}).section("spark", SparkSettings).model_dump().keys()
        == SparkSettings.model_fields.keys()
    )


def test_wheels_carry_the_bridge_and_the_defaults(tmp_path: Path) -> None:
    names = set()
    for member in MEMBERS:
        copy = tmp_path / member.name
        shutil.copytree(member, copy, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        if member.name == "spark":
            settings = load_config(environment={}).section("spark", SparkSettings)
            jar = bridge.find_bridge(settings.cache_path, find_java(settings.java_home))
            shutil.copy(jar, copy / "src" / "penstock" / "spark" / "jvm")
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=copy, check=True
        )
    for wheel in tmp_path.glob("*.whl"):
        names |= set(zipfile.ZipFile(wheel).namelist())
    assert f"penstock/spark/jvm/{bridge.jar_name()}" in names
    assert {
        "penstock/common/defaults.toml",
        "penstock/common/migrations/0001_initial.sql",
        "penstock/common/proto/program_pb2.py",
        "penstock/controller/queries.sql",
        "penstock/spark/jvm/Main.scala",
        "penstock/spark/jvm/log4j2.properties",
    } <= names
    assert "penstock/__init__.py" not in names
