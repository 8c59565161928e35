"""Options are checked all at once, and connectors describe themselves."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from penstock.common.errors import ErrorDomain
from penstock.connectors.base import BadData, Connector, Role
from penstock.connectors.errors import OptionError, OptionProblem, UnknownConnector
from penstock.connectors.registry import CONNECTORS, connector_named, option_schemas, parse_options, roles_of
from penstock.connectors.single_file import FileSinkOptions, FileSourceOptions
from penstock.connectors.testing import table_spec


def problems(connector: str, role: Role, **options: str) -> tuple[OptionProblem, ...]:
    with pytest.raises(OptionError) as caught:
        parse_options(connector_named(connector), role, options)
    assert caught.value.option == caught.value.problems[0].option
    assert caught.value.domain is ErrorDomain.USER
    return caught.value.problems


@pytest.mark.parametrize("connector", CONNECTORS.values(), ids=str)
def test_a_connector_is_found_by_its_name(connector: Connector) -> None:
    assert connector_named(connector.name) is connector
    assert roles_of(connector)


def test_an_unknown_connector_has_a_hint() -> None:
    with pytest.raises(UnknownConnector) as caught:
        connector_named("single-file")
    assert (caught.value.connector, caught.value.hint) == ("single-file", "did you mean single_file?")
    with pytest.raises(UnknownConnector, match="there are blackhole, filesystem") as caught:
        connector_named("x" * 10_000_000)
    assert len(str(caught.value)) < 300


def test_options_become_typed() -> None:
    source = parse_options(connector_named("single_file"), Role.SOURCE, {"path": "a", "bad_data": "drop"})
    assert isinstance(source, FileSourceOptions)
    assert (source.path, source.bad_data, source.max_line_bytes) == ("a", BadData.DROP, 16 * 1024 * 1024)
    sink = parse_options(connector_named("single_file"), Role.SINK, {"path": "a", "append": "true"})
    assert isinstance(sink, FileSinkOptions)
    assert sink.append


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    [problem] = problems("impulse", Role.SOURCE, event_rat="5")
    assert problem == OptionProblem("event_rat", "there is no option event_rat", "did you mean event_rate?")


def test_a_missing_option_is_named_in_the_message() -> None:
    [problem] = problems("single_file", Role.SOURCE)
    assert problem == OptionProblem(None, "the option path is missing")


def test_all_problems_are_reported_at_once() -> None:
    found = problems("impulse", Role.SOURCE, event_rate="fast", event_time_interval="10", typo="1")
    assert [problem.option for problem in found] == ["event_rate", "event_time_interval", "typo"]
    assert found[1].message.startswith("option event_time_interval: the duration '10' has no unit")


def test_dead_letters_need_their_table() -> None:
    [problem] = problems("single_file", Role.SOURCE, path="a", bad_data="dead_letter")
    assert problem.option is None
    assert "dead_letter" in problem.message
    [problem] = problems("single_file", Role.SOURCE, path="a", dead_letter="errors")
    assert "bad_data" in problem.message


def test_a_role_that_a_connector_lacks_is_refused() -> None:
    [problem] = problems("impulse", Role.SINK)
    assert (problem.option, problem.message) == ("type", "the connector impulse has no sinks")


def test_a_value_is_not_in_the_message() -> None:
    found = problems("impulse", Role.SOURCE, event_rate="s3cret")
    assert "s3cret" not in str(found)


def test_connectors_are_described_in_json() -> None:
    described = {item["name"]: item for item in json.loads(json.dumps(option_schemas()))}
    assert set(described) == set(CONNECTORS)
    assert set(described["impulse"]["source"]["properties"]) >= {"event_rate", "message_count"}
    assert described["impulse"]["sink"] is None
    assert [column["name"] for column in described["nexmark"]["columns"]] == ["person", "auction", "bid"]
    assert {column["name"]: column["type"] for column in described["single_file"]["metadata"]} == {
        "file": "string",
        "line": "int64",
        "offset": "int64",
    }
    assert described["single_file"]["columns"] is None
    guarantees = {name: item["guarantee"] for name, item in described.items()}
    assert (guarantees["single_file"], guarantees["stdout"]) == ("exactly once", "at least once")
    assert guarantees["impulse"] is None
    assert described["single_file"]["sink"]["properties"]["append"]["type"] == "boolean"


def test_a_worker_says_the_same_of_options_that_became_wrong() -> None:
    spec = table_spec(pa.schema([]), {"message_count": "many"})
    with pytest.raises(OptionError) as caught:
        connector_named("impulse").open_source(spec)
    assert caught.value.option == "message_count"


@pytest.mark.parametrize(
    ("connector", "role"),
    [
        ("filesystem", Role.SOURCE),
        ("filesystem", Role.SINK),
        ("single_file", Role.SOURCE),
        ("single_file", Role.SINK),
        ("stdout", Role.SINK),
    ],
)
def test_changes_go_where_rows_do(connector: str, role: Role) -> None:
    path = {} if connector == "stdout" else {"path": "a"}
    for name in ("json", "debezium_json"):
        assert parse_options(connector_named(connector), role, {"format": name, **path}).model_dump()["format"] == name
    [problem] = problems(connector, role, format="xml", **path)
    assert problem.option == "format"
