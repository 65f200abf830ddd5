"""Faults of pods against a real kube-apiserver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from faults.backends.chaos_mesh import KIND_OF, PAUSE, collection
from faults.errors import FaultRefused, NotHealed, NotVerified
from faults.runner import run
from faults.schedule import timeline
from tests.faults.chaos_controller import FINALIZER
from tests.faults.chaos_mesh_schema import SPECS, Schema, problems
from tests.faults.real_cluster import API_SERVER, ETCD, PODS, RealCluster
from tests.faults.stage import HEALERS, Runner, Stage, abandoned, heal, wait_until
from tests.faults.test_pods import fault

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (API_SERVER and ETCD), reason="scripts/kubernetes-tools has built no kube-apiserver and etcd"
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path_factory.mktemp("cluster"))
    with made.running():
        yield made


@pytest.fixture
def real(stage: Stage, server: RealCluster) -> Iterator[RealCluster]:
    for name in ("worker-a", "worker-b", "worker-c"):
        server.add_pod(name, {"app": "worker"})
    server.add_pod("kafka-a", {"app": "kafka"})
    stage.targets["workers"] = {
        "type": "pods",
        "namespace": "shop",
        "match": {"app": "worker"},
        "server": server.address,
        "ca_file": str(server.ca_file),
        "token_file": str(server.folder / "runner.token"),
    }
    try:
        with server.controlled():
            yield server
        assert server.objects() == []
    finally:
        for pod in server.call("GET", PODS)["items"]:
            server.call("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")


@pytest.mark.parametrize("kind", KIND_OF)
def test_each_object_is_accepted_injected_and_recovered(stage: Stage, real: RealCluster, kind: str) -> None:
    seen: list[list[dict[str, Any]]] = []
    stage.during(fault(kind), lambda: seen.append(real.objects()))
    ((made,),) = seen
    assert made["kind"] == KIND_OF[kind]
    assert stage.states() == ["injected", "verified", "heal_started", "healed"]
    assert real.recovered_at_deletion.pop(made["metadata"]["name"]) is (kind != "pod_kill")


@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("kind", ["pod_failure", "pod_kill"])
def test_the_object_of_a_killed_runner_is_deleted(stage: Stage, real: RealCluster, kind: str, healer: str) -> None:
    abandoned(stage, fault(kind), healer, lambda: len(real.objects()) == 1)


def test_a_server_that_is_stopped_while_a_fault_is_healed_is_waited_for(stage: Stage, real: RealCluster) -> None:
    back = threading.Timer(3, real.start)

    def stop() -> None:
        real.stop()
        back.start()

    try:
        stage.during(fault("pod_failure"), stop)
    finally:
        back.join()
    assert stage.states() == ["injected", "verified", "heal_started", "healed"]


def test_the_watchdog_waits_for_a_server_that_is_stopped(stage: Stage, real: RealCluster) -> None:
    stage.write(fault("pod_failure", **{"for": "600s"}))
    runner = Runner(stage)
    real.stop()
    try:
        runner.kill()
        wait_until(lambda: stage.seen()[-1] == "heal_started", "the watchdog heals")
    finally:
        real.start()
    wait_until(lambda: stage.unhealed() == [], "the watchdog has healed")


def test_a_fault_is_active_until_chaos_mesh_releases_its_object(stage: Stage, real: RealCluster) -> None:
    """A finalizer keeps the object until Chaos Mesh recovers the pods."""
    config = stage.write(fault("pod_failure"), limits={"healed_within": "1s"})

    def say(line: str) -> None:
        if line.startswith("failure:"):
            real.is_idle.set()

    with pytest.raises(NotHealed, match=r"no probe .* 1 s"):
        run(config, timeline(config), say, threading.Event())
    (left,) = real.objects()
    assert left["metadata"]["annotations"] == {PAUSE: "true"}
    assert left["metadata"]["finalizers"] == [FINALIZER]
    real.is_idle.clear()
    heal(stage)


@pytest.mark.parametrize("kind", ["pod_failure", "pod_kill"])
def test_a_fault_whose_object_was_deleted_is_no_longer_active(stage: Stage, real: RealCluster, kind: str) -> None:
    def delete() -> None:
        for seen in real.objects():
            real.call("DELETE", f"{collection(KIND_OF[kind], 'shop')}/{seen['metadata']['name']}")

    with pytest.raises(NotVerified, match="the fault ended early"):
        stage.during(fault(kind, **{"for": "60s"}), delete)
    assert stage.unhealed() == []


def test_a_completed_pod_is_not_selected(stage: Stage, real: RealCluster) -> None:
    real.add_pod("a-job", {"app": "worker"})
    real.say_ready("a-job", is_ready=False, phase="Succeeded")
    hit: list[str] = []

    def look() -> None:
        (seen,) = real.objects()
        hit.extend(record["id"] for record in seen["status"]["experiment"]["containerRecords"])

    stage.during(fault("pod_failure"), look)
    assert len(hit) == 1
    assert hit != ["shop/a-job"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": "half"}, 'refused PATCH .*: User "half" cannot patch resource "podchaos"'),
        ({"user": "stranger"}, 'refused GET .*: User "stranger" cannot list resource "podchaos"'),
        ({"user": None}, 'refused GET .*: User "system:anonymous" cannot list'),
        ({"token": "nobody"}, "refused GET .*: Unauthorized"),
        ({"user": "admin", "namespace": "other"}, 'refused POST .*: namespaces "other" not found'),
        ({"match": {"app": "nobody"}}, "no ready pod in namespace shop"),
        ({"ca_file": None}, "certificate is not accepted .* ca_file"),
        ({"scheme": "http"}, "refused GET .*: Client sent an HTTP request to an HTTPS server"),
    ],
)
def test_a_refusal_of_the_server_is_reported_and_no_object_created(
    stage: Stage, real: RealCluster, change: dict[str, Any], words: str
) -> None:
    target = stage.targets["workers"]
    if change.get("user"):
        target["token_file"] = str(real.folder / f"{change['user']}.token")
    if "token" in change:
        (stage.folder / "token").write_text(change["token"])
        target["token_file"] = "token"
    if "scheme" in change:
        target["server"] = f"http://127.0.0.1:{real.port}"
    target |= {key: change[key] for key in ("namespace", "match") if key in change}
    for absent in ("ca_file", "user"):
        if absent in change and change[absent] is None:
            del target["token_file" if absent == "user" else absent]
    with pytest.raises(FaultRefused, match=words):
        stage.during(fault("pod_failure"), lambda: None)
    assert real.objects() == []


def test_the_cluster_of_the_own_pod_is_found(stage: Stage, real: RealCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(real.port))
    del stage.targets["workers"]["server"]
    stage.during(fault("pod_failure"), lambda: None)


def test_a_cluster_without_chaos_mesh_is_reported(stage: Stage, real: RealCluster) -> None:
    real.forget("TimeChaos")
    try:
        with pytest.raises(FaultRefused, match="TimeChaos; install Chaos Mesh"):
            stage.during(fault("pod_clock_skew"), lambda: None)
    finally:
        real.define("TimeChaos")


@pytest.mark.parametrize("kind", SPECS)
def test_the_recorded_schema_refuses_the_same_as_the_server(real: RealCluster, kind: str) -> None:
    """Each field with valid and invalid values: the fake server judges objects as a real one does."""
    specs = list(_variants(SPECS[kind]))
    assert len(specs) > 50
    assert [spec for spec in specs if real.takes(kind, spec) is bool(problems(spec, SPECS[kind]))] == []


def _variants(schema: Schema) -> Iterator[Any]:
    """Yield values that the schema allows, and values that break it in one place."""
    yield _least(schema)
    yield from _WRONG[schema["type"]]
    yield from (schema[bound] + step for bound, step in (("minimum", -1), ("maximum", 1)) if bound in schema)
    least, named = _least(schema), schema.get("properties", {})
    for name, part in named.items():
        yield from ({**least, name: value} for value in _variants(part))
        if name in schema.get("required", []):
            yield {key: value for key, value in least.items() if key != name}
    if "additionalProperties" in schema:
        yield from ({"a": value} for value in _variants(schema["additionalProperties"]))
    elif schema["type"] == "object":
        yield {**least, "extra": 1}
    if "items" in schema:
        yield from ([value] for value in _variants(schema["items"]))


_WRONG: dict[str, list[Any]] = {
    "object": ["text", [1]],
    "array": ["text", {"a": 1}],
    "integer": ["1", 1.5, True],
    "string": [5, ["text"]],
}


def _least(schema: Schema) -> Any:
    """Return the smallest allowed value."""
    match schema["type"]:
        case "object":
            return {name: _least(schema["properties"][name]) for name in schema.get("required", [])}
        case "array":
            return []
        case "integer":
            return schema.get("minimum", 1)
    return schema["enum"][0] if "enum" in schema else "1ms"
