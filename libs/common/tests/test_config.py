from __future__ import annotations

import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.common.config import Config, Duration, Settings, Size, StringMap, load_config
from penstock.common.errors import SettingsError


class SparkSettings(Settings):
    java_home: str
    master: str
    heap: Size
    off_heap: Size
    class_cache: bool
    start_timeout: Duration
    stop_timeout: Duration
    cache_dir: str
    conf: StringMap


class StorageSettings(Settings):
    options: StringMap


def load(directory: Path, **environment: str) -> Config:
    return load_config(directory=directory, environment=environment)


def spark(directory: Path, **environment: str) -> SparkSettings:
    return load(directory, **environment).section("spark", SparkSettings)


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_defaults_alone_make_valid_sections(tmp_path: Path) -> None:
    settings = spark(tmp_path)
    assert settings.heap == 1024**3
    assert settings.start_timeout == timedelta(seconds=60)
    assert settings.conf == {}


def test_each_layer_wins_over_the_one_before(tmp_path: Path) -> None:
    write(tmp_path / "penstock.toml", '[spark]\nheap = "2GiB"\noff_heap = "2GiB"\nmaster = "local[2]"\n')
    given = write(tmp_path / "given.toml", '[spark]\nheap = "3GiB"\noff_heap = "3GiB"\n')
    config = load_config(given, directory=tmp_path, environment={"PENSTOCK__SPARK__HEAP": "4GiB"})
    settings = config.section("spark", SparkSettings)
    assert (settings.heap, settings.off_heap, settings.master) == (4 * 1024**3, 3 * 1024**3, "local[2]")


def test_the_current_directory_and_environment_are_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "penstock.toml", '[spark]\nmaster = "local[3]"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK__SPARK__HEAP", "3GiB")
    settings = load_config().section("spark", SparkSettings)
    assert (settings.master, settings.heap) == ("local[3]", 3 * 1024**3)


def test_variables_are_case_insensitive(tmp_path: Path) -> None:
    assert spark(tmp_path, penstock__Spark__Master="local[7]").master == "local[7]"


@pytest.mark.parametrize(
    ("key", "text", "attribute", "value"),
    [
        ("CLASS_CACHE", "false", "class_cache", False),
        ("MASTER", '"local[2]"', "master", "local[2]"),
        ("CACHE_DIR", "123", "cache_dir", "123"),
        ("CACHE_DIR", "true", "cache_dir", "true"),
        ("CACHE_DIR", "", "cache_dir", ""),
        ("CACHE_DIR", '"a"\nother = "b"', "cache_dir", '"a"\nother = "b"'),
        ("HEAP", "1048576", "heap", 1048576),
        ("START_TIMEOUT", "0", "start_timeout", timedelta(0)),
    ],
)
def test_a_variable_is_a_toml_literal_where_that_fits_else_text(
    tmp_path: Path, key: str, text: str, attribute: str, value: object
) -> None:
    assert getattr(spark(tmp_path, **{f"PENSTOCK__SPARK__{key}": text}), attribute) == value


def test_other_variables_are_not_settings(tmp_path: Path) -> None:
    load(tmp_path, PENSTOCK_HOME="/x", PENSTOCK="1", PATH="/bin")


def test_an_unknown_key_in_a_file_names_key_file_and_nearest_key(tmp_path: Path) -> None:
    file = write(tmp_path / "penstock.toml", "[spark]\nhaep = 1\n")
    with pytest.raises(SettingsError) as caught:
        load(tmp_path)
    assert caught.value.message == f"unknown setting spark.haep (from {file})"
    assert caught.value.hint == "did you mean spark.heap?"


def test_an_unknown_variable_names_key_variable_and_nearest_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, PENSTOCK__LOG__LEVLE="debug")
    assert caught.value.message == "unknown setting log.levle (from PENSTOCK__LOG__LEVLE)"
    assert caught.value.hint == "did you mean log.level?"


@pytest.mark.parametrize("text", ["[lgo]\nlevel = 1", "lgo = {}", "[lgo]", "[spark.cnof]\na = 1", "top = 1"])
def test_an_unknown_section_is_refused(tmp_path: Path, text: str) -> None:
    write(tmp_path / "penstock.toml", text)
    with pytest.raises(SettingsError, match="unknown setting"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["spark = 1", "[spark]\nconf = 'x'"])
def test_a_section_cannot_be_a_value(tmp_path: Path, text: str) -> None:
    write(tmp_path / "penstock.toml", text)
    with pytest.raises(SettingsError, match="is a section and cannot be a value"):
        load(tmp_path)


def test_a_value_cannot_be_a_section(tmp_path: Path) -> None:
    file = write(tmp_path / "penstock.toml", "[spark.master]\nlocal = 1\n")
    with pytest.raises(SettingsError, match=r"spark\.master") as caught:
        load(tmp_path).section("spark", SparkSettings)
    assert str(file) in caught.value.message


