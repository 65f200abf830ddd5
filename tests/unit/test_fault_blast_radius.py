"""Two names of the same resource are one target: for the blast radius, in a draw, and in a group."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import pytest

from faults.config import parse
from faults.errors import FaultRefused
from faults.schedule import timeline

SKEW: dict[str, Any] = {"kind": "clock_skew", "parameters": {"offset": "5s"}}
FULL: dict[str, Any] = {"kind": "disk_full", "parameters": {"bytes": "1MiB"}}


def process(pid_file: str = "w.pid", **more: Any) -> dict[str, Any]:
    return {"type": "process", "pid_file": pid_file, "start": ["sleep", "9"], **more}


def hit(targets: dict[str, Any], *faults: dict[str, Any], seed: int = 1, **limits: int) -> list[list[str]]:
    """Names of the targets of each fault. Several faults form a group."""
    specs = [{"together": list(faults)}] if len(faults) > 1 else list(faults)
    config = parse({"targets": targets, "schedule": {"faults": specs}, "limits": limits})
    (step,) = timeline(config, seed).steps
    return [list(fault.targets) for _, fault in step.parts]


def twins(tmp_path: Path) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Pairs of targets that are the same resource, with a fault that affects it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link.pid").symlink_to(tmp_path / "a" / "w.pid")
    pause = {"kind": "process_pause"}
    device = {"type": "namespace", "namespace": "n", "device": "e0", "probe": "10.0.0.1:1"}
    partition = {"kind": "namespace_partition"}
    return [
        ({"type": "process", "pid": 4711}, {"type": "process", "pid": 4711}, pause),
        (process(str(tmp_path / "a" / "w.pid")), process(str(tmp_path / "link.pid")), pause),
        (process("a.pid", clock_file="clock"), process("b.pid", clock_file="./clock"), SKEW),
        (device, {**device, "probe": "10.0.0.1:2"}, partition),
        ({"type": "folder", "path": str(tmp_path / "a")}, {"type": "folder", "path": str(tmp_path / "b")}, FULL),
    ]


@pytest.mark.parametrize("number", range(5), ids=["pid", "pid_file", "clock_file", "device", "file system"])
def test_two_names_of_one_resource_count_as_one(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The host's support for the kinds does not matter here.
    monkeypatch.setattr("faults.catalogue.Kind.why_not_here", None)
    one, other, fault = twins(tmp_path)[number]
    with pytest.raises(FaultRefused, match=r"would hit all replicas \(one, other\)"):
        hit({"one": one, "other": other}, fault)
    assert hit({"one": one, "other": other}, {**fault, "target": "other"}) == [["other"]], (
        "a target that is named is hit under its name"
    )
    assert hit({"one": one, "other": other}, {**fault, "target": {"pick": "all"}}) == [["one"]], "once is enough"
    with pytest.raises(FaultRefused, match="twice in one group"):
        hit({"one": one, "other": other}, {**fault, "target": "one"}, {**fault, "target": "other"})


@pytest.mark.parametrize("seed", range(10))
def test_the_number_of_targets_counts_resources_not_names(seed: int) -> None:
    targets = {"a": process("a.pid"), "again": process("./a.pid"), "b": process("b.pid"), "c": process("c.pid")}
    (names,) = hit(targets, {"kind": "process_pause", "target": {"pick": 2}}, seed=seed, targets_at_once=2)
    assert len({targets[name]["pid_file"].removeprefix("./") for name in names}) == 2
    with pytest.raises(FaultRefused, match=r"pick: 4 .* 3 targets"):
        hit(targets, {"kind": "process_pause", "target": {"pick": 4}}, seed=seed)


def test_a_clock_file_is_shared_by_clocks_only() -> None:
    targets = {"a": process("a.pid", clock_file="clock"), "b": process("b.pid", clock_file="clock")}
    pauses = [{"kind": "process_pause", "target": "a"}, {**SKEW, "target": "b"}]
    assert hit(targets, *pauses) == [["a"], ["b"]]


def test_a_broker_that_is_also_a_process_is_selected_once_by_a_group() -> None:
    broker = {"type": "broker", "address": "127.0.0.1:9092", "pid_file": "broker.pid", "supervised": True}
    targets = {"as-process": process("broker.pid"), "as-broker": broker, "w": process("w.pid")}
    with pytest.raises(FaultRefused, match=r"broker_pause: as-broker .* twice"):
        hit(targets, {"kind": "process_pause", "target": "as-process"}, {"kind": "broker_pause", "target": "as-broker"})


def test_a_lost_node_includes_a_process_with_two_names_once() -> None:
    targets = {"a": process("a.pid", host="x"), "again": process("./a.pid", host="x"), "b": process("b.pid", host="y")}
    assert hit(targets, {"kind": "node_loss", "target": "a"}) == [["a"]]


@pytest.fixture
def group_of_two(tmp_path: Path) -> Iterator[None]:
    """Pid files of a process, of a member of its group, and of a process in another group."""
    with ExitStack() as stack:
        leader: subprocess.Popen[bytes] | None = None
        for name in ("leader", "member", "other"):
            group = leader.pid if leader is not None and name == "member" else 0
            process = stack.enter_context(subprocess.Popen(["sleep", "60"], process_group=group))
            stack.callback(process.kill)
            leader = leader or process
            (tmp_path / f"{name}.pid").write_text(str(process.pid))
        yield


@pytest.mark.usefixtures("group_of_two")
@pytest.mark.parametrize("member_takes_group", [True, False])
def test_two_targets_of_one_process_group_are_one_if_the_group_is_affected(
    tmp_path: Path, member_takes_group: bool
) -> None:
    leader = process(str(tmp_path / "leader.pid"), group=True)
    member = process(str(tmp_path / "member.pid"), group=member_takes_group)
    pause = {"kind": "process_pause"}
    with pytest.raises(FaultRefused, match=r"would hit all replicas \(again, leader\)"):
        hit({"again": leader, "leader": leader}, {**pause, "target": {"pick": "one"}})
    with pytest.raises(FaultRefused, match="twice in one group"):
        hit({"member": member, "leader": leader}, {**pause, "target": "member"}, {**pause, "target": "leader"})
    (names,) = hit({"member": member, "leader": leader}, {**pause, "target": {"pick": "all"}})
    assert names == (["member"] if member_takes_group else ["leader"]), (
        "the target that is the whole group stands for its members"
    )
    other = process(str(tmp_path / "other.pid"), group=True)
    with pytest.raises(FaultRefused, match=r"pick: 3 .* 2 targets"):
        hit({"member": member, "leader": leader, "other": other}, {**pause, "target": {"pick": 3}})


def of_group(tmp_path: Path, *names: str) -> dict[str, Any]:
    """Targets of `group_of_two`. The leader's target is its whole group."""
    return {name: process(str(tmp_path / f"{name}.pid"), group=name == "leader") for name in names}


