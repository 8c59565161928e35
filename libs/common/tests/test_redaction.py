from __future__ import annotations

import pytest

from penstock.common.redaction import looks_secret, redact, redact_message, without_credentials


@pytest.mark.parametrize(
    "name",
    [
        "secret",
        "aws_secret_access_key",
        "session_token",
        "PASSWORD",
        "credentials",
        "access_key_id",
        "accessKey",
        "spark.hadoop.fs.s3a.access.key",
        "azure_storage_account_key",
        "sas_key",
    ],
)
def test_names_of_secrets_are_recognised_however_they_are_spelled(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["region", "key", "primary_key", "passes", "level", "pipeline"])
def test_other_names_are_not_secret(name: str) -> None:
    assert not looks_secret(name)


def test_secrets_are_masked_at_any_depth_and_the_original_is_kept() -> None:
    value = {"a": [{"password": "x", "b": 1}], "url": "postgres://me:pw@host/db"}
    assert redact(value) == {"a": [{"password": "***", "b": 1}], "url": "postgres://***@host/db"}
    assert value["a"] == [{"password": "x", "b": 1}]


def test_a_shown_url_has_neither_user_nor_query() -> None:
    assert without_credentials("https://me:pw@host:9000/a/b?sig=abc#f") == "https://host:9000/a/b"


def test_urls_within_a_message_lose_user_and_query() -> None:
    message = 'error performing GET "https://me:pw@host/a?sig=abc&x=1" after 3 retries'
    assert redact_message(message) == 'error performing GET "https://host/a" after 3 retries'