def test_a_free_form_map_takes_any_key_and_makes_text_of_values(tmp_path: Path) -> None:
    write(
        tmp_path / "penstock.toml",
        '[spark.conf]\nspark.sql.shuffle.partitions = 4\n"spark.ui.enabled" = false\nspark.x.maxRate = 0.5\n',
    )
    settings = spark(
        tmp_path,
        PENSTOCK__SPARK__CONF__SPARK__UI__PORT="4050",
        PENSTOCK__SPARK__CONF__SPARK__X__MAXRATE="0.25",
        **{"PENSTOCK__SPARK__CONF__spark.task.maxFailures": "1"},
    )
    assert settings.conf == {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.ui.port": "4050",
        "spark.x.maxRate": "0.25",
        "spark.task.maxFailures": "1",
    }


def test_a_free_form_map_can_be_given_in_one_variable(tmp_path: Path) -> None:
    config = load(tmp_path, PENSTOCK__STORAGE__OPTIONS='{region = "eu-west-1", virtual_hosted_style_request = true}')
    assert config.section("storage", StorageSettings).options == {
        "region": "eu-west-1",
        "virtual_hosted_style_request": "true",
    }


def test_a_free_form_value_that_is_not_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "penstock.toml", "[spark.conf]\nx = [1]\n")
    with pytest.raises(SettingsError, match=r"spark\.conf\.x \(from .*\) must be text"):
        load(tmp_path)


def test_a_bad_value_names_key_source_and_reason(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        spark(tmp_path, PENSTOCK__SPARK__START_TIMEOUT="10", PENSTOCK__SPARK__CLASS_CACHE="perhaps")
    message = caught.value.message
    assert "spark.start_timeout (from PENSTOCK__SPARK__START_TIMEOUT): the duration '10' has no unit" in message
    assert "spark.class_cache (from PENSTOCK__SPARK__CLASS_CACHE): input should be a valid boolean" in message


def test_a_bad_secret_is_not_shown_even_in_the_traceback(tmp_path: Path) -> None:
    class Secretive(Settings):
        options: dict[str, Duration]

    config = load(tmp_path, PENSTOCK__STORAGE__OPTIONS__SECRET_KEY="hunter2")
    with pytest.raises(SettingsError) as caught:
        config.section("storage", Secretive)
    shown = "".join(traceback.format_exception(caught.value))
    assert "storage.options.secret_key (from PENSTOCK__STORAGE__OPTIONS__SECRET_KEY) is not valid" in shown
    assert "hunter2" not in shown


def test_a_model_and_the_registry_must_agree(tmp_path: Path) -> None:
    class Fewer(Settings):
        level: str

    class More(Settings):
        level: str
        format: str
        colour: str

    with pytest.raises(SettingsError, match=r"log\.format"):
        load(tmp_path).section("log", Fewer)
    with pytest.raises(SettingsError, match=r"log\.colour: field required"):
        load(tmp_path).section("log", More)


def test_an_explicit_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_config(tmp_path / "missing.toml", directory=tmp_path, environment={})


@pytest.mark.parametrize(("content", "reason"), [(b"[spark]\nheap = \n", "line 2"), (b"\xff\xfe", "not UTF-8")])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "penstock.toml").write_bytes(content)
    with pytest.raises(SettingsError, match=reason):
        load(tmp_path)


def test_sections_are_frozen(tmp_path: Path) -> None:
    settings = spark(tmp_path, PENSTOCK__SPARK__CONF__A="1")
    with pytest.raises(ValidationError):
        settings.master = "local"
    with pytest.raises(TypeError):
        settings.conf["a"] = "2"  # type: ignore[index]


def test_the_redacted_view_shows_all_but_secrets(tmp_path: Path) -> None:
    shown: dict[str, Any] = load(
        tmp_path,
        PENSTOCK__STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY="hunter2",
        PENSTOCK__STORAGE__OPTIONS__REGION="eu-west-1",
        PENSTOCK__SPARK__CONF__SPARK__HADOOP__FS__S3A__ACCESS__KEY="hunter2",
        PENSTOCK__TELEMETRY__OTLP_ENDPOINT="http://me:hunter2@collector:4318",
    ).redacted()
    assert shown["storage"]["options"] == {"aws_secret_access_key": "***", "region": "eu-west-1"}
    assert shown["spark"]["heap"] == "1GiB"
    assert shown["telemetry"]["otlp_endpoint"] == "http://***@collector:4318"
    assert "hunter2" not in str(shown)


def test_a_section_serialises_in_human_units(tmp_path: Path) -> None:
    dumped = spark(tmp_path, PENSTOCK__SPARK__CONF__A="1").model_dump(mode="json")
    assert (dumped["heap"], dumped["start_timeout"], dumped["conf"]) == ("1GiB", "1m", {"a": "1"})
