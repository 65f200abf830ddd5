"""Settings of the real engines: timeout profiles, refusals, and the contents of the engines' own files."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from generator import config as generator_config
from generator.workloads.kinds import named
from testbed.demo.files import engine_settings, real_settings, topics, write_load, write_sidecar
from testbed.demo.options import DemoRefused, plan_of
from testbed.engines.flink import FlinkEngine
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import LOCAL, PROFILES, EngineRefused, RealEngineSettings, Timeouts, timeouts
from testbed.engines.registry import REGISTRY, make_engine
from testbed.engines.spark import SparkEngine
from testbed.engines.storm import StormEngine
from validator.config.load import load


def settings(**more: Any) -> RealEngineSettings:
    return RealEngineSettings(bootstrap_servers="127.0.0.1:1", **more)


def test_pgvals_profile_holds_the_values_of_its_code() -> None:
    flink, streams = timeouts("pgval", "flink"), timeouts("pgval", "kafka_streams")
    assert (flink.commit_interval_seconds, flink.transaction_timeout_seconds) == (5, 30)
    assert (flink.session_timeout_seconds, flink.heartbeat_interval_seconds) == (3, 1)
    assert (streams.commit_interval_seconds, streams.session_timeout_seconds) == (1, 3)


@pytest.mark.parametrize("profile", PROFILES)
def test_in_each_profile_several_heartbeats_fit_into_a_session(profile: str) -> None:
    for times in PROFILES[profile].values():
        assert times.session_timeout_seconds >= 3 * times.heartbeat_interval_seconds


def test_an_unknown_profile_or_engine_is_refused() -> None:
    with pytest.raises(EngineRefused, match="no profile papers"):
        timeouts("papers", "flink")
    with pytest.raises(EngineRefused, match=r"ospbench .* storm; .* flink, kafka_streams, spark"):
        timeouts("ospbench", "storm")
    with pytest.raises(EngineRefused, match="no engine samza"):
        make_engine("samza", settings(), Path())


def test_the_page_of_engines_has_the_times_of_all_profiles() -> None:
    page = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")
    documented: dict[tuple[str, str], list[float]] = {}
    profile = ""
    for line in page[page.index("| profile | engine |") :].split("\n\n")[0].splitlines()[2:]:
        named, engine, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        profile = named.strip("`") or profile
        numbers = re.findall(r"\d+(?:\.\d+)?", " ".join(cells))
        documented[profile, engine.lower().replace(" ", "_")] = [float(number) for number in numbers]
    assert documented.pop(("local", "all")) == seconds_of(LOCAL)
    assert documented.pop(("ospbench", "spark")) == [0]  # the other timeouts do not apply to it
    storm = seconds_of(PROFILES["pgval"]["storm"])
    assert documented.pop(("pgval", "storm")) == [storm[0], *storm[2:], 124, 350]  # no transactions
    undocumented = {(profile, engine) for profile, engines in PROFILES.items() for engine in engines} - {*documented}
    assert undocumented == {("ospbench", "spark"), ("pgval", "storm")}
    for (profile, engine), times in documented.items():
        assert times == seconds_of(timeouts(profile, engine)), (profile, engine)


def seconds_of(times: Timeouts) -> list[float]:
    return [times.commit_interval_seconds, times.transaction_timeout_seconds, times.session_timeout_seconds,
            times.heartbeat_interval_seconds]  # fmt: skip


@pytest.mark.parametrize("parallelism", [0, 6])
def test_parallelism_is_one_to_five(parallelism: int) -> None:
    with pytest.raises(ValidationError):
        settings(parallelism=parallelism)


def test_settings_that_an_engine_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match=r"flink cannot .* at_most_once"):
        FlinkEngine(settings(guarantee="at_most_once"), tmp_path)
    with pytest.raises(EngineRefused, match="needs another instance; raise parallelism"):
        KafkaStreamsEngine(settings(standby=1), tmp_path)
    with pytest.raises(EngineRefused, match="begin with job"):
        KafkaStreamsEngine(settings(options={"job.output": "elsewhere"}), tmp_path)
    with pytest.raises(EngineRefused, match="flink has no grace period in sst; leave grace_ms out"):
        FlinkEngine(settings(grace_ms=0), tmp_path)
    for workload in ("mst", "wordcount", "session_window", "running_aggregate"):
        with pytest.raises(EngineRefused, match=rf"kafka_streams has no .*{workload}"):
            KafkaStreamsEngine(settings(grace_ms=0, workload=workload), tmp_path)
    with pytest.raises(ValidationError, match="suppress waits for the end of a grace period; set grace_ms"):
        settings(suppress=True)


def test_an_engine_gets_its_own_options_instead_of_the_test_beds(tmp_path: Path) -> None:
    FlinkEngine(settings(options={"restart-strategy.type": "none", "pipeline.object-reuse": "true"}), tmp_path)
    written = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (written["restart-strategy.type"], written["pipeline.object-reuse"]) == ("none", "true")
    streams = KafkaStreamsEngine(settings(parallelism=2, standby=1, options={"num.stream.threads": "2"}), tmp_path)
    options = streams._options()
    assert (options["num.stream.threads"], options["num.standby.replicas"]) == ("2", "1")


@pytest.mark.parametrize("suppress", [True, False])
def test_a_grace_period_reaches_the_job_of_kafka_streams(tmp_path: Path, *, suppress: bool) -> None:
    options = KafkaStreamsEngine(settings(grace_ms=1500, suppress=suppress), tmp_path)._options()
    assert (options["job.grace.ms"], options["job.suppress"]) == ("1500", str(suppress).lower())
    assert "job.grace.ms" not in KafkaStreamsEngine(settings(), tmp_path)._options()


def test_all_engines_with_windows_join() -> None:
    joining = [name for name, entry in REGISTRY.items() if "mst" in entry.workloads]
    assert set(REGISTRY) - set(joining) == {"spark_dstreams"}
    assert {plan(name, "mst").workload for name in joining} == {"mst"}


def test_an_engine_refuses_a_workload_that_its_job_does_not_compute(tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match=r"storm .* statistics; use sst or mst"):
        StormEngine(settings(workload="statistics", guarantee="at_least_once"), tmp_path)
    with pytest.raises(DemoRefused, match=r"--engine storm .* statistics; .* flink .* kafka_s"):
        plan("storm", "statistics")
    with pytest.raises(DemoRefused, match=r"--workload join: .* use sst, mst"):
        plan("flink", "join")


def test_a_join_has_two_inputs_and_a_late_topic_for_each(tmp_path: Path) -> None:
    FlinkEngine(settings(workload="mst", update_input="news", late_updates="late-news"), tmp_path)
    written = (tmp_path / "job.properties").read_text()
    assert "job.inputs=click,news\n" in written
    assert "job.late=lateOutput,late-news\n" in written
    assert "job.join=inner\n" in written


def test_a_left_join_reaches_the_engines_and_needs_two_inputs(tmp_path: Path) -> None:
    left = settings(workload="mst", join="left", guarantee="at_least_once")
    FlinkEngine(left, tmp_path)
    assert "job.join=left\n" in (tmp_path / "job.properties").read_text()
    assert KafkaStreamsEngine(left, tmp_path)._options()["job.join"] == "left"
    for engine in (SparkEngine, StormEngine):  # their jobs read the settings file directly
        engine(left, tmp_path)
        assert '"join": "left"' in (tmp_path / f"{engine.name}.json").read_text()
    with pytest.raises(ValidationError, match=r"join left .* sst; use mst"):
        settings(join="left")
    with pytest.raises(ValidationError, match="nexmark_q20 joins by interval, which needs join inner"):
        settings(workload="nexmark_q20", join="left")


@pytest.mark.parametrize("engine", ["reference:exactly_once", "flink", "storm", "spark"])
def test_the_demos_files_of_a_join_are_consistent(engine: str, tmp_path: Path) -> None:
    joins = plan(engine, "mst")
    config = load(write_sidecar("127.0.0.1:1", joins, tmp_path), environment={})
    generated = generator_config.load(write_load(joins, "127.0.0.1:1", tmp_path))
    made = real_settings(joins, "127.0.0.1:1") if joins.is_real else engine_settings(joins, "127.0.0.1:1", tmp_path)
    assert tuple(read.topic for read in config.inputs) == made.inputs == (generated.topic, generated.update_topic)
    unused = [made.late, made.late_updates] if engine == "spark" else []
    assert [late.topic for late in config.late] + unused == [made.late, made.late_updates]
    assert {topic for _, topic in config.topics_by_place()} | set(unused) == topics(joins).keys()
    assert config.oracle.kind == "windowed_join"


@pytest.mark.parametrize("engine", REGISTRY)
def test_the_sidecar_accepts_the_demos_file_of_every_workload_of_an_engine(engine: str, tmp_path: Path) -> None:
    for workload in REGISTRY[engine].workloads:
        its = plan(engine, workload)
        config = load(write_sidecar("127.0.0.1:1", its, tmp_path), environment={})
        made = real_settings(its, "127.0.0.1:1")
        assert (made.inputs, made.output) == (tuple(read.topic for read in config.inputs), config.outputs[0].topic)
        drops = engine == "spark" and config.oracle.kind in (
            "tumbling_window", "sliding_window", "distinct", "windowed_join"
        )  # fmt: skip
        assert config.timing.late_policy == ("drop" if drops else "report"), workload
        restates = config.outputs[0].emission == "cumulative"
        assert restates == (
            config.oracle.kind in ("running_aggregate", "rule_match")
            and (engine == "spark" or bool(named(workload).aggregates))
        )


def test_flinks_cluster_is_workers_then_standby_then_jobmanager(tmp_path: Path) -> None:
    engine = FlinkEngine(settings(parallelism=2, standby=1, timeouts=timeouts("pgval", "flink")), tmp_path)
    assert [i.role for i in engine.instances] == ["worker", "worker", "standby", "jobmanager"]
    assert engine.instances[engine.jobmanager].role == "jobmanager"
    options = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert options["parallelism.default"] == 2
    assert options["execution.checkpointing.interval"] == "5000ms"
    assert (options["heartbeat.interval"], options["heartbeat.timeout"]) == (1000, 3000)
    assert "job.transaction.timeout.ms=30000\n" in (tmp_path / "job.properties").read_text()


def test_flink_with_high_availability_has_a_second_jobmanager_and_zookeeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlinkEngine, "class_path", classmethod(lambda _: []))  # nothing is downloaded
    engine = FlinkEngine(settings(options={"high-availability.type": "zookeeper"}, group="clicks"), tmp_path)
    assert [i.role for i in engine.instances] == ["worker", "jobmanager", "jobmanager", "zookeeper"]
    options = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert (options["high-availability.type"], options["high-availability.cluster-id"]) == ("zookeeper", "clicks")
    assert options["high-availability.zookeeper.client.session-timeout"] == "6000ms"
    first, second, zookeeper = ([str(part) for part in engine._command(number)] for number in (1, 2, 3))
    rest_ports = [next(part for part in command if part.startswith("rest.port=")) for command in (first, second)]
    assert rest_ports[0] != rest_ports[1]
    assert zookeeper[-2].endswith(".zookeeper.server.ZooKeeperServerMain")
    written = Path(zookeeper[-1]).read_text()
    assert f"clientPort={options['high-availability.zookeeper.quorum'].partition(':')[2]}\n" in written
    with pytest.raises(EngineRefused, match=r"no flink with high-availability.type kubernetes; use NONE or zookeeper"):
        FlinkEngine(settings(options={"high-availability.type": "kubernetes"}), tmp_path)


def test_the_leading_jobmanager_is_the_live_one_that_has_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FlinkEngine(settings(options={"high-availability.type": "zookeeper"}), tmp_path)
    assert engine.leader == engine.jobmanager == 1
    granted, revoked = "Runner was granted leadership with leader id 7\n", "Runner was revoked leadership\n"

    def given(alive: tuple[bool, bool], *logs: str) -> int:
        for number, log in enumerate(logs, start=1):
            (tmp_path / f"flink-{number}.log").write_text(log)
        found = [replace(one, alive=one.number in (1, 2) and alive[one.number - 1]) for one in engine.instances]
        with monkeypatch.context() as patch:
            patch.setattr(FlinkEngine, "instances", found)
            return engine.leader

    assert given((True, True), granted, "") == 1
    assert given((True, True), granted + revoked, granted) == 2
    assert given((False, True), granted, granted) == 2
    assert given((True, True), revoked + granted, granted + revoked) == 1


def plan(engine: str, workload: str | None = None) -> Any:
    unsaid = dict.fromkeys(("fault", "faults", "plan", "faster", "seconds"))
    return plan_of(Namespace(engine=engine, workload=workload, seed=1, open=False, **unsaid))


@pytest.mark.parametrize("engine", ["flink", "kafka_streams"])
def test_the_demo_uses_the_strongest_guarantee_of_an_engine_by_default(engine: str) -> None:
    assert (plan(engine).guarantee, plan(engine).fault) == ("exactly_once", "kill")
    assert plan(f"{engine}:at_least_once").guarantee == "at_least_once"
    with pytest.raises(DemoRefused, match=f"{engine}:at_most_once is not supported"):
        plan(f"{engine}:at_most_once")


def test_the_parameters_of_the_demos_workload_reach_load_engine_and_sidecar(tmp_path: Path) -> None:
    chosen = plan("kafka_streams", "shufflebench:rules=200,selectivity=0.7")
    assert "shufflebench:rules=200,selectivity=0.7" in chosen.title
    job = real_settings(chosen, "b:1")
    assert (job.workload, job.parameters) == ("shufflebench", {"rules": 200, "selectivity": 0.7})
    assert generator_config.load(write_load(chosen, "b:1", tmp_path)).workload == job.configured
    assert yaml.safe_load(write_sidecar("b:1", chosen, tmp_path).read_text())["oracle"]["rules"] == 200
    assert plan("reference", "shufflebench:rules=20000").workload == "shufflebench"
    for text, sentence in (
        ("shuffelbench", "there is no workload shuffelbench; did you mean shufflebench."),
        ("shufflebench:rulez=2", "shufflebench has no parameter rulez; did you mean rules."),
        ("shufflebench:rules", "rules is not a parameter; write NAME=VALUE"),
        ("shufflebench:rules=few", "rules: Input should be a valid integer"),
    ):
        with pytest.raises(DemoRefused, match=f"^demo: --workload {text}: {sentence}"):
            plan("reference", text)


def test_a_restarted_jobmanager_continues_from_the_newest_snapshot(tmp_path: Path) -> None:
    engine = FlinkEngine(settings(), tmp_path)
    assert engine._latest_snapshot() is None
    for age, name in enumerate(("checkpoints/job/chk-9", "savepoints/savepoint-1", "checkpoints/job/chk-10")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "_metadata").touch()
        os.utime(tmp_path / name / "_metadata", (age, age))
    (tmp_path / "checkpoints/job/chk-11").mkdir()  # never completed
    assert engine._latest_snapshot() == tmp_path / "checkpoints/job/chk-10"
