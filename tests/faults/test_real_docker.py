"""Faults of containers on a real Docker. Connections between containers show without Docker's API that a fault is
active."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.backends.docker import Docker
from faults.errors import FaultRefused
from tests.faults import engine_api
from tests.faults.engine_api import ID, Engine, served
from tests.faults.real_docker import SERVER, RealDocker
from tests.faults.stage import Stage, abandoned, wait_until
from tests.faults.web_container import (
    ADDRESSES,
    BACK,
    KINDS,
    NAME,
    SHOP,
    WEB_BACK,
    answers,
    during,
    log,
    target,
)

IS_IN: dict[str, Callable[[RealDocker], bool]] = {
    "container_kill": lambda docker: not answers(docker),
    "container_pause": lambda docker: not answers(docker),
    "container_restart": lambda docker: log(docker) == ["start", "end", "start"],
    "container_disconnect": lambda docker: not answers(docker) and not answers(docker, WEB_BACK),
}
LIFE = {
    "container_kill": ["start", "start"],
    "container_pause": ["start"],
    "container_restart": ["start", "end", "start"],
    "container_disconnect": ["start"],
}


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_container_is_as_before_after_the_fault(docker: RealDocker, stage: Stage, kind: str) -> None:
    before = docker.inspect(NAME)
    network = docker.network_of(NAME)
    seen: list[bool] = []

    def look() -> None:
        wait_until(lambda: IS_IN[kind](docker), "clients see it")
        seen.append(docker.get("http://127.0.0.1:8080/log") is not None)

    during(stage, {"kind": kind, "target": "web"}, look)
    assert seen == [kind == "container_restart"]
    wait_until(lambda: [log(docker, address) for address in ADDRESSES] == [LIFE[kind]] * 3, "it answers as it did")
    after = docker.inspect(NAME)
    assert docker.network_of(NAME) == network
    assert _endpoints(after) == _endpoints(before)
    assert after["HostConfig"] == before["HostConfig"]
    for place, names in ((SHOP, ("web", "shop-front")), (BACK, ("web-back", NAME))):
        asking = " && ".join(f"busybox wget -q -O - http://{name}/log" for name in names)
        assert docker.status_of("client", "sh", "-c", asking, network=place)[0] == 0
        docker.ask("DELETE", "/containers/client")


def _endpoints(inspected: Any) -> dict[str, dict[str, Any]]:
    """Return the endpoints without the fields that change at each connection."""
    networks = inspected["NetworkSettings"]["Networks"]
    return {
        name: {**endpoint, "EndpointID": "", "MacAddress": "", "DriverOpts": None}
        for name, endpoint in networks.items()
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "healer"),
    [
        ("container_disconnect", "watchdog"),
        ("container_pause", "heal"),
        *((kind, "watchdog") for kind in KINDS[:-1]),
        *((kind, "heal") for kind in KINDS if kind != "container_pause"),
        *((kind, "stopped") for kind in KINDS),
    ],
)
def test_the_container_of_a_killed_runner_is_healed(docker: RealDocker, stage: Stage, kind: str, healer: str) -> None:
    abandoned(stage, {"kind": kind, "target": "web"}, healer, lambda: IS_IN[kind](docker))
    wait_until(lambda: log(docker) == LIFE[kind] == log(docker, WEB_BACK), "it answers as it did")


@pytest.mark.full
def test_only_the_named_network_is_disconnected(docker: RealDocker, stage: Stage) -> None:
    fault = {"kind": "container_disconnect", "target": "web", "parameters": {"network": SHOP}}

    def look() -> None:
        wait_until(lambda: answers(docker, WEB_BACK), "it answers on the other one")
        assert not answers(docker)

    during(stage, fault, look)
    wait_until(lambda: answers(docker), "it answers on both")


@pytest.mark.full
@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure"])
def test_docker_does_not_restart_a_killed_container_before_healing(
    docker: RealDocker, stage: Stage, policy: str
) -> None:
    docker.ask("POST", f"/containers/{NAME}/update", {"RestartPolicy": {"Name": policy}})
    runner = {"kind": "container_kill", "target": "web", "for": "1s"}
    during(stage, runner, lambda: None)
    wait_until(lambda: log(docker) == ["start", "start"], "it runs for the second time")
    assert docker.inspect(NAME)["RestartCount"] == 0


@pytest.mark.full
def test_a_killed_container_is_healed_only_when_its_health_check_passes(docker: RealDocker, stage: Stage) -> None:
    ready = "rm -f /ready; busybox httpd -p 80 -h /; busybox sleep 1; echo > /ready; while :; do busybox sleep 9; done"
    check = {"Test": ["CMD-SHELL", "test -e /ready"], "Interval": 100_000_000, "Timeout": 10**9, "Retries": 1000}
    docker.run("slow", "sh", "-c", ready.replace("rm", "busybox rm"), network=SHOP, Healthcheck=check)
    address = docker.inspect("slow")["NetworkSettings"]["Networks"][SHOP]["IPAddress"]
    target(stage, docker, "slow", "slow")
    with pytest.raises(FaultRefused, match=r"slow: .* health check"):
        during(stage, {"kind": "container_kill", "target": "slow"}, lambda: None)
    wait_until(lambda: docker.inspect("slow")["State"]["Health"]["Status"] == "healthy", "it is healthy")
    during(stage, {"kind": "container_kill", "target": "slow"}, lambda: None)
    assert docker.get(f"http://{address}/ready") == "\n"


PLAYED: list[tuple[str, str, dict[str, str] | None]] = [
    ("GET", "/_ping", None),
    ("GET", "/v1.41/containers/ID/json", None),
    *(
        ("POST", f"/v1.41/containers/shop-web-1/{call}", None)
        for call in (
            "unpause", "start", "pause", "pause", "start", "unpause", "kill?signal=SIGKILL", "kill?signal=SIGKILL",
            "pause", "unpause", "start", "restart?t=10",
        )
    ),
    *(("POST", f"/v1.41/containers/none/{call}", None) for call in ("start", "pause", "kill?signal=SIGKILL")),
    ("GET", "/v1.41/containers/none/json", None),
    *(
        ("POST", f"/v1.41/networks/{network}/{call}", {"Container": container})
        for network, call, container in (
            ("shop_default", "connect", "ID"), ("shop_default", "disconnect", "ID"),
            ("shop_default", "disconnect", "ID"), ("shop_default", "connect", "none"),
            ("shop_default", "disconnect", "none"), ("none-such", "connect", "ID"),
            ("none-such", "disconnect", "ID"), ("back", "disconnect", "ID"),
        )
    ),
    ("GET", "/v1.41/containers/ID/json", None),
]  # fmt: skip


def test_the_fake_engine_answers_as_docker_does(docker: RealDocker) -> None:
    spoken = docker.ask("GET", "/version")["ApiVersion"]
    if spoken != "1.41":
        pytest.skip(f"the server that plays Docker has the words of API 1.41, and this Docker is of {spoken}")
    docker.ask("POST", "/networks/create", {"Name": "shop_default"})
    host = {"AutoRemove": False}
    real_id = docker.run(engine_api.NAME, *SERVER, network="shop_default", endpoint={"Aliases": ["web"]}, host=host)
    played = docker.folder / "played"
    engine = Engine(api_version="1.41")
    with served(engine, played):
        try:
            for method, path, body in PLAYED:
                ours = _answer(played, method, path, body, ID)
                theirs = _answer(docker.socket, method, path, body, real_id)
                assert ours[:2] == theirs[:2], (method, path)
                _assert_like(ours[2], theirs[2], f"{method} {path}: ")
        finally:
            docker.ask("DELETE", f"/containers/{real_id}?force=1")
            docker.ask("DELETE", "/networks/shop_default")


def _answer(
    path: Path, method: str, call: str, body: dict[str, str] | None, container: str
) -> tuple[int, str | None, Any]:
    """Return status, content type and content, with ID in the place of the container's id."""
    given = None if body is None else {name: value.replace("ID", container) for name, value in body.items()}
    status, headers, said = Docker(path)._send(method, call.replace("ID", container), given)
    text = said.decode().strip().replace(container, "ID").replace(container[:12], "SHORT")
    kind = headers.get("content-type")
    return status, kind, json.loads(text) if kind == "application/json" else text


_OWN_VALUES = ("StartedAt", "UpperDir", "IPAddress")


def _assert_like(ours: Any, theirs: Any, where: str) -> None:
    """Assert that each field of ours is in theirs with the same value. Fields of `_OWN_VALUES` need only the same
    type."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            assert name in theirs, where + name
            _assert_like(value, theirs[name], f"{where}.{name}")
    elif where.endswith(_OWN_VALUES):
        assert type(ours) is type(theirs), where
    else:
        assert (ours or None) == (theirs or None), where
