"""A chaos day or demo that cannot run is refused before anything starts, in one sentence that names what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.backends import faketime
from faults.errors import FaultError, FaultRefused
from testbed import disk
from testbed.demo import preflight
from testbed.demo.options import DemoRefused
from testbed.engines.java_build import JavacNotFoundError
from tests.unit.demo_scenarios import LEADER, WITHOUT_DISK, WORKER, in_file, planned


@pytest.mark.parametrize(
    ("fault", "more", "sentence"),
    [
        ({"kind": "process_kill"}, {"targets": {}}, "the demo sets targets"),
        ({"kind": "container_kill", "target": "web"}, {}, "container_kill .* type container"),
        ({"kind": "process_kill", "target": "web"}, {}, "demo with reference .* target web; .* refer"),
        ({"kind": "process_kill", "target": {"pick": 5}}, {}, " 6 workers, .* 5 of reference"),
        ({"kind": "process_kill", "target": {"pick": "100%"}}, {}, "hit all replicas"),
        ({"kind": "clock_jump"}, {}, "clock_jump is not supported"),
    ],
)
def test_targets_that_the_demo_does_not_have_are_refused(
    tmp_path: Path, fault: dict[str, Any], more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FaultError, match=sentence) as refused:
        planned(faults=in_file(tmp_path, fault, **more))
    assert refused.value.exit_status == 2


def no_compiler() -> None:
    raise JavacNotFoundError("The Java at /java has no compiler (javac), which this engine needs.")


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ("flink", "JVM of flink. .*/java has no compiler"),
        ("reference", "which this host lacks"),
    ],
)
def test_a_clock_fault_without_the_library_is_refused_with_the_reason(
    engine: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faketime, "installed", lambda: None)
    monkeypatch.setattr(preflight, "find_javac", no_compiler)
    with pytest.raises(FaultRefused, match=sentence):
        planned(engine, fault="clock_skew")


FULL = {"kind": "disk_full", "target": "flink-disk", "for": "4s", "parameters": {"bytes": "1MiB", "reserve": 0}}


@pytest.mark.skipif(disk.why_not_here() is not None, reason=f"disks of their own: {disk.why_not_here()}")
@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ([{**FULL, "parameters": {"bytes": "1MiB"}}], "disk_full leaves 1073741824 bytes free, "),
        ([FULL, {"kind": "disk_slow", "target": "flink-disk", "parameters": {"bytes_per_second": "1MB"}}], "not both"),
        ([LEADER, {"kind": "net_reset", "target": "flink-link"}], "leaders need two brokers, .* reaches only one"),
    ],
)
def test_incompatible_faults_are_refused(faults: list[dict[str, Any]], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(FaultRefused, match=sentence):
        planned("flink", faults=in_file(tmp_path, *faults))


@pytest.mark.parametrize("kind", ["disk_full", "disk_slow"])
@pytest.mark.parametrize("engine", sorted(WITHOUT_DISK))
def test_a_disk_fault_of_an_engine_without_state_on_disk_is_refused(engine: str, kind: str) -> None:
    with pytest.raises(FaultRefused, match=rf"{engine}, .* on disk; take --engine .* storm\."):
        planned(engine, fault=kind)


def test_a_container_fault_of_the_demo_is_refused_with_a_process_fault_instead() -> None:
    with pytest.raises(FaultRefused, match="not in containers; use process_kill"):
        planned(fault="container_kill")


@pytest.mark.parametrize("engine", ["reference", "mutant", "kafka_streams"])
def test_a_master_fault_of_an_engine_without_master_is_refused(engine: str) -> None:
    with pytest.raises(FaultRefused, match=rf"{engine} has none, .* --engine flink, spark, spark_dstreams or st"):
        planned(engine, plan="ospbench-master")


@pytest.mark.parametrize(("fault", "least"), [("kill", 24), ("pause", 24), ("net_delay", 36)])
def test_a_demo_that_leaves_a_real_engine_no_control_phase_names_the_least(fault: str, least: int) -> None:
    with pytest.raises(DemoRefused, match=f"--seconds {least - 1} .* spark .* use {least} "):
        planned("spark", fault=fault, seconds=least - 1)
    assert planned("spark", fault=fault, seconds=least).seconds == least
    assert planned("spark", fault="none", seconds=10).seconds == 10


def test_an_unknown_fault_is_refused_with_the_command_that_lists_faults() -> None:
    with pytest.raises(FaultRefused, match=r"kill, pause, none .* `streamproof faults list` .*--faults .*--plan "):
        planned(fault="earthquake")
    with pytest.raises(FaultRefused, match=r"--fault net_loss is not supported: .*proxy"):
        planned(fault="net_loss")
    with pytest.raises(DemoRefused, match="--seconds 3 is too short"):
        planned(fault="net_delay", seconds=3)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"plan": "pgval-crash", "fault": "kill"}, "--fault cannot be combined"),
        ({"plan": "pgval-crash", "seconds": 30}, "--seconds cannot be combined"),
        ({"plan": "pgval-crash", "faults": "day.yaml"}, "excludes --plan and --faster"),
        ({"faster": 2.0}, "--faster shortens a plan"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DemoRefused, match=sentence):
        planned(**given)


@pytest.mark.parametrize(("engine", "pick", "hit", "most"), [("flink", 4, 5, 5), ("storm", "one", 2, 1)])
def test_a_group_that_leaves_no_worker_is_refused_with_the_required_number(
    engine: str, pick: int | str, hit: int, most: int, tmp_path: Path
) -> None:
    pause = {"kind": "process_pause", "target": {**WORKER, "pick": pick}}
    group = {"together": [pause, {"kind": "process_kill", "target": WORKER}], "for": "4s"}
    with pytest.raises(FaultRefused, match=f" {hit} workers .* {hit + 1} workers, .* {most} of {engine}"):
        planned(engine, faults=in_file(tmp_path, group))
