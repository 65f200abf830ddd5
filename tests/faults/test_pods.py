"""Faults of pods against a server that implements the Kubernetes API and plays Chaos Mesh."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from faults.backends.chaos_mesh import KIND_OF
from faults.errors import FaultConfigError, FaultRefused, NotHealed, NotVerified
from faults.fault import Fault
from faults.schedule import timeline
from tests.faults.api_server import Cluster
from tests.faults.chaos_mesh_schema import SPECS, STATUS, problems, refusals
from tests.faults.stage import HEALERS, ROOT, STREAMPROOF, Stage, abandoned
from validator.cli.main import main

PARAMETERS: dict[str, dict[str, Any]] = {
    "pod_kill": {"pods": 2},
    "pod_failure": {},
    "pod_net_delay": {"delay": "500ms", "jitter": "50ms", "pods": "50%"},
    "pod_net_loss": {"percent": 12.5, "direction": "both", "peers": {"app": "kafka"}},
    "pod_net_partition": {"direction": "from", "peers": {"app": "kafka"}, "pods": "all"},
    "pod_cpu_pressure": {"workers": 2, "load_percent": 80},
    "pod_memory_pressure": {"bytes": "256MiB"},
    "pod_disk_slow": {"volume": "/data", "delay": "100ms"},
    "pod_clock_skew": {"offset": "-10m"},
}
RUNNING = {"namespaces": ["shop"], "podPhaseSelectors": ["Running"]}
WORKERS = {**RUNNING, "labelSelectors": {"app": "worker"}}
KAFKA = {"mode": "all", "selector": {**RUNNING, "labelSelectors": {"app": "kafka"}}}
SPEC: dict[str, dict[str, Any]] = {
    "pod_kill": {"mode": "fixed", "value": "2", "action": "pod-kill"},
    "pod_failure": {"mode": "one", "action": "pod-failure"},
    "pod_net_delay": {
        "mode": "fixed-percent",
        "value": "50",
        "action": "delay",
        "delay": {"latency": "500ms", "jitter": "50ms", "correlation": "0"},
        "direction": "to",
    },
    "pod_net_loss": {
        "mode": "one",
        "action": "loss",
        "loss": {"loss": "12.5", "correlation": "0"},
        "direction": "both",
        "target": KAFKA,
    },
    "pod_net_partition": {"mode": "all", "action": "partition", "direction": "from", "target": KAFKA},
    "pod_cpu_pressure": {"mode": "one", "stressors": {"cpu": {"workers": 2, "load": 80}}},
    "pod_memory_pressure": {"mode": "one", "stressors": {"memory": {"workers": 1, "size": "268435456B"}}},
    "pod_disk_slow": {"mode": "one", "action": "latency", "volumePath": "/data", "delay": "100ms", "percent": 100},
    "pod_clock_skew": {"mode": "one", "timeOffset": "-10m"},
}


def fault(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "target": "workers", "parameters": PARAMETERS[kind], **more}


def test_every_kind_of_pod_fault_is_tested() -> None:
    assert set(PARAMETERS) == set(SPEC) == set(KIND_OF)


@pytest.mark.parametrize("kind", KIND_OF)
def test_a_fault_is_an_object_until_it_has_recovered(stage: Stage, cluster: Cluster, kind: str) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(len(cluster.objects))
        (shown,) = cluster.objects.values()
        assert problems(shown["status"], STATUS, "status") == []

    stage.during(fault(kind), look)
    assert seen == [1]
    (made,) = cluster.made
    assert (made["kind"], made["spec"]) == (KIND_OF[kind], {"selector": WORKERS, **SPEC[kind]})
    assert cluster.objects == {}
    # Chaos Mesh never reports a one-shot action as recovered. All others are recovered before their object is deleted.
    assert cluster.is_recovered_before_deletion == [kind != "pod_kill"]


def test_the_check_before_injection_creates_no_object(stage: Stage, cluster: Cluster) -> None:
    stage.during(fault("pod_failure"), lambda: None)
    posts = [request for request in cluster.requests if request.startswith("POST")]
    assert [request.endswith("?dryRun") for request in posts] == [True, True, False]


@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("kind", ["pod_failure", "pod_kill"])
def test_the_object_of_a_killed_runner_is_deleted(stage: Stage, cluster: Cluster, kind: str, healer: str) -> None:
    abandoned(stage, fault(kind), healer, lambda: len(cluster.objects) == 1)
    assert cluster.objects == {}
    assert cluster.is_recovered_before_deletion == [kind != "pod_kill"]


def test_an_object_that_selects_no_pod_is_refused_and_deleted(stage: Stage, cluster: Cluster) -> None:
    cluster.is_selecting = False
    with pytest.raises(NotVerified, match="no probe detected the fault"):
        during(stage, cluster, limits={"verified_within": "200ms"})
    assert len(cluster.made) == 1
    assert cluster.objects == {}


def test_a_fault_is_healed_when_as_many_pods_are_ready_as_before(stage: Stage, cluster: Cluster) -> None:
    with pytest.raises(NotHealed, match=r"^pod-kill on workers "):
        during(stage, cluster, kind="pod_kill", lost=1, limits={"healed_within": "200ms"})
    assert cluster.objects == {}
    assert stage.unhealed() == ["pod-kill"]
    cluster.ready_pods = 3
    healed = subprocess.run([*STREAMPROOF, "heal", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (healed.returncode, stage.unhealed()) == (0, []), healed.stderr


def during(
    stage: Stage,
    cluster: Cluster,
    kind: str = "pod_failure",
    lost: int = 0,
    look: Callable[[], None] = lambda: None,
    lasts: str = "0s",
    **more: Any,
) -> None:
    write = stage.write
    stage.write = lambda *faults: write(*faults, **more)  # type: ignore[method-assign]

    def lose() -> None:
        cluster.ready_pods -= lost
        look()

    stage.during(fault(kind, **{"for": lasts}), lose)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"has_chaos_mesh": False}, "no CRD PodChaos; install Chaos Mesh"),
        ({"ready_pods": 0}, "no ready pod in namespace shop"),
        ({"token": "secret"}, "refused GET .*: Unauthorized"),
        # An object that can be created but not removed would stay in the cluster.
        ({"forbidden": frozenset({"patch"})}, 'refused PATCH .* cannot patch resource "podchaos"'),
        ({"forbidden": frozenset({"delete"})}, 'refused DELETE .* cannot delete resource "podchaos"'),
        ({"forbidden": frozenset({"get"})}, 'refused GET .* cannot get resource "podchaos"'),
        ({"is_away": lambda method: method == "POST"}, "refused POST .*currently unable"),
    ],
)
def test_a_pod_fault_that_cannot_be_injected_is_refused_and_creates_no_object(
    stage: Stage, cluster: Cluster, change: dict[str, Any], words: str
) -> None:
    for name, value in change.items():
        setattr(cluster, name, value)
    with pytest.raises(FaultRefused, match=words):
        stage.during(fault("pod_failure"), lambda: None)
    assert cluster.made == []


@pytest.mark.parametrize(("ready", "pods"), [(2, 2), (2, 3), (1, "one"), (2, "60%")])
def test_all_pods_are_selected_only_on_request(stage: Stage, cluster: Cluster, ready: int, pods: str | int) -> None:
    cluster.ready_pods = ready
    failure = {"kind": "pod_failure", "target": "workers"}
    with pytest.raises(FaultRefused, match=f"workers: pods: {pods} .* all replicas .* {ready}"):
        stage.during({**failure, "parameters": {"pods": pods}}, lambda: None)
    assert cluster.made == []
    stage.during({**failure, "parameters": {"pods": "all"}}, lambda: None)
    assert len(cluster.made) == 1


def test_a_token_is_read_from_its_file(stage: Stage, cluster: Cluster) -> None:
    cluster.token = "secret"
    (stage.folder / "token").write_text("secret\n")
    stage.targets["workers"]["token_file"] = "token"
    stage.during(fault("pod_failure"), lambda: None)
    assert len(cluster.made) == 1


def test_an_unknown_kind_is_refused_with_the_message_of_the_server(
    stage: Stage, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SPECS["PodChaos"]["properties"], "mode")
    with pytest.raises(FaultRefused, match=r"PodChaos .*spec\.mode: unknown field"):
        stage.during(fault("pod_failure"), lambda: None)
    assert cluster.made == []


def test_an_unreachable_cluster_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    stage.targets["workers"] = {"type": "pods", "namespace": "shop", "match": {"app": "worker"}}
    with pytest.raises(FaultRefused, match=r"inside a cluster; .*server"):
        stage.during(fault("pod_failure"), lambda: None)
    stage.targets["workers"]["server"] = "http://127.0.0.1:1"
    with pytest.raises(FaultRefused, match=r"127\.0\.0\.1:1: no API server"):
        stage.during(fault("pod_failure"), lambda: None)


def test_a_direction_that_needs_the_other_side_is_refused_without_it(stage: Stage, cluster: Cluster) -> None:
    with pytest.raises(FaultConfigError, match=r"set peers .*direction: to"):
        stage.write({"kind": "pod_net_partition", "target": "workers", "parameters": {"direction": "both"}})


def planned(stage: Stage, kind: str) -> Fault:
    """Return a fault of the kind, which is not run."""
    (step,) = timeline(stage.write(fault(kind))).steps
    return step.fault


def test_the_objects_of_a_plan_are_shown_as_they_are_sent(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a server: the output is for a reader, or for kubectl."""
    stage.targets["workers"] = {"type": "pods", "namespace": "shop", "match": {"app": "worker"}}
    stage.targets["w0"] = {"type": "process", "pid": 4711}
    first, *others = KIND_OF
    group = {"together": [fault(first), {"kind": "process_pause", "target": "w0"}], "for": "90s"}
    stage.write(group, *(fault(kind, **{"for": "90s"}) for kind in others))
    assert main(["faults", "plan", str(stage.file), "--render"]) == 0
    shown = capsys.readouterr().out
    made = list(yaml.safe_load_all(shown))
    assert [(o["kind"], o["spec"]) for o in made] == [(KIND_OF[k], {"selector": WORKERS, **SPEC[k]}) for k in KIND_OF]
    assert [o["metadata"]["name"] for o in made] == [f"streamproof-{n}-0" for n in (1, *range(3, 2 + len(KIND_OF)))]
    assert [refusals(o) for o in made] == [[]] * len(KIND_OF)
    assert "# pod-failure: pod_failure on workers for 90s\napiVersion: chaos-mesh.org/v1alpha1\n" in shown
    assert main(["faults", "plan", str(stage.file), "--render"]) == 0
    assert capsys.readouterr().out == shown


def test_the_shown_objects_are_those_that_a_run_sends(
    stage: Stage, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.during(fault("pod_net_loss"), lambda: None)
    assert main(["faults", "plan", str(stage.file), "--render"]) == 0
    shown, (sent,) = yaml.safe_load(capsys.readouterr().out), cluster.made
    assert shown["metadata"].pop("name") == "streamproof-1-0"
    assert sent["metadata"].pop("name") != "streamproof-1-0"
    sent["metadata"] = {name: sent["metadata"][name] for name in shown["metadata"]}
    assert shown == {name: sent[name] for name in shown}


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("plan", "plan written: no fault "),
        ("run", "--render goes with plan"),
    ],
)
def test_render_without_pod_faults_is_refused(
    stage: Stage, capsys: pytest.CaptureFixture[str], action: str, words: str
) -> None:
    stage.targets["w0"] = {"type": "process", "pid": 4711}
    stage.write({"kind": "process_pause", "target": "w0"})
    assert main(["faults", action, str(stage.file), "--render"]) == 2
    assert words in capsys.readouterr().err
