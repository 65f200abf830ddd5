"""The fault configuration: an error is one sentence, and unsupported faults are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.catalogue import KINDS, UNSUPPORTED, UNSUPPORTED_BACKENDS
from faults.config import FaultConfig, load, parse
from faults.errors import FaultConfigError
from faults.kinds.registry import INJECTION_TYPES
from faults.parameters import DelayParameters
from faults.spec import FaultSpec

WORKER = {"type": "process", "pid_file": "w.pid", "start": ["sleep", "9"]}
LINK = {"type": "link", "listen": "127.0.0.1:19092", "upstream": "127.0.0.1:9092"}


def configured(fault: dict[str, Any], **more: Any) -> FaultConfig:
    return parse({"targets": {"w": WORKER, "link": LINK}, "schedule": {"faults": [fault]}, **more})


def complaint(fault: dict[str, Any], **more: Any) -> str:
    with pytest.raises(FaultConfigError) as caught:
        configured(fault, **more)
    return str(caught.value)


def test_parameters_are_those_of_the_kind() -> None:
    config = configured({"kind": "net_delay", "target": "link", "for": "5s", "parameters": {"delay": "500ms"}})
    assert config.schedule is not None
    spec = config.schedule.faults[0]
    assert isinstance(spec, FaultSpec)
    assert spec.parameters == DelayParameters(delay="500ms")  # type: ignore[arg-type]
    assert (spec.target.name, spec.lasts) == ("link", 5.0)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "earthquake"}, "'earthquake' is not a kind of fault; `streamproof faults list`"),
        ({"kind": "net_delay"}, "parameters of net_delay: delay: "),
        ({"kind": "net_delay", "parameters": {"delay": 5}}, "parameters of net_delay: delay: a duration is a number"),
        ({"kind": "net_delay", "parameters": {"delay": "1s", "jitter": "2s"}}, "jitter is more"),
        ({"kind": "process_kill", "for": 90}, "schedule.faults.0.for: a duration is a number"),
        ({"kind": "process_kill", "for": {"at_least": 5}}, "schedule.faults.0.for.at_least: a duration is a number"),
        ({"kind": "process_kill", "parameters": {"signal": 9}}, "signal: is not a known key"),
        ({"kind": "process_kill", "target": []}, "schedule.faults.0.target: write a name"),
        *(
            ({"kind": "process_kill", "target": {"pick": p}}, "a share from 1% to 100%")
            for p in ("0%", "101%", 0, "two")
        ),
        ({"kind": "pod_kill", "parameters": {"pods": "100%"}}, "all replicas; write all"),
        ({"kind": "pod_kill", "parameters": {"pods": "0%"}}, "write one, all, a number"),
        ({"kind": "process_kill", "target": {"name": "w", "pick": "all"}}, "cannot have labels, input or pick"),
        ({"kind": "process_kill", "for": {"at_least": "1s", "at_most": "2s"}}, "random; write one duration"),
        ({"kind": "disk_full", "parameters": {"bytes": "1 potato"}}, "a size is a whole number"),
    ],
)
def test_a_wrong_fault_is_refused_with_the_fix(fault: dict[str, Any], words: str) -> None:
    said = complaint(fault)
    assert words in said
    assert said.startswith("fault configuration: schedule")
    assert said.endswith(".")
    assert "\n" not in said


KILL = {"kind": "process_kill", "target": "w"}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"together": [KILL]}, "schedule.faults.0.together: needs at least 2 "),
        ({"together": [KILL, {**KILL, "for": {"at_least": "1s", "at_most": "5s"}}]}, "group has one duration"),
        ({"together": [{**KILL, "for": "5s"}] * 2, "for": "9s"}, "for: of the group has no effect"),
        ({"together": [{**KILL, "after": "1s"}] * 2}, "leave out after:"),
        ({"together": [KILL, {"together": [KILL, KILL]}]}, "schedule.faults.0.together.1."),
        ({"together": [KILL, KILL], "name": "both"}, "schedule.faults.0.name: is not a known key"),
        ({"together": [KILL, KILL], "for": {"at_least": "1s", "at_most": "2s"}}, "random; write one duration"),
        ({**KILL, "after": "1s"}, "schedule.faults.0.after: is not a known key"),
        ({"together": [KILL, {"kind": "earthquake"}]}, "schedule.faults.0.together.1: 'earthquake' is not a kind"),
    ],
)
def test_a_wrong_group_is_refused_with_the_fix(fault: dict[str, Any], words: str) -> None:
    said = complaint(fault)
    assert words in said
    assert "\n" not in said


@pytest.mark.parametrize("absent", UNSUPPORTED, ids=lambda absent: absent.name)
def test_a_kind_that_is_not_built_is_refused_with_its_reason(absent: Any) -> None:
    assert f"{absent.name} is not supported: {absent.reason}" in complaint({"kind": absent.name})


@pytest.mark.parametrize("backend", UNSUPPORTED_BACKENDS)
def test_a_backend_that_is_not_built_is_refused(backend: str) -> None:
    assert UNSUPPORTED_BACKENDS[backend] in complaint({"kind": "process_kill"}, backend=backend)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"type": "process"}, "either pid or pid_file"),
        ({"type": "process", "pid": 1}, "greater than 1"),
        ({"type": "process", "pid": 5, "start": ["x"]}, "start needs pid_file"),
        ({"type": "process", "pid_file": "p", "start": ["x"], "supervised": True}, "exclude each other"),
        ({"type": "link", "listen": "here", "upstream": "127.0.0.1:1"}, "targets.t.listen"),
        ({"type": "link", "listen": "127.0.0.1:99999", "upstream": "127.0.0.1:1"}, "targets.t.listen: a port "),
        ({"type": "sidecar"}, "state, pid_file and pid"),
        ({"type": "sidecar", "state": "s", "pid_file": "p"}, "state, pid_file and pid"),
        ({"type": "sidecar", "pid": 5, "start": ["x"]}, "start needs state or pid_file"),
        ({"type": "sidecar", "state": "s", "start": ["x"], "supervised": True}, "exclude each other"),
        ({"type": "broker", "pid": 5, "address": "here"}, "targets.t.address"),
        ({"type": "pods", "namespace": "shop", "match": {}}, "targets.t.match: needs at least 1 "),
        ({"type": "pods", "namespace": "shop", "match": {"a": "b"}, "server": "shop:6443"}, "targets.t.server"),
        ({"type": "pod"}, "targets.t: 'pod' is not a type of target"),
        ({"pid": 5}, "targets.t: has no type"),
    ],
)
def test_a_wrong_target_is_refused(target: dict[str, Any], words: str) -> None:
    assert words in complaint({"kind": "process_kill"}, targets={"t": target})


def test_an_error_names_a_target_as_the_file_does() -> None:
    said = complaint({"kind": "process_kill"}, targets={"fault": {"type": "process", "pid": 1}})
    assert said.startswith("fault configuration: targets.fault.pid: ")


def test_one_wrong_entry_of_a_list_is_one_problem() -> None:
    assert "more)" not in complaint({"kind": "earthquake"})
    assert "more)" not in complaint({"together": [KILL, {"kind": "earthquake"}]})
    assert complaint({"kind": "process_kill", "for": 5, "size": 1}).endswith("(and 1 more).")
    said = complaint({"kind": "process_kill"}, schedule={"faults": []})
    assert said.startswith("fault configuration: schedule.faults: ")
    assert "more)" not in said


def test_a_named_plan_accepts_the_name_of_a_target() -> None:
    config = parse({"targets": {"w": WORKER}, "plan": {"name": "pgval-crash", "target": "w"}})
    assert config.plan is not None
    assert config.plan.target.name == "w"


def test_a_plan_and_a_schedule_exclude_each_other() -> None:
    assert "either plan" in complaint({"kind": "process_kill"}, plan={"name": "pgval-crash"})


def test_a_named_plan_decides_the_number_of_its_targets() -> None:
    plan = {"name": "pgval-crash", "target": {"pick": 2}}
    with pytest.raises(FaultConfigError, match="plan says how many"):
        parse({"targets": {"w": WORKER}, "plan": plan})


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "targets: {w: {type: process, pid_file: run/w.pid}, d: {type: folder, path: data}}\n"
        "kafka: {bootstrap_servers: '${BROKER}', options: {ssl.ca.location: ca.pem}}\n"
        "schedule: {faults: [{kind: process_pause, target: w}]}\n"
    )
    monkeypatch.setenv("BROKER", "127.0.0.1:9")
    config = load(file)
    assert config.state == tmp_path / "faults-state"
    assert getattr(config.targets["w"], "pid_file", None) == tmp_path / "run/w.pid"
    assert getattr(config.targets["d"], "path", None) == tmp_path / "data"
    assert config.kafka is not None
    assert config.kafka.bootstrap_servers == "127.0.0.1:9"
    assert config.kafka.options == {"ssl.ca.location": str(tmp_path / "ca.pem")}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ("targets: [", "YAML"),
        ("- 1", "must hold a mapping"),
        (b"state: caf\xe9", "YAML"),
        ("a: ${NO_NAME_}", "NO_NAME_"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | bytes | None, words: str) -> None:
    file = tmp_path / "faults.yaml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FaultConfigError, match=words) as caught:
        load(file)
    assert str(caught.value).startswith(str(file))
    assert caught.value.exit_status == 2


def test_every_kind_has_its_injection() -> None:
    assert set(INJECTION_TYPES) == set(KINDS)


def test_every_kind_is_documented() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    missing = [name for name in [*KINDS, *(absent.name for absent in UNSUPPORTED)] if f"`{name}`" not in manual]
    assert missing == []
