"""What a real Docker and its containers can do to a fault: refuse it, end during it, or contain its runner."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from faults.backends.docker import Docker
from faults.errors import FaultRefused, NotHealed
from faults.journal import read
from tests.faults.real_docker import SERVER, RealDocker
from tests.faults.stage import ROOT, STREAMPROOF, Stage, heal, wait_until
from tests.faults.web_container import KINDS, NAME, SHOP, WEB_BACK, answers, during, log, target

REFUSED_MAKES: dict[str, dict[str, Any]] = {
    "ended": {},
    "frozen": {},
    "brief": {"host": {"AutoRemove": True}},
    "of-host": {"network": "host"},
    "of-none": {"network": "none"},
    "of-web": {"network": f"container:{NAME}"},
}
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("container_kill", "ended", {}, "it: the container does not run"),
    ("container_pause", "frozen", {}, "it: the container is paused"),
    ("container_kill", "frozen", {}, "it: the container is paused"),
    ("container_kill", "no-such", {}, "No such container: no-such."),
    ("container_kill", "a/b", {}, "No such container: a/b."),
    ("container_kill", "brief", {}, "(--rm)"),
    ("container_disconnect", NAME, {"network": "other"}, "it: the container is not on other; name a network"),
    ("container_disconnect", "of-host", {}, "on the network host"),
    ("container_disconnect", "of-none", {}, "on the network none"),
    ("container_disconnect", "of-web", {}, "no network to disconnect from"),
]


@pytest.mark.full
def test_a_fault_that_cannot_be_injected_is_refused_before_any_change(docker: RealDocker, stage: Stage) -> None:
    for name, more in REFUSED_MAKES.items():
        docker.run(name, "busybox", "sleep", "600", **more)
    docker.ask("POST", "/containers/ended/kill")
    docker.ask("POST", "/containers/frozen/pause")
    before = {c["Id"]: (c["State"], c["Status"].split()[0]) for c in docker.ask("GET", "/containers/json?all=1")}
    for kind, container, parameters, words in REFUSED:
        target(stage, docker, "it", container)
        with pytest.raises(FaultRefused) as caught:
            during(stage, {"kind": kind, "target": "it", "parameters": parameters}, lambda: None)
        assert words in str(caught.value)
    assert {
        c["Id"]: (c["State"], c["Status"].split()[0]) for c in docker.ask("GET", "/containers/json?all=1")
    } == before
    assert read(stage.folder / "st") == {}


@pytest.mark.full
def test_a_container_that_is_named_twice_is_affected_once(docker: RealDocker, stage: Stage) -> None:
    known, seen = docker.inspect(NAME), Docker(docker.socket)
    assert seen.inspect(known["Name"]) == seen.inspect(NAME) == seen.inspect(known["Id"][:12])
    target(stage, docker, "same", known["Id"])
    with pytest.raises(FaultRefused, match="same and web "):
        during(stage, {"kind": "container_kill", "target": {"pick": "all"}}, lambda: None)
    assert log(docker) == ["start"]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["container_pause", "container_disconnect"])
def test_a_container_that_was_removed_needs_no_healing(docker: RealDocker, stage: Stage, kind: str) -> None:
    during(stage, {"kind": kind, "target": "web"}, lambda: docker.ask("DELETE", f"/containers/{NAME}?force=1"))
    assert stage.unhealed() == []


@pytest.mark.full
def test_a_paused_container_that_was_killed_needs_no_healing(docker: RealDocker, stage: Stage) -> None:
    during(stage, {"kind": "container_pause", "target": "web"}, lambda: docker.ask("POST", f"/containers/{NAME}/kill"))
    assert stage.unhealed() == []
    assert docker.inspect(NAME)["State"]["Status"] == "exited"


@pytest.mark.full
def test_a_removed_container_is_reported_and_the_others_are_started(docker: RealDocker, stage: Stage) -> None:
    docker.run("worker", *SERVER, network=SHOP, endpoint={"IPAMConfig": {"IPv4Address": "10.213.1.10"}})
    target(stage, docker, "worker", "worker")
    fault = {"kind": "container_kill", "target": {"pick": "all"}}
    with pytest.raises(NotHealed, match=r"web: .* [0-9a-f]{12} was removed"):
        during(stage, fault, lambda: docker.ask("DELETE", f"/containers/{NAME}?force=1"))
    wait_until(lambda: log(docker, "10.213.1.10") == ["start", "start"], "the other one was started")


@pytest.mark.full
@pytest.mark.parametrize("kind", ["container_kill", "container_pause", "container_disconnect"])
def test_containers_are_healed_when_docker_runs_again(docker: RealDocker, stage: Stage, kind: str) -> None:
    with pytest.raises(NotHealed) as caught:
        during(stage, {"kind": kind, "target": "web"}, docker.stop, limits={"healed_within": "100ms"})
    said = str(caught.value)
    assert f"{docker.socket}: no Docker answers there" in said
    assert "retried for 0.1 s; " in said
    assert "`streamproof faults heal CONFIG`" in said
    docker.start()
    heal(stage)
    docker.ask("POST", f"/containers/{NAME}/start")  # it ended with Docker; the healing of some kinds does not start it
    wait_until(lambda: answers(docker) and answers(docker, WEB_BACK), "it answers again at both addresses")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_restart_of_docker_during_a_fault_does_not_prevent_healing(
    docker: RealDocker, stage: Stage, kind: str
) -> None:
    def again() -> None:
        docker.stop(signal.SIGKILL)
        docker.start()

    during(stage, {"kind": kind, "target": "web"}, again)
    docker.ask("POST", f"/containers/{NAME}/start")
    wait_until(lambda: answers(docker) and answers(docker, WEB_BACK), "it answers again at both addresses")


@pytest.mark.full
def test_healing_waits_for_a_docker_that_is_being_started(docker: RealDocker, stage: Stage) -> None:
    def later() -> None:
        wait_until(lambda: any("heal_started" in e.states for e in read(stage.folder / "st").values()), "it heals")
        docker.start()

    starter = threading.Thread(target=later)
    starter.start()
    try:
        during(stage, {"kind": "container_kill", "target": "web"}, docker.stop)
    finally:
        starter.join()
    wait_until(lambda: log(docker) == ["start", "start"], "it was started once")


@pytest.mark.full
@pytest.mark.parametrize(
    ("network", "hit", "more"),
    [
        (SHOP, "runner", {"Hostname": "web"}),
        ("host", "runner", {}),
        (f"container:{NAME}", "runner", {"host": {"CgroupnsMode": "private"}}),
        (f"container:{NAME}", NAME, {"host": {"CgroupnsMode": "private"}}),
    ],
    ids=["named", "on-host", "beside", "network-of"],
)
def test_a_runner_in_a_container_refuses_its_own_container(
    docker: RealDocker, stage: Stage, network: str, hit: str, more: dict[str, Any]
) -> None:
    target(stage, docker, "it", hit)
    stage.write({"kind": "container_kill", "target": "it"})
    host = {"Binds": _our_folders(stage, docker), **more.pop("host", {})}
    command = [*STREAMPROOF, "run", str(stage.file)]
    status, said = docker.status_of("runner", *command, network=network, WorkingDir=str(ROOT), host=host, **more)
    assert "fault runner itself" in said.replace("\r\n", " ")
    assert status == 2
    assert log(docker) == ["start"]


def _our_folders(stage: Stage, docker: RealDocker) -> list[str]:
    """Return bind mounts for the interpreter, its packages and the command, at the same paths."""
    read_only = [Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.base_prefix), Path(sys.prefix), ROOT]
    found = [p for p in read_only if p.exists() and not any(o in p.parents for o in read_only)]
    return [*(f"{p}:{p}:ro" for p in dict.fromkeys(found)), *(f"{p}:{p}" for p in (stage.folder, docker.socket))]