def drawn(targets: dict[str, Any], pick: int | str) -> set[tuple[str, ...]]:
    pause = {"kind": "process_pause", "target": {"pick": pick}}
    return {tuple(hit(targets, pause, seed=seed)[0]) for seed in range(40)}


@pytest.mark.usefixtures("group_of_two")
def test_a_process_of_a_group_is_drawn_too_and_never_with_it(tmp_path: Path) -> None:
    targets = of_group(tmp_path, "member", "leader", "other")
    assert drawn(targets, 1) == {("member",), ("leader",), ("other",)}
    more = targets | {"fourth": process(str(tmp_path / "fourth.pid"))}
    assert {names for names in drawn(more, "50%") if "other" in names} == {
        ("member", "other"), ("leader", "other"), ("other", "fourth"),
    }  # fmt: skip


@pytest.mark.usefixtures("group_of_two")
def test_a_process_is_drawn_if_its_whole_group_would_leave_nothing(tmp_path: Path) -> None:
    assert drawn(of_group(tmp_path, "member", "leader"), 1) == {("member",)}
    assert drawn(of_group(tmp_path, "member", "leader", "other"), 2) == {("member", "other")}
    with pytest.raises(FaultRefused, match=r"would hit all replicas \(leader, other\)"):
        drawn(of_group(tmp_path, "leader", "other"), 2)


@pytest.mark.usefixtures("group_of_two")
def test_two_faults_do_not_affect_a_group_and_its_process(tmp_path: Path) -> None:
    targets, pause = of_group(tmp_path, "member", "leader", "other"), {"kind": "process_pause"}
    targets["fourth"] = process(str(tmp_path / "fourth.pid"))
    together = {frozenset(chain(*hit(targets, pause, pause, seed=seed, targets_at_once=2))) for seed in range(60)}
    pairs = {frozenset(pair) for pair in combinations(targets, 2)}
    assert together == pairs - {frozenset(["member", "leader"])}


def test_a_group_of_the_file_is_known_before_its_processes_run() -> None:
    leader, member = process("leader.pid", group=True), process("member.pid", in_group_of="./leader.pid")
    targets = {"member": member, "leader": leader}
    assert drawn(targets, 1) == {("member",)}
    with pytest.raises(FaultRefused, match="twice in one group"):
        hit(targets, *({"kind": "process_pause", "target": name} for name in targets))


@pytest.mark.usefixtures("group_of_two")
def test_two_targets_of_one_process_group_are_two_if_no_fault_affects_the_group(tmp_path: Path) -> None:
    targets = {name: process(str(tmp_path / f"{name}.pid")) for name in ("leader", "member")}
    (names,) = hit(targets, {"kind": "process_pause", "target": {"pick": "one"}})
    assert len(names) == 1
    assert hit(targets, {"kind": "process_pause", "target": {"pick": "all"}}) == [["leader", "member"]]


@pytest.mark.usefixtures("group_of_two")
def test_the_process_of_a_slowed_folder_may_be_in_an_affected_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faults.catalogue.Kind.why_not_here", None)
    folder = {"type": "folder", "path": str(tmp_path), "pid_file": str(tmp_path / "member.pid")}
    targets = {"w": process(str(tmp_path / "leader.pid"), group=True), "disk": folder}
    slow = {"kind": "disk_slow", "target": "disk", "parameters": {"bytes_per_second": "1MB"}}
    with pytest.raises(FaultRefused, match=r"disk_slow: disk .* twice"):
        hit(targets, {"kind": "process_pause", "target": "w"}, slow)
