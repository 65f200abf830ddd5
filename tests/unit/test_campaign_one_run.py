"""The sidecar's configuration in a run of a campaign."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import generator.config
from generator.sections import SingleBurstRate
from testbed.campaign import one_run
from testbed.campaign.cell import Cell
from testbed.campaign.matrix import Run
from testbed.campaign.one_run import OneRun, RunFailed, is_measured
from testbed.demo import stages as demo_stages
from testbed.engines.base import ReferenceEngine
from testbed.engines.effective import Effective
from testbed.engines.flink import FlinkEngine
from testbed.engines.real import RealEngineSettings
from testbed.engines.settings import EngineSettings
from testbed.stop import Stop
from tests.unit.campaign_results import plan
from validator.config.load import load
from validator.config.model import Config
from validator.model.classes import Guarantee
from validator.oracles.rule_match import RuleMatch
from validator.publish.effective import effective_guarantee


def run_of(engine: str, folder: Path) -> OneRun:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    run = Run(Cell(engine, "sst", "exactly_once", "crash"), 1, 7)
    return OneRun(run, plan(), [broker], folder, Stop(), lambda _: None)


def sidecars_config(run: OneRun, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration with which ``run`` would start its sidecar."""
    files: list[Path] = []

    def sidecar(config: Path) -> Any:
        files.append(config)
        return SimpleNamespace(process=SimpleNamespace(kill=threading.Event().set), url=str)

    monkeypatch.setattr(one_run, "DemoSidecar", sidecar)
    with ExitStack() as stack:
        run._start_sidecar(stack)
    return load(files[0])


def test_the_sidecar_gets_the_effective_settings_of_a_real_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("flink", tmp_path)
    config = sidecars_config(run, monkeypatch)
    engine = FlinkEngine(RealEngineSettings(bootstrap_servers="127.0.0.1:1"), tmp_path / "engine")
    found = Effective("flink", "at_least_once", ("the sinks commit nothing",))
    monkeypatch.setattr(engine, "effective", lambda: found)
    read_back = run._read_back(engine)
    assert read_back is not None
    assert read_back.guarantee == "at_least_once"
    read_guarantee = effective_guarantee(config.engine.effective, Guarantee.EXACTLY_ONCE)
    assert read_guarantee is not None
    assert read_guarantee["effective"] == "at_least_once"
    assert "at-least-once" in str(read_back.mismatch)


def test_the_reference_engine_has_no_effective_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("reference", tmp_path)
    assert sidecars_config(run, monkeypatch).engine.effective is None
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1", inputs=("click",), group="g")
    assert run._read_back(ReferenceEngine(settings, tmp_path / "engine")) is None


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        (None, False),
        ({"healed": None, "recovered": True}, False),
        ({"healed": "now", "recovered": None, "absent_because": ["not recovered yet: 3 s"]}, False),
        ({"healed": "now", "recovered": None, "absent_because": ["recovery unknown: no steady rate"]}, True),
        ({"healed": "now", "recovered": True}, True),
        ({"healed": "now", "recovered": False}, True),
    ],
)
def test_the_load_lasts_until_the_recovery_is_decided(fault: dict[str, Any] | None, *, ends: bool) -> None:
    report: Any = {"faults": [] if fault is None else [{"absent_because": [], **fault}]}
    assert is_measured(report) is ends
    assert not is_measured(None)
    decided = {"healed": "now", "recovered": True, "absent_because": []}
    assert is_measured({"faults": [decided, decided]}, 2)  # type: ignore[typeddict-item]
    assert not is_measured({"faults": [decided]}, 2)  # type: ignore[typeddict-item]


