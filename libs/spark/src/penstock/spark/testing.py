"""What tests of this library and of those that use it share."""

from __future__ import annotations

from penstock.common.config import load_config
from penstock.spark.settings import SparkSettings


def spark_settings(**changes: object) -> SparkSettings:
    """The default settings, whatever the environment says, on two cores."""
    settings = load_config(environment={}).section("spark", SparkSettings)
    return settings.model_copy(update={"master": "local[2]", **changes})
