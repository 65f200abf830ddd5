"""The files of a run are valid for the generator and the sidecar, and name the same topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.config import load as load_generator
from testbed.engines.settings import WORKLOADS, EngineSettings, Workload
from testbed.run_files import SidecarFile, Topics, operator_of, write_load
from validator.config.load import load

TOPICS = Topics("c", "o", "l", "f", "u", "lu")


@pytest.mark.parametrize(
    ("workload", "engine"), [*((workload, "reference") for workload in WORKLOADS), ("sst", "spark"), ("mst", "spark")]
)
def test_sidecar_and_generator_agree(tmp_path: Path, workload: Workload, engine: str) -> None:
    path = SidecarFile(
        pipeline="run", guarantee="at_least_once", engine=engine, window_ms=1500, overdue_after_ms=1000,
        missing_after_ms=9000, topics=TOPICS, workload=workload, measures={"moving_rate": "6s"},
    ).write("127.0.0.1:1", tmp_path)  # fmt: skip
    config = load(path)
    sent = load_generator(
        write_load(
            "127.0.0.1:1", tmp_path, topics=TOPICS, window_ms=1500, per_second=1000, seconds=10, seed=3,
            workload=workload,
        )
    )  # fmt: skip
    inputs = ["c", "u"] if workload == "mst" else ["c"]
    assert [one.topic for one in config.inputs] == inputs
    assert inputs == ([sent.topic] if sent.workload == "sst" else [sent.topic, sent.update_topic])
    late = [] if engine == "spark" else ["l", "lu"] if workload == "mst" else ["l"]
    assert [one.topic for one in config.late] == late
    read = {*inputs, *(one.topic for one in config.outputs), *late, "f"}
    assert read <= set(TOPICS.partitions(workload))
    assert sent.window == 1500
    assert 0 < sent.events_per_event_second <= 1000 * 1.1
    settings = EngineSettings(
        bootstrap_servers="127.0.0.1:1", inputs=TOPICS.inputs(workload), window_ms=1500, **operator_of(workload, 1500)
    )
    named = {"sst": "tumbling_window", "mst": "windowed_join"}.get(workload, workload)
    assert config.oracle.kind == named
    assert settings.operator in (named, named.removesuffix("_window"), "tumbling")
    assert (settings.slide_ms or 0) * 1000 == getattr(config.oracle, "slide", 0)
    assert (settings.gap_ms or 0) * 1000 == getattr(config.oracle, "gap", 0)
    assert settings.emission == config.outputs[0].emission
    if engine == "reference":
        assert settings.max_disorder_ms * 1000 == config.timing.max_disorder_us
