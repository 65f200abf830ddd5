"""Faults of containers against a server that implements the Engine API and keeps the state that calls change."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faults.backends.docker import Docker
from faults.backends.own_container import OwnContainers
from faults.errors import FaultRefused, NotHealed
from faults.kinds import container
from tests.faults.engine_api import ID, LAYER, NAME, SHORT_ID, Engine, served
from tests.faults.engine_api_schema import VERSIONS
from tests.faults.stage import HEALERS, ROOT, STREAMPROOF, Stage, abandoned
from validator.cli.main import main

NEWEST = "{}.{}".format(*VERSIONS[-1])
OLDER = ("{}.{}".format(*VERSIONS[0]), "1.43")
in_versions = pytest.mark.parametrize("engine", [*OLDER, NEWEST], indirect=True)
"""The oldest and the newest described version, and one between them."""


@pytest.fixture
def socket_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # a unix socket's path must be short
        yield Path(folder) / "docker.sock"


@pytest.fixture
def engine(request: pytest.FixtureRequest, stage: Stage, socket_path: Path) -> Iterator[Engine]:
    """An engine of the newest described version, unless a test sets another. An undescribed call fails the test."""
    made = Engine(api_version=getattr(request, "param", NEWEST))
    stage.targets["web"] = {"type": "container", "container": NAME, "socket": str(socket_path)}
    with served(made, socket_path):
        yield made


def asked(engine: Engine) -> list[str]:
    """Return the requests that change something."""
    return [request for request in engine.requests if request.startswith("POST")]


IS_IN: dict[str, Callable[[Engine], bool]] = {
    "container_kill": lambda engine: not engine.is_running,
    "container_pause": lambda engine: engine.is_paused,
    "container_restart": lambda engine: engine.starts == 2,
    "container_disconnect": lambda engine: engine.networks == {},
}
ASKED = {
    "container_kill": [f"containers/{ID}/kill?signal=SIGKILL", f"containers/{ID}/start"],
    "container_pause": [f"containers/{ID}/pause", f"containers/{ID}/unpause"],
    "container_restart": [f"containers/{ID}/restart?t=10"],
    "container_disconnect": ["networks/shop_default/disconnect", "networks/shop_default/connect"],
}


def calls(engine: Engine, kind: str) -> list[str]:
    return [f"POST /v{engine.api_version}/{call}" for call in ASKED[kind]]


def is_well(engine: Engine) -> bool:
    return engine.is_running and not engine.is_paused and list(engine.networks) == ["shop_default"]


@pytest.mark.parametrize("kind", IS_IN)
def test_injecting_and_healing_use_the_documented_calls(stage: Stage, engine: Engine, kind: str) -> None:
    seen: list[bool] = []
    stage.during({"kind": kind, "target": "web"}, lambda: seen.append(IS_IN[kind](engine)))
    assert seen == [True]
    assert asked(engine) == calls(engine, kind)
    assert is_well(engine)


@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("kind", IS_IN)
def test_the_container_of_a_killed_runner_is_healed(stage: Stage, engine: Engine, kind: str, healer: str) -> None:
    abandoned(stage, {"kind": kind, "target": "web"}, healer, lambda: IS_IN[kind](engine))
    assert asked(engine) == calls(engine, kind)
    assert is_well(engine)


@in_versions
def test_a_container_is_reconnected_with_its_names_and_address(stage: Stage, engine: Engine) -> None:
    engine.networks["shop_default"]["IPAMConfig"] = {"IPv4Address": "172.18.0.9"}
    stage.during({"kind": "container_disconnect", "target": "web"}, lambda: None)
    aliases = ["web"] if engine.api_version == NEWEST else ["web", SHORT_ID]
    endpoint = {"IPAMConfig": {"IPv4Address": "172.18.0.9"}, "Aliases": aliases}
    assert engine.bodies == [{"Container": ID, "Force": False}, {"Container": ID, "EndpointConfig": endpoint}]


def test_a_container_is_reconnected_with_all_settings_of_its_endpoint(stage: Stage, engine: Engine) -> None:
    endpoint = {
        "IPAMConfig": {"IPv4Address": "172.18.0.9", "LinkLocalIPs": ["169.254.34.68"]},
        "Links": ["shop-db-1:db"],
        "Aliases": ["web"],
        "DriverOpts": {"com.docker.network.endpoint.sysctls": "net.ipv4.conf.IFNAME.log_martians=1"},
        "GwPriority": 100,  # since 1.48; without it another network may become the default route
    }
    engine.networks["shop_default"] |= endpoint
    stage.during({"kind": "container_disconnect", "target": "web"}, lambda: None)
    assert engine.bodies == [{"Container": ID, "Force": False}, {"Container": ID, "EndpointConfig": endpoint}]


def test_a_removed_network_does_not_prevent_reconnection_to_the_others(stage: Stage, engine: Engine) -> None:
    engine.networks = {"back": {"Aliases": []}, **engine.networks}

    def remove() -> None:
        engine.known_networks = ("shop_default",)

    with pytest.raises(NotHealed, match="network back not found"):
        stage.during({"kind": "container_disconnect", "target": "web"}, remove)
    assert list(engine.networks) == ["shop_default"]


def test_a_killed_container_is_healed_only_when_it_is_healthy(stage: Stage, engine: Engine) -> None:
    engine.health = "healthy"
    with pytest.raises(NotHealed, match=r"^container-kill on web "):
        _during(stage, {"kind": "container_kill", "target": "web"}, limits={"healed_within": "200ms"})
    engine.health = "healthy"
    ran = subprocess.run([*STREAMPROOF, "heal", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, stage.unhealed()) == (0, []), ran.stderr
    assert asked(engine) == calls(engine, "container_kill")  # it was started once


def test_an_unreachable_docker_does_not_prevent_healing_on_another(stage: Stage, socket_path: Path) -> None:
    engines = {}
    with ExitStack() as running:
        for name in ("web", "db"):
            socket = socket_path.with_name(name)
            engines[name] = Engine(api_version=NEWEST, id=hashlib.sha256(name.encode()).hexdigest())
            running.enter_context(served(engines[name], socket))
            stage.targets[name] = {
                "type": "container", "container": NAME, "socket": str(socket), "labels": {"role": "shop"},
            }  # fmt: skip
        fault = {"kind": "container_pause", "target": {"labels": {"role": "shop"}, "pick": "all"}}

        def look() -> None:
            assert all(engine.is_paused for engine in engines.values())
            socket_path.with_name("db").unlink()  # no Docker answers there any more

        with pytest.raises(NotHealed, match=r"container-pause on db,web .*no Docker answers"):
            stage.during(fault, look, limits={"targets_at_once": 2, "healed_within": "200ms"})
    assert not engines["web"].is_paused


def _during(stage: Stage, fault: dict[str, Any], **more: Any) -> None:
    write = stage.write
    stage.write = lambda *faults: write(*faults, **more)  # type: ignore[method-assign]
    stage.during(fault, lambda: None)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"is_running": False}, "container_kill", "web: .* does not run"),
        ({"is_restarting": True}, "container_kill", "web: .* is about to be started"),
        ({"is_paused": True}, "container_pause", "web: .* is paused"),
        ({"is_removed_at_end": True}, "container_kill", r"web: .* \(--rm\)"),
        ({"health": "starting"}, "container_kill", "web: .* health check"),
        ({"health": "unhealthy"}, "container_restart", "web: .* health check"),
        ({"networks": {}}, "container_disconnect", "no network to disconnect from"),
        ({"networks": {"host": {"Aliases": []}}}, "container_disconnect", "on the network host"),
        ({"api_version": "1.24"}, "container_kill", r"1\.24; streamproof needs 1\.25"),
        (
            {"api_version": "1.80", "oldest_version": "1.70"},
            "container_kill",
            rf"1\.70 or newer; .* {re.escape(NEWEST)}",
        ),
    ],
)
def test_a_fault_that_cannot_be_injected_is_refused_before_any_change(
    stage: Stage, engine: Engine, change: dict[str, Any], kind: str, words: str
) -> None:
    for name, value in change.items():
        setattr(engine, name, value)
    with pytest.raises(FaultRefused, match=words):
        stage.during({"kind": kind, "target": "web"}, lambda: None)
    assert asked(engine) == []


@pytest.mark.parametrize("change", [{"is_removed_at_end": True, "kind": "container_restart"}, {"health": "unhealthy"}])
def test_a_container_that_can_be_healed_is_accepted(stage: Stage, engine: Engine, change: dict[str, Any]) -> None:
    kind = change.pop("kind", "container_pause")
    for name, value in change.items():
        setattr(engine, name, value)
    stage.during({"kind": kind, "target": "web"}, lambda: None)
    assert is_well(engine)


@pytest.mark.parametrize(
    "own", [OwnContainers(frozenset([ID]), None), OwnContainers(frozenset(), LAYER)], ids=["id", "layer"]
)
def test_the_runners_own_container_is_refused(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch, own: OwnContainers
) -> None:
    monkeypatch.setattr(container, "own_containers", lambda: own)
    with pytest.raises(FaultRefused, match=r"web: .* fault runner itself"):
        stage.during({"kind": "container_pause", "target": "web"}, lambda: None)
    assert asked(engine) == []


def test_a_host_name_that_begins_like_an_id_is_not_a_container(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: ID[:1])
    stage.during({"kind": "container_pause", "target": "web"}, lambda: None)
    assert is_well(engine)


def test_an_absent_container_is_reported_with_the_message_of_docker(stage: Stage, engine: Engine) -> None:
    stage.targets["web"]["container"] = "other"
    with pytest.raises(FaultRefused, match="No such container: other"):
        stage.during({"kind": "container_kill", "target": "web"}, lambda: None)
    assert asked(engine) == []


def test_an_absent_socket_is_named(socket_path: Path) -> None:
    with pytest.raises(FaultRefused, match="no Docker answers there") as caught:
        Docker(socket_path).version()
    assert str(socket_path) in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to become another user")
def test_a_socket_without_permission_is_reported(engine: Engine, socket_path: Path) -> None:
    asked = (
        "import os, pathlib; from faults.backends.docker import why_not_here as why; os.setuid(65534); "
        f"print(why(pathlib.Path('{socket_path}')))"
    )
    said = subprocess.check_output([sys.executable, "-c", asked], cwd=ROOT, text=True)
    assert "(Permission denied)" in said
    assert "group" in said


def test_the_list_checks_the_sockets_of_the_targets(
    stage: Stage, engine: Engine, socket_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.targets["other"] = {**stage.targets["web"], "socket": str(socket_path.with_name("none"))}
    stage.write()
    assert main(["faults", "list", str(stage.file)]) == 0
    possible, _, not_here = capsys.readouterr().out.partition("Kinds of faults that are not available on this host:\n")
    assert "  container_kill " in possible
    assert f"  web: container {ID[:12]} runs, on shop_default\n" in not_here
    assert f"  other: {socket_path.with_name('none')}: no Docker " in not_here


def test_a_newer_engine_is_called_in_our_version(engine: Engine, socket_path: Path) -> None:
    engine.api_version, engine.oldest_version = "1.80", "1.44"
    assert Docker(socket_path).version() == VERSIONS[-1]
    assert Docker(socket_path).inspect(NAME).id == ID
    assert engine.requests[-1] == f"GET /v{NEWEST}/containers/{NAME}/json"
