"""The files of a run are valid for the generator and the sidecar, and name the same topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.config import load as load_generator
from generator.workloads.kinds import built, named
from testbed.engines.settings import EngineSettings
from testbed.run_files import SidecarFile, Topics, write_load
from validator.config.load import load


@pytest.mark.parametrize("suppress", [True, False])
def test_events_after_a_grace_period_are_tolerated_and_updates_replace_each_other(
    tmp_path: Path, *, suppress: bool
) -> None:
    file = SidecarFile(
        "run", "exactly_once", "kafka_streams", 1500, 1000, 9000, grace_ms=700, suppress=suppress
    )  # fmt: skip
    config = load(file.write("127.0.0.1:1", tmp_path))
    timing = config.timing
    assert (timing.late_policy, timing.lateness_scope, timing.allowed_lateness_us) == ("drop", "partition", 700_000)
    assert config.late == ()
    assert config.outputs[0].emission == ("final" if suppress else "cumulative")


@pytest.mark.parametrize(
    ("workload", "engine"), [*((workload, "reference") for workload in built()), ("sst", "spark"), ("mst", "spark")]
)
def test_sidecar_generator_and_engine_agree(tmp_path: Path, workload: str, engine: str) -> None:
    of, topics = named(workload), Topics(named(workload), "run-")
    path = SidecarFile(
        pipeline="run", guarantee="at_least_once", engine=engine, window_ms=1500, overdue_after_ms=1000,
        missing_after_ms=9000, topics=topics, measures={"moving_rate": "6s"},
    ).write("127.0.0.1:1", tmp_path)  # fmt: skip
    config = load(path)
    first = topics.stages[0]
    sent = load_generator(
        write_load("127.0.0.1:1", tmp_path, topics=topics, window_ms=1500, per_second=1000, seconds=10, seed=3)
    )
    assert sent.workload.kind == first.workload.kind
    assert sent.topics_of_streams == first.inputs
    assert [stage.output for stage in topics.stages[:-1]] == [stage.inputs[0] for stage in topics.stages[1:]]
    assert tuple(one.topic for one in config.inputs) == topics.inputs
    assert len(topics.inputs) == len(of.streams)
    late = () if engine == "spark" or not of.sets_aside else topics.late
    assert tuple(one.topic for one in config.late) == late
    of_stages = {name for stage in topics.stages for name in (*stage.inputs, *stage.late, stage.output)}
    assert {*of_stages, topics.faults} == topics.partitions.keys()
    assert [one.topic for one in config.outputs] == [topics.output]
    assert sent.window == 1500
    assert 0 < sent.events_per_event_second <= 1000 * 1.1
    settings = topics.engine("127.0.0.1:1", 1500)
    assert EngineSettings.model_validate_json(settings.model_dump_json()) == settings
    others = {
        "map": "passthrough",
        "filter": "passthrough",
        "windowed_join": "tumbling",
        "interval_join": "interval",
        "rule_match": "running_aggregate",
    }
    kind = config.oracle.kind
    assert settings.operator == others.get(kind, kind if kind == "running_aggregate" else kind.removesuffix("_window"))
    assert (settings.join is not None) == (kind.endswith("_join"))
    assert (settings.where is not None) == ("where" in of.oracle(topics.inputs, 1500))
    assert (settings.slide_ms or 0) * 1000 == getattr(config.oracle, "slide", 0)
    assert (settings.gap_ms or 0) * 1000 == getattr(config.oracle, "gap", 0)
    assert settings.emission == config.outputs[0].emission
    if engine == "reference":
        assert settings.max_disorder_ms * 1000 == config.timing.max_disorder_us
