"""What holds for all tests: how long an example takes says nothing, since others use the machine as well."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