def test_partitions_producers_and_shape_of_a_plan_reach_topics_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    once = {"shape": "single_burst", "events_per_second": 1, "burst_events_per_second": 3, "burst": "10s"}
    changed = plan(
        partitions=4, producers=2, shapes={"once": once}, shape="once", engines=["reference"], parallelism=2, keys=12
    )  # fmt: skip
    calm = Run(Cell("reference", "sst", "exactly_once", "none"), 1, 7)
    run = OneRun(calm, changed, [broker], tmp_path, Stop(), print)
    assert run._partitions == {
        f"{run._run.name}-{name}": count
        for name, count in (("click", 4), ("output", 4), ("lateOutput", 1), ("faults", 1))
    }
    monkeypatch.setattr(one_run, "OwnedProcess", lambda *_, **__: SimpleNamespace(kill=lambda: None))
    with ExitStack() as stack:
        run._start_load(stack)
    config = generator.config.load(tmp_path / "load.yaml")
    assert (config.producers, config.keys.pages, config.events_per_window) == (2, 12, 3000 // 12 // 2)
    assert isinstance(config.rate, SingleBurstRate)
    assert (config.rate.events_per_second, config.rate.burst_events_per_second) == (3000, 9000)


def test_a_grace_period_reaches_engine_load_and_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    graced = plan(engines=["kafka_streams"], grace="2500ms", suppress=True)
    cell = Cell("kafka_streams", "sst", "exactly_once", "none")
    run = OneRun(Run(cell, 1, 7), graced, [broker], tmp_path, Stop(), print)
    made: list[RealEngineSettings] = []
    monkeypatch.setattr(one_run, "make_engine", lambda _name, given, _folder: made.append(given))
    run._make_engine()
    assert (made[0].grace_ms, made[0].suppress) == (2500, True)
    assert sidecars_config(run, monkeypatch).timing.allowed_lateness_us == 2_500_000
    monkeypatch.setattr(one_run, "OwnedProcess", lambda *_, **__: SimpleNamespace(kill=lambda: None))
    with ExitStack() as stack:
        run._start_load(stack)
    lateness = generator.config.load(tmp_path / "load.yaml").lateness
    assert (lateness.share, lateness.beyond) == (0, 2500), "no event is late, and those that close windows end it"


def test_the_share_of_hot_keys_reaches_the_workload_of_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    skewed = plan(engines=["flink"], workloads=["nexmark_q12"], hot_share=0.9)
    run = OneRun(
        Run(Cell("flink", "nexmark_q12", "exactly_once", "none"), 1, 7), skewed, [broker], tmp_path, Stop(), print
    )
    monkeypatch.setattr(one_run, "OwnedProcess", lambda *_, **__: SimpleNamespace(kill=lambda: None))
    with ExitStack() as stack:
        run._start_load(stack)
    workload = generator.config.load(tmp_path / "load.yaml").workload
    assert (workload.kind, workload.model_dump()["hot_share"]) == ("nexmark_q12", 0.9)


def test_the_parameters_of_a_workload_reach_load_engine_and_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    of = plan(engines=["flink"], workloads=[{"kind": "shufflebench", "rules": 200, "output_rate": 10}])
    [workload] = of.workloads
    run = OneRun(Run(Cell("flink", workload, "exactly_once", "none"), 1, 7), of, [broker], tmp_path, Stop(), print)
    made: list[RealEngineSettings] = []
    monkeypatch.setattr(one_run, "make_engine", lambda _name, given, _folder: made.append(given))
    run._make_engine()
    assert (made[0].workload, made[0].parameters) == ("shufflebench", {"rules": 200, "output_rate": 10})
    oracle = sidecars_config(run, monkeypatch).oracle
    assert isinstance(oracle, RuleMatch)
    assert (oracle.rules, oracle.every) == (200, 10)
    monkeypatch.setattr(one_run, "OwnedProcess", lambda *_, **__: SimpleNamespace(kill=lambda: None))
    with ExitStack() as stack:
        run._start_load(stack)
    assert generator.config.load(tmp_path / "load.yaml").workload == made[0].configured


def test_a_stage_of_a_chain_reads_what_reference_engines_make_of_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", process=None)
    of = plan(engines=["flink"], workloads=["traffic_changes"])
    name = "traffic_changes"
    run = OneRun(Run(Cell("flink", name, "exactly_once", "none"), 1, 7), of, [broker], tmp_path, Stop(), print)
    made: list[EngineSettings] = []

    def engine(settings: EngineSettings, folder: Path) -> Any:
        made.append(settings)
        assert folder.parent == tmp_path
        return SimpleNamespace(start=lambda: None, kill=lambda: None, process=lambda _: "a process")

    monkeypatch.setattr(demo_stages, "ReferenceEngine", engine)
    with ExitStack() as stack:
        earlier = run._start_earlier(stack)
    assert earlier
    assert list(map(str, run._watched)) == ["a process"] * 2
    judged: list[RealEngineSettings] = []
    monkeypatch.setattr(one_run, "make_engine", lambda _name, given, _folder: judged.append(given))
    run._make_engine()
    prefix = f"{run._run.name}-"
    assert [one.workload.kind for one in made] == ["traffic_join", "traffic_lanes"]
    assert made[0].inputs == (f"{prefix}flow", f"{prefix}speed")
    assert (made[0].output, made[1].output) == (*made[1].inputs, judged[0].input)
    assert len({*(one.group for one in made), judged[0].group}) == 3
    assert {one.input for one in judged} | {made[0].output, *made[0].inputs} <= run._partitions.keys()
    monkeypatch.setattr(earlier, "lag", lambda: 0)
    monkeypatch.setattr(earlier, "events", lambda: (70, 4))
    assert run._until_passed_on(earlier, 9000, 6) == (70, 4)
    monkeypatch.setattr(earlier, "lag", lambda: 1200)
    monkeypatch.setattr(one_run, "SETTLE_SECONDS_MAX", 0.0)
    run._watched.clear()
    with pytest.raises(RunFailed, match="had 1,200 events left to read; lower the rate"):
        run._until_passed_on(earlier, 9000, 6)
    alone = run_of("flink", tmp_path / "alone")
    assert alone._until_passed_on(alone._start_earlier(ExitStack()), 9000, 6) == (9000, 6)
