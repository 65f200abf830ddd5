"""Two names of one thing are one target: of the blast radius, of a draw, and of a group."""

from __future__ import annotations

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
    """Names of the targets of each fault; more than one fault are a group."""
    specs = [{"together": list(faults)}] if len(faults) > 1 else list(faults)
    config = parse({"targets": targets, "schedule": {"faults": specs}, "limits": limits})
    (step,) = timeline(config, seed).steps
    return [list(fault.targets) for _, fault in step.parts]


def twins(tmp_path: Path) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Pairs of targets that are one thing, with the fault that finds it so."""
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
def test_two_names_of_one_thing_are_all_its_replicas(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a host can do is not the question here.
    monkeypatch.setattr("faults.catalogue.Kind.why_not_here", None)
    one, other, fault = twins(tmp_path)[number]
    with pytest.raises(FaultRefused, match=r"would hit all replicas \(one, other\)"):
        hit({"one": one, "other": other}, fault)
    assert hit({"one": one, "other": other}, {**fault, "target": "other"}) == [["other"]], "a name asks for its thing"
    assert hit({"one": one, "other": other}, {**fault, "target": {"pick": "all"}}) == [["one"]], "once is enough"
    with pytest.raises(FaultRefused, match="would be hit twice in one group"):
        hit({"one": one, "other": other}, {**fault, "target": "one"}, {**fault, "target": "other"})


@pytest.mark.parametrize("seed", range(10))
def test_a_number_of_targets_is_a_number_of_things(seed: int) -> None:
    targets = {"a": process("a.pid"), "again": process("./a.pid"), "b": process("b.pid"), "c": process("c.pid")}
    (names,) = hit(targets, {"kind": "process_pause", "target": {"pick": 2}}, seed=seed, targets_at_once=2)
    assert len({targets[name]["pid_file"].removeprefix("./") for name in names}) == 2
    with pytest.raises(FaultRefused, match="pick: 4 is more than the 3 targets that match"):
        hit(targets, {"kind": "process_pause", "target": {"pick": 4}}, seed=seed)


def test_a_clock_file_is_shared_by_clocks_only() -> None:
    targets = {"a": process("a.pid", clock_file="clock"), "b": process("b.pid", clock_file="clock")}
    pauses = [{"kind": "process_pause", "target": "a"}, {**SKEW, "target": "b"}]
    assert hit(targets, *pauses) == [["a"], ["b"]]


def test_a_broker_that_is_also_a_process_is_hit_once_by_a_group() -> None:
    broker = {"type": "broker", "address": "127.0.0.1:9092", "pid_file": "broker.pid", "supervised": True}
    targets = {"as-process": process("broker.pid"), "as-broker": broker, "w": process("w.pid")}
    with pytest.raises(FaultRefused, match="broker_pause: as-broker would be hit twice in one group"):
        hit(targets, {"kind": "process_pause", "target": "as-process"}, {"kind": "broker_pause", "target": "as-broker"})


def test_a_lost_node_takes_a_process_with_two_names_once() -> None:
    targets = {"a": process("a.pid", host="x"), "again": process("./a.pid", host="x"), "b": process("b.pid", host="y")}
    assert hit(targets, {"kind": "node_loss", "target": "a"}) == [["a"]]
