"""The Chaos Toolkit extension, called as the toolkit calls it: probes, and a control that opens and closes fault
windows.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from chaosstreamproof import discover
from faults.chaostoolkit import actions, control, probes
from faults.chaostoolkit.source import NoAnswer
from faults.config import KafkaSection
from faults.errors import FaultConfigError, NotPublished
from tests.unit.publish_snapshots import broken, clean, config
from validator import __version__
from validator.model.snapshot import Snapshot
from validator.publish.publisher import Publisher

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Publisher]:
    one = Publisher(config(tmp_path), tmp_path)
    yield one
    one.stop()


def now_us() -> int:
    return time.time_ns() // 1000


def published(sidecar: Publisher, snapshot: Snapshot, *, ago_us: int = 0) -> str:
    """The URL of a sidecar that shows ``snapshot`` with an age of ``ago_us``."""
    endpoint = sidecar.start()
    sidecar.publish(replace(snapshot, taken_us=now_us() - ago_us))
    return f"http://127.0.0.1:{endpoint.port}/"


@pytest.mark.parametrize("over_http", [True, False])
def test_probes_return_the_values_of_the_report(sidecar: Publisher, tmp_path: Path, over_http: bool) -> None:
    url = published(sidecar, broken())
    source = url if over_http else str(tmp_path)
    assert probes.verdict(source) == "fail"
    assert probes.verdict(source, guarantee="at_least_once", over="24h") == "pass"
    assert probes.reliability(source) == 1.0
    assert probes.reliability(source, "exact_ratio") == pytest.approx(980 / 990)


def test_a_violation_counts_from_when_it_was_confirmed(sidecar: Publisher) -> None:
    source = published(sidecar, broken())
    # One violation was confirmed at noon of 2026-01-31, the other one second earlier.
    both = probes.violations_since(source, "2026-01-31T11:59:00Z")
    assert both > probes.violations_since(source, "2026-01-31T12:00:00Z") > 0
    assert probes.violations_since(source, "2026-01-31T12:00:01Z") == 0
    missing = probes.violations_since(source, "2026-01-31T11:59:00Z", classes=["missing"])
    assert 0 < missing < both
    assert probes.violations_since(source, "1ms") == 0


def test_an_old_report_is_not_a_verdict(sidecar: Publisher, tmp_path: Path) -> None:
    published(sidecar, clean(), ago_us=120_000_000)
    with pytest.raises(NoAnswer, match="s old"):
        probes.verdict(str(tmp_path))
    assert probes.verdict(str(tmp_path), fresh_within_seconds=None) == "pass"
    with pytest.raises(NoAnswer, match="s old"):
        actions.wait_until_judged(str(tmp_path))


def test_a_probe_without_an_answer_fails_with_a_sentence(sidecar: Publisher, tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="cannot be read"):
        probes.verdict(str(tmp_path / "nothing"))
    url = published(sidecar, replace(clean(), settled={"expected": 0, "handled": 0, "exact": 0}))
    with pytest.raises(NoAnswer, match="no window is settled"):
        probes.reliability(url)
    with pytest.raises(NoAnswer, match="no verdict on twice"):
        probes.verdict(url, guarantee="twice")
    with pytest.raises(NoAnswer, match="neither"):
        probes.violations_since(url, "yesterday")
    with pytest.raises(NoAnswer, match="neither"):
        probes.violations_since(url, "2026-01-31T12:00:00")
    with pytest.raises(NoAnswer, match="no such measure"):
        probes.reliability(url, "luck")


def test_waiting_ends_when_nothing_is_undecided(sidecar: Publisher) -> None:
    url = published(sidecar, clean())
    assert actions.wait_until_judged(url, timeout_seconds=5, at_least_seconds=-10)["processed"] == 990
    undecided = {**clean().contributions, "overdue": 3}
    sidecar.publish(replace(clean(), taken_us=now_us(), contributions=undecided))
    with pytest.raises(NoAnswer, match="overdue"):
        actions.wait_until_judged(url, timeout_seconds=0, at_least_seconds=-10)


def test_one_fault_of_a_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    faults = [{"kind": "cpu_pressure", "target": "here"}, {"kind": "cpu_pressure", "target": "here", "name": "hog"}]
    file.write_text(yaml.safe_dump({"targets": {"here": {"type": "machine"}}, "schedule": {"faults": faults}}))
    with pytest.raises(FaultConfigError, match="cpu-pressure, hog"):
        actions.run_fault(str(file))
    with pytest.raises(FaultConfigError, match="cpu-pressure, hog"):
        actions.run_fault(str(file), "dog")
    assert actions.heal(str(file)) == 0


class Topic:
    """Stands in for the faults topic and keeps its records."""

    records: list[dict[str, Any]]
    exists = True

    def __init__(self, kafka: KafkaSection) -> None:
        type(self).records = []

    def check(self) -> None:
        if not self.exists:
            raise NotPublished("there is no topic.")

    def write(self, fault_id: str, record: str) -> None:
        self.records.append(json.loads(record))

    def flush(self) -> None:
        pass


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> type[Topic]:
    monkeypatch.setattr(control, "FaultsTopicWriter", Topic)
    monkeypatch.setattr(Topic, "exists", True)
    return Topic


def action(name: str, module: str = "chaosk8s.pod.actions", **more: object) -> dict[str, Any]:
    return {"type": "action", "name": name, "provider": {"type": "python", "module": module, "func": "kill"}, **more}


def play(
    *method: Mapping[str, Any], rollbacks: list[dict[str, str]] | None = None, dry: str | None = None, **arguments: Any
) -> None:
    """Run an experiment as the toolkit does. ``rollbacks``: the journal of its rollbacks, with a status each."""
    experiment = {"title": "a day", "method": method, "rollbacks": rollbacks or [], "dry": dry}
    probe = {"type": "probe", "name": "healthy"}
    control.before_experiment_control(context=experiment, bootstrap_servers="127.0.0.1:9", **arguments)
    control.before_activity_control(context=action("before the method"))
    control.before_method_control(context=experiment)
    for activity in (probe, *method):
        control.before_activity_control(context=activity)
        control.after_activity_control(context=activity)
    control.after_method_control(context=experiment)
    control.before_rollback_control(context=experiment)
    control.before_activity_control(context=action("a rollback"))
    control.after_rollback_control(context=experiment, state=rollbacks or [])
    control.after_experiment_control(context=experiment)


def published_states(topic: type[Topic]) -> list[tuple[str, str]]:
    return [(record["name"], record["state"]) for record in topic.records]


def test_rollbacks_end_the_windows_of_the_method(topic: type[Topic]) -> None:
    play(action("kill a pod"), action("cut a link"), rollbacks=[{"status": "succeeded"}], targets={"cut a link": "b-1"})
    assert published_states(topic) == [
        ("kill a pod", "injected"), ("cut a link", "injected"),
        ("kill a pod", "heal_started"), ("cut a link", "heal_started"),
        ("kill a pod", "healed"), ("cut a link", "healed"),
    ]  # fmt: skip
    assert len({record["id"] for record in topic.records}) == 2
    assert {(record["kind"], record["target"]) for record in topic.records} == {("kill", "a day"), ("kill", "b-1")}
    assert {record["plan"] for record in topic.records} == {"a day"}


def test_without_rollbacks_the_method_ends_them_and_a_momentary_action_its_own(topic: type[Topic]) -> None:
    play(action("restart"), action("slow down"), momentary=["restart"])
    assert published_states(topic) == [
        ("restart", "injected"), ("restart", "heal_started"), ("restart", "healed"),
        ("slow down", "injected"), ("slow down", "heal_started"), ("slow down", "healed"),
    ]  # fmt: skip


def test_a_failed_rollback_leaves_the_window_open_and_says_so(
    topic: type[Topic], caplog: pytest.LogCaptureFixture
) -> None:
    play(action("kill a pod"), rollbacks=[{"status": "succeeded"}, {"status": "failed"}])
    assert published_states(topic) == [("kill a pod", "injected"), ("kill a pod", "heal_started")]
    assert ("kill a pod",) in [record.args for record in caplog.records]


def test_actions_of_the_extension_and_dry_actions_open_no_window(topic: type[Topic]) -> None:
    play(action("ours", "chaosstreamproof.actions"), action("ours", "faults.chaostoolkit.actions"))
    assert published_states(topic) == []
    play(action("dry", dry=True))
    assert published_states(topic) == []


def test_a_dry_run_publishes_nothing(topic: type[Topic]) -> None:
    topic.records = []
    play(action("kill a pod"), dry="actions")
    assert published_states(topic) == []


def test_without_a_topic_the_experiment_ends_before_its_method(
    topic: type[Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topic, "exists", False)
    with pytest.raises(Exception, match="there is no topic"):
        control.before_experiment_control(context={"title": "a day"}, bootstrap_servers="127.0.0.1:9")


@pytest.mark.parametrize("arguments", [{}, {"bootstrap_servers": "127.0.0.1:9", "momentery": ["kill"]}])
def test_arguments_that_would_be_dropped_end_the_experiment(topic: type[Topic], arguments: dict[str, Any]) -> None:
    # The toolkit would ignore a TypeError and run the experiment without fault windows.
    with pytest.raises(Exception, match=r"bootstrap_servers|momentery"):
        control.before_experiment_control(context={"title": "a day"}, **arguments)


def test_the_extension_imports_nothing_of_the_toolkit() -> None:
    folders = (ROOT / "faults" / "chaostoolkit", ROOT / "chaosstreamproof")
    sources = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
    assert "import chaoslib" not in sources
    assert "from chaoslib" not in sources


def test_the_documented_experiments_name_functions_that_experiments_can_use() -> None:
    folder = ROOT / "docs" / "chaos-toolkit"
    text = "".join((folder / name).read_text() for name in ("experiment.json", "control.json", "README.md"))
    named = set(re.findall(r"\bchaosstreamproof\.\w+", text))
    assert named == {f"chaosstreamproof.{name}" for name in ("actions", "control", "probes")}
    exported = {function for module in named for function in importlib.import_module(module).__all__}
    assert set(re.findall(r'"func": "(\w+)"', text)) <= exported
    hooks = {name for name in vars(control) if name.endswith("_control")}
    assert hooks == set(importlib.import_module("chaosstreamproof.control").__all__)


def test_the_extension_declares_its_probes_and_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toolkit discovers a module's exported functions and needs plain signatures."""

    def described(kind: str, module: str) -> list[dict[str, Any]]:
        found = importlib.import_module(module)
        functions = [getattr(found, name) for name in found.__all__]
        return [{"type": kind, "name": f.__name__, "of": inspect.signature(f).parameters} for f in functions]

    library: Any = ModuleType("chaoslib.discovery")
    library.initialize_discovery_result = lambda *names: {"names": names, "activities": [], "system": None}
    library.discover_actions = partial(described, "action")
    library.discover_probes = partial(described, "probe")
    monkeypatch.setitem(sys.modules, "chaoslib", ModuleType("chaoslib"))
    monkeypatch.setitem(sys.modules, "chaoslib.discovery", library)
    found = discover(discover_system=True)
    assert (found["names"], found["system"]) == (("streamproof", __version__, "streamproof"), None)
    declared = [(activity["type"], activity["name"]) for activity in found["activities"]]
    page = (ROOT / "docs" / "chaos-toolkit" / "README.md").read_text()
    assert {name for _, name in declared} == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert sorted(kind for kind, _ in declared) == ["action"] * 3 + ["probe"] * 3
    first = [next(iter(activity["of"].values())) for activity in found["activities"]]
    assert {parameter.annotation for parameter in first} == {str}, "the toolkit takes classes only, not their names"
