"""All versions of Docker's API describe the calls that faults make, and a deviation from the description is found."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.backends import docker
from faults.backends.docker import Docker
from faults.errors import FaultRefused
from tests.faults.engine_api import ID, NAME, Engine, served
from tests.faults.engine_api_schema import VERSIONS

SHOWN = ["{}.{}".format(*version) for version in VERSIONS]


@pytest.fixture
def socket_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a unix socket's path must be short
        yield Path(folder) / "docker.sock"


@pytest.mark.parametrize("version", SHOWN)
def test_every_call_and_field_is_described_in_the_version(socket_path: Path, version: str) -> None:
    engine = Engine(api_version=version, health="healthy")
    with served(engine, socket_path):
        client = Docker(socket_path)
        seen = client.inspect(NAME)
        client.pause(seen.id)
        client.unpause(seen.id)
        client.kill(seen.id)
        client.start(seen.id)
        client.start(seen.id)
        client.restart(seen.id, 10)
        client.disconnect(seen.id, "shop_default")
        client.connect(seen.id, "shop_default", seen.endpoints["shop_default"])
        assert client.inspect(seen.id).endpoints == seen.endpoints
    assert {request.split("/")[1] for request in engine.requests[2:]} == {f"v{version}"}


@pytest.mark.parametrize("version", [SHOWN[0], SHOWN[-1]])
def test_a_refusal_is_reported_with_the_message_of_the_engine(socket_path: Path, version: str) -> None:
    engine = Engine(api_version=version, is_running=False)
    with served(engine, socket_path):
        client = Docker(socket_path)
        with pytest.raises(FaultRefused, match="not running"):
            client.kill(ID)
        with pytest.raises(FaultRefused, match=f"Container {ID} is not running"):
            client.pause(ID)
        with pytest.raises(FaultRefused, match="No such container"):
            client.start("other")
        with pytest.raises(FaultRefused, match="already exists in network"):
            client.connect(ID, "shop_default", "{}")
        with pytest.raises(FaultRefused, match="not connected to network back"):
            client.disconnect(ID, "back")
        with pytest.raises(FaultRefused, match="network other not found"):
            client.disconnect(ID, "other")


def test_the_versions_in_use_are_the_described_ones() -> None:
    spoken = (docker._OLDEST, docker._NEWEST)
    assert spoken == (VERSIONS[0], VERSIONS[-1])


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (f"/v1.43/containers/{ID}/kill?sig=SIGKILL", None, "query.sig: is not described"),
        (
            "/v1.43/networks/shop_default/connect",
            {"Container": ID, "EndpointConfig": {"Alias": ["web"]}},
            "body.EndpointConfig.Alias: is not described",
        ),
    ],
)
def test_an_undescribed_request_fails(socket_path: Path, path: str, body: dict[str, Any] | None, words: str) -> None:
    """An engine ignores what it does not know, so the fault would not happen."""
    with pytest.raises(AssertionError, match=words), served(Engine(api_version=SHOWN[-1]), socket_path):
        Docker(socket_path)._send("POST", path, body)
