"""Faults of pods while the API server is unavailable, refuses, or shows changes by another client."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from faults.backends.chaos_mesh import PAUSE, collection
from faults.backends.kubernetes import Kubernetes, Server
from faults.errors import FaultRefused, NotHealed, NotVerified
from faults.facts import Facts
from faults.kinds.pods import Pods
from faults.runner import run
from faults.schedule import timeline
from tests.faults.api_server import Cluster, served
from tests.faults.stage import Stage, heal, wait_until
from tests.faults.test_pods import during, fault, planned


@pytest.mark.full
@pytest.mark.parametrize(("method", "status"), [("GET", 503), ("PATCH", 503), ("DELETE", 503), ("PATCH", 403)])
def test_healing_is_retried_while_the_server_is_unreachable(
    stage: Stage, cluster: Cluster, method: str, status: int
) -> None:
    cluster.away_status, left = status, 2

    def is_away(asked: str) -> bool:
        nonlocal left
        left -= asked == method
        return asked == method and left >= 0

    def look() -> None:
        cluster.is_away = is_away

    stage.during(fault("pod_failure"), look)
    assert left < 0
    assert cluster.objects == {}
    assert cluster.is_recovered_before_deletion == [True]


def test_an_unreachable_server_is_reported_and_healed_when_it_returns(stage: Stage, cluster: Cluster) -> None:
    def go() -> None:
        cluster.is_away = lambda _: True

    with pytest.raises(NotHealed, match=r"refused PATCH .*currently unable .* 0\.2 s; "):
        during(stage, cluster, look=go, limits={"healed_within": "200ms"})
    assert stage.unhealed() == ["pod-failure"]
    cluster.is_away = lambda _: False
    heal(stage)
    assert cluster.objects == {}


def test_an_unreachable_server_leaves_the_state_of_a_fault_unknown(stage: Stage, cluster: Cluster) -> None:
    injection = Pods(planned(stage, "pod_failure"), Facts(), stage.folder)
    injection.prepare()
    injection.inject()
    cluster.is_away = lambda _: True
    assert not injection.is_active()
    cluster.is_away = lambda _: False
    wait_until(injection.is_active, "the fault is active")
    cluster.is_away = lambda _: True
    injection.maintain()


@pytest.mark.full
@pytest.mark.parametrize("who", ["deletes", "pauses"])
def test_a_fault_that_was_ended_by_another_client_is_no_longer_active(stage: Stage, cluster: Cluster, who: str) -> None:
    def look() -> None:
        (name,) = cluster.objects
        if who == "deletes":
            del cluster.objects[name]
        else:
            cluster.objects[name]["metadata"]["annotations"] = {PAUSE: "true"}
            cluster.reconcile(name)
            cluster.reconcile(name)

    why = "deleted" if who == "deletes" else "AllInjected"
    with pytest.raises(NotVerified, match=f"workers: .* ended early because .*{why}"):
        during(stage, cluster, look=look, lasts="60s")
    assert stage.unhealed() == []
    assert cluster.objects == {}


@pytest.mark.full
@pytest.mark.parametrize("operation", ["Apply", "Recover"])
def test_the_reason_of_chaos_mesh_is_reported(stage: Stage, cluster: Cluster, operation: str) -> None:
    cluster.failing[operation] = "rpc error: code = Unavailable\n desc = no chaos-daemon on node-2"
    limits = {"healed_within": "3s", "verified_within": "3s"}
    why = r" 3 s.* \(workers: .*rpc error: code = Unavailable desc = no chaos-daemon on node-2\); "
    with pytest.raises(NotVerified if operation == "Apply" else NotHealed, match=why):
        during(stage, cluster, limits=limits)
    if operation == "Recover":
        assert stage.unhealed() == ["pod-failure"]
        cluster.failing.clear()
        heal(stage)
    assert stage.unhealed() == []
    assert cluster.objects == {}


@pytest.mark.full
@pytest.mark.parametrize("refusing", [0, 1])
def test_a_refusing_cluster_does_not_prevent_healing_on_another(stage: Stage, cluster: Cluster, refusing: int) -> None:
    clusters = (cluster, Cluster())
    with served(clusters[1]) as address:
        stage.targets["others"] = {**stage.targets["workers"], "server": address}
        config = stage.write({"kind": "pod_failure", "target": {"pick": "all"}}, limits={"healed_within": "200ms"})

        def say(line: str) -> None:
            if line.startswith("failure:"):
                clusters[refusing].forbidden = frozenset({"patch"})

        with pytest.raises(NotHealed, match='cannot patch resource "podchaos"'):
            run(config, timeline(config), say, threading.Event())
    (kept,), (seen,) = clusters[refusing].objects.values(), clusters[1 - refusing].objects.values()
    assert "annotations" not in kept["metadata"]
    assert seen["metadata"]["annotations"] == {PAUSE: "true"}


@pytest.mark.full
@pytest.mark.parametrize("why", [{"forbidden": frozenset({"watch"})}, {"is_forgetful": True}])
def test_an_object_that_cannot_be_watched_is_polled(cluster: Cluster, stage: Stage, why: dict[str, Any]) -> None:
    for name, value in why.items():
        setattr(cluster, name, value)
    server = Kubernetes(Server(stage.targets["workers"]["server"], None, None))
    started = time.monotonic()
    server.await_change(collection("PodChaos", "shop"), "one", "1", 1)
    assert time.monotonic() - started >= 1


@pytest.mark.parametrize("content", ["", "two words", "tök"])
def test_a_file_that_holds_no_token_is_refused(stage: Stage, cluster: Cluster, content: str) -> None:
    (stage.folder / "token").write_text(content, encoding="utf-8")
    stage.targets["workers"]["token_file"] = "token"
    with pytest.raises(FaultRefused, match=r"token_file: .*token holds no token"):
        stage.during(fault("pod_failure"), lambda: None)
    assert cluster.requests == []
