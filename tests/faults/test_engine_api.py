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
from tests.faults.engine_api import ID, NAME, Engine, Said, served
from tests.faults.engine_api_facts import OPERATIONS, Version, facts
from tests.faults.engine_api_schema import SAID_LATE, VERSIONS, described

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


KILL = f"/v1.43/containers/{ID}/kill"
RESTART = f"/v1.43/containers/{ID}/restart"
CONNECT = "/v1.43/networks/shop_default/connect"


def connecting(**endpoint: Any) -> dict[str, Any]:
    return {"Container": ID, "EndpointConfig": endpoint}


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", f"{KILL}?sig=SIGKILL", None, "query.sig: is not described"),
        ("POST", f"{KILL}?signal=SIGKILL&signal=SIGTERM", None, "query.signal: given twice"),
        ("POST", f"{RESTART}?t=10s", None, "query.t: '10s' is no integer"),
        ("POST", f"/v1.41/containers/{ID}/restart?signal=SIGINT", None, "query.signal: is not described"),
        ("POST", KILL.replace("/kill", "/freeze"), None, "no such call is described"),
        ("GET", KILL, None, "no such call is described"),
        ("POST", KILL.replace("1.43", "1.24"), None, "no such call is described"),
        ("POST", KILL, {"signal": "SIGKILL"}, "body: is not described"),
        ("POST", CONNECT, None, "body: is missing"),
        ("POST", CONNECT, connecting(Alias=["web"]), "body.EndpointConfig.Alias: is not described"),
        ("POST", CONNECT, connecting(Aliases="web"), 'body.EndpointConfig.Aliases: "web" is no array'),
        ("POST", CONNECT, connecting(Aliases=[1]), r"body.EndpointConfig.Aliases\[\]: 1 is no string"),
        ("POST", CONNECT, connecting(Links=None), "body.EndpointConfig.Links: null is no array"),
        ("POST", CONNECT, connecting(DriverOpts={"mtu": 1400}), r"DriverOpts\{\}: 1400 is no string"),
        ("POST", CONNECT, connecting(GwPriority=1), "GwPriority: is not described"),
        ("POST", CONNECT.replace("connect", "disconnect"), {"Container": ID, "Force": 1}, "Force: 1 is no boolean"),
        ("POST", CONNECT.replace("1.43", "1.52"), {"EndpointConfig": {}}, "body.Container: is missing"),
    ],
)
def test_an_undescribed_request_fails(
    socket_path: Path, method: str, path: str, body: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(AssertionError, match=words), served(Engine(api_version=SHOWN[-1]), socket_path):
        Docker(socket_path)._send(method, path, body)


INSPECTED: dict[str, Any] = {"Id": ID, "Name": NAME, "NetworkSettings": {"Networks": {}}}
STATE: dict[str, Any] = {"Running": True, "Paused": False, "StartedAt": "2026-11-21T10:00:01Z"}


@pytest.mark.parametrize(
    ("call", "status", "said", "words"),
    [
        ("inspect", 202, INSPECTED, "answer.202: is not described"),
        ("inspect", 200, {**INSPECTED, "Identity": ID}, "answer.200.Identity: is not described"),
        ("inspect", 200, {**INSPECTED, "State": {**STATE, "Running": "yes"}}, 'State.Running: "yes" is no boolean'),
        ("inspect", 200, {**INSPECTED, "State": {**STATE, "Health": {"Status": "well"}}}, '"well" is none of none, st'),
        ("inspect", 404, {"error": "none such"}, "answer.404.message: is missing"),
        ("inspect", 200, "OK", "Content-Type: text/plain.* is not described"),
        ("unpause", 409, {"message": "it runs"}, "answer.409: is not described"),
        ("pause", 204, {}, r"answer.204: \{\} is no nothing"),
    ],
)
def test_an_undescribed_answer_fails(socket_path: Path, call: str, status: int, said: Said, words: str) -> None:
    class Other(Engine):
        def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Said]:
            return (status, said) if f"/{ID}/" in path else super().answer(method, path, body)

    path = f"/v1.43/containers/{ID}/{'json' if call == 'inspect' else call}"
    with pytest.raises(AssertionError, match=words), served(Other(), socket_path):
        Docker(socket_path)._send("GET" if call == "inspect" else "POST", path)


@pytest.mark.parametrize(("late", "since"), SAID_LATE.items())
def test_a_field_of_a_later_version_is_in_no_earlier_one(late: tuple[str, str], since: Version) -> None:
    assert described(*late) == [(since, VERSIONS[-1])]


DESCRIBED = """
consumes: [application/json]
produces: [application/json]
definitions:
  Endpoint: {type: object, x-nullable: true, properties: {Aliases: {type: array, items: {type: string}}, OPTIONS}}
  Body:
    type: object
    required: [Container]
    properties: {Container: {type: string}, Endpoint: {$ref: "#/definitions/Endpoint"}}
paths:
"""
OTHERS = "".join(
    f"  {template}: {{{method.lower()}: {{responses: {{}}}}}}\n"
    for method, template in (operation.split(" ") for operation in OPERATIONS[:-1])
)
CALL = """  /networks/{id}/disconnect:
    post:
      parameters:
        - {name: id, in: path, type: string, required: true}
        - {name: container, in: body, required: true, schema: {$ref: "#/definitions/Body"}}
      responses: {200: {description: a text}, 404: {schema: {type: string, enum: [none, other]}}}
"""


def test_facts_follow_references_and_name_their_versions() -> None:
    text = DESCRIBED + OTHERS + CALL
    plain = text.replace(", OPTIONS", "")
    more = text.replace("OPTIONS", "Options: {type: object, additionalProperties: {type: integer}}")
    read = facts({(1, 9): plain, (1, 10): more, (1, 11): plain, (1, 12): more, (1, 13): more})
    assert read["POST /networks/{id}/disconnect"] == {
        "answer.200": {"nothing": "1.9-1.13"},
        "answer.404": {"string enum=none|other": "1.9-1.13"},
        "body!": {"object": "1.9-1.13"},
        "body.Container!": {"string": "1.9-1.13"},
        "body.Endpoint": {"object nullable": "1.9-1.13"},
        "body.Endpoint.Aliases": {"array": "1.9-1.13"},
        "body.Endpoint.Aliases[]": {"string": "1.9-1.13"},
        "body.Endpoint.Options": {"object": "1.10-1.10, 1.12-1.13"},
        "body.Endpoint.Options{}": {"integer": "1.10-1.10, 1.12-1.13"},
        "consumes": {"application/json": "1.9-1.13"},
        "path.id!": {"string": "1.9-1.13"},
        "produces": {"application/json": "1.9-1.13"},
    }
