"""The targets that a selector takes, and the limits on their number."""

from __future__ import annotations

from typing import Any

import pytest

from faults.config import parse
from faults.errors import FaultRefused
from tests.unit.fault_schedules import WORKERS, configured, planned, worker


def hit(target: dict[str, Any], kind: str = "process_kill", **more: Any) -> list[str]:
    made = planned(configured({"faults": [{"kind": kind, "target": target}]}, **more))
    return list(made.steps[0].fault.targets)


@pytest.mark.parametrize(("pick", "expected"), [("one", 1), (3, 3), ("50%", 3), ("1%", 1), ("51%", 4), ("all", 6)])
def test_pick_is_the_number_of_selected_targets(pick: str | int, expected: int) -> None:
    assert len(hit({"labels": {"role": "worker"}, "pick": pick})) == expected


def test_the_leader_is_the_one_that_the_file_declares() -> None:
    assert hit({"labels": {"role": "worker"}, "pick": "leader"}) == ["w3"]


def test_a_node_loss_includes_all_processes_of_the_host() -> None:
    assert hit({"name": "w4"}, "node_loss") == ["w4", "w5"]
    assert len(hit({"labels": {"role": "worker"}, "pick": 2}, "node_loss")) == 4


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [
        ("process_kill", {"pick": 6}, "would hit all replicas"),
        ("process_kill", {"pick": "100%"}, "would hit all replicas"),
        ("node_loss", {"pick": 3}, "would hit all replicas"),
        ("process_kill", {"pick": 7}, "more than the 6 targets"),
        ("node_loss", {"pick": 4}, "more than the 3 hosts"),
        ("process_kill", {"labels": {"role": "driver"}}, "with role: driver"),
        ("process_kill", {"name": "link0"}, "no process target named link0"),
    ],
)
def test_more_targets_than_the_limit_are_refused(kind: str, target: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultRefused, match=words):
        hit(target, kind)


ON_TWO_HOSTS = {
    "w0": worker(0, host="a"),
    "w1": worker(1, host="b"),
    "b0": {"type": "broker", "address": "127.0.0.1:9092", "pid_file": "b0.pid", "supervised": True, "host": "a"},
    "s0": {"type": "sidecar", "state": "s", "supervised": True, "host": "b"},
}


def lost(seed: int, target: Any, targets: dict[str, Any]) -> list[str] | str:
    schedule = {"faults": [{"kind": "node_loss", "target": target}]}
    try:
        return list(planned(parse({"targets": targets, "schedule": schedule}), seed).steps[0].fault.targets)
    except FaultRefused as refused:
        return str(refused)


def test_a_lost_node_with_the_only_replica_of_another_kind_is_refused() -> None:
    said = [lost(seed, {"labels": {"role": "worker"}}, ON_TWO_HOSTS) for seed in range(20)]
    refusal = "node_loss would hit all replicas ({}); write pick: all, or a name, if you mean it."
    assert {str(line) for line in said} == {refusal.format("b0"), refusal.format("s0")}
    assert lost(0, {"pick": "all"}, ON_TWO_HOSTS) == refusal.format("b0"), "all are those that the selector matches"
    assert lost(0, "w0", ON_TWO_HOSTS) == ["w0", "b0"], "a name is the whole host"


def test_a_lost_node_may_have_one_of_several_replicas_of_another_kind() -> None:
    brokers = {
        f"b{host}": {**ON_TWO_HOSTS["b0"], "pid_file": f"b{host}.pid", "host": host, "labels": {"role": "broker"}}
        for host in "ab"
    }
    targets = {"w0": ON_TWO_HOSTS["w0"], "w1": ON_TWO_HOSTS["w1"], **brokers}
    assert {tuple(lost(seed, {"labels": {"role": "worker"}}, targets)) for seed in range(20)} == {
        ("w0", "ba"),
        ("w1", "bb"),
    }


@pytest.mark.parametrize(
    ("pods", "most", "words"),
    [
        (3, 2, "3 targets, .* limits.targets_at_once is 2"),
        ("all", 9, "only the cluster .* pods all "),
        ("50%", 9, "only the cluster .* pods 50% "),
        (2, 2, None),
        ("one", 1, None),
    ],
)
def test_pods_count_for_the_limit(pods: str | int, most: int, words: str | None) -> None:
    targets = {"workers": {"type": "pods", "namespace": "shop", "match": {"app": "worker"}}}
    schedule = {"faults": [{"kind": "pod_kill", "target": "workers", "parameters": {"pods": pods}}]}
    config = parse({"targets": targets, "schedule": schedule, "limits": {"targets_at_once": most}})
    if words is None:
        assert list(planned(config).steps[0].fault.targets) == ["workers"]
        return
    with pytest.raises(FaultRefused, match=words):
        planned(config)


def test_the_limit_also_applies_to_a_selection_of_all() -> None:
    with pytest.raises(FaultRefused, match="targets_at_once is 2"):
        hit({"pick": "all"}, limits={"targets_at_once": 2})


def test_the_only_replica_is_selected_by_name_only() -> None:
    config = parse({"targets": {"w": worker(0)}, "schedule": {"faults": [{"kind": "process_kill"}]}})
    with pytest.raises(FaultRefused, match="all replicas"):
        planned(config)


@pytest.mark.parametrize(("takes", "names"), [(True, {"w0"}), (False, {"w1", "w2", "w3", "w4", "w5"})])
def test_a_selector_selects_the_targets_with_input_or_the_others(takes: bool, names: set[str]) -> None:
    config = configured({"faults": [{"kind": "process_kill", "target": {"input": takes}}]})
    assert {planned(config, seed).steps[0].fault.target_names for seed in range(60)} == names


def test_a_host_has_input_if_one_of_its_processes_has() -> None:
    fed = {"fed": worker(9, host="node-2", labels={"role": "reader"}, input=True)}
    schedule = {"faults": [{"kind": "node_loss", "target": {"labels": {"role": "worker"}, "input": False}}]}
    config = configured(schedule, targets=WORKERS | fed)
    assert {planned(config, seed).steps[0].fault.target_names for seed in range(20)} == {"w2,w3"}
