"""deploy/ is right by construction, and by running what can be run of it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import compose
import pytest

from penstock.common.config import load_config

SERVICES = compose.COMPOSE["services"]


@pytest.mark.parametrize("service", compose.OURS)
def test_environment_names_settings_that_exist(service: str) -> None:
    load_config(environment=compose.environment_of(service))


def test_only_the_api_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(published) == ["api"]
    assert all(port.startswith("127.0.0.1:") for port in published["api"])


@pytest.mark.parametrize("service", ["node", "controller"])
def test_nodes_and_controllers_can_be_scaled(service: str) -> None:
    assert not {"container_name", "ports", "hostname"} & SERVICES[service].keys()


def test_every_service_has_a_health_check_at_its_own_admin_port() -> None:
    for service in compose.OURS:
        port = load_config(environment={}).redacted()[service]["admin_port"]
        assert f":{port}/status" in SERVICES[service]["healthcheck"]["test"][-1]


def test_volumes_are_declared() -> None:
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert mounted == set(compose.COMPOSE["volumes"])


def test_image_is_built_in_stages_and_does_not_run_as_root() -> None:
    assert len(re.findall(r"^FROM ", compose.IMAGE, re.MULTILINE)) == 2
    final = compose.IMAGE.rsplit("\nFROM ", 1)[1]
    assert re.search(r"^USER penstock$", final, re.MULTILINE)


@pytest.mark.timeout(400)
async def test_services_of_compose_run_a_pipeline_with_exactly_their_commands_and_environment() -> None:
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    unshare = ["unshare", *user, "--net", "--mount"]
    possible = await asyncio.to_thread(subprocess.run, [*unshare, "true"], capture_output=True, check=False)
    if possible.returncode:
        pytest.skip(f"no namespaces can be made here: {possible.stderr.decode().strip()}")
    script = Path(compose.__file__)
    process = await asyncio.create_subprocess_exec(
        *unshare, sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
