"""The effective guarantee of an engine is read from its clients' logs, whatever the settings request."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engines import flink, flink_guarantee, kafka_streams
from testbed.engines.base import EngineError, Instance
from testbed.engines.effective import client_configs
from testbed.engines.real import RealEngineSettings
from testbed.engines.settings import Guarantee

PRODUCER = """\
1542 [main] INFO org.apache.kafka.common.config.AbstractConfig - ProducerConfig values:\x20
\tacks = {acks}
\tenable.idempotence = true
\ttransaction.timeout.ms = 30000
\ttransactional.id = {transactional_id}

"""
CONSUMER = """\
12:00:00.123 INFO  AbstractConfig - ConsumerConfig values:\x20
\tenable.auto.commit = {auto_commit}
\tgroup.id = {group}
\theartbeat.interval.ms = 1500
\tisolation.level = {isolation}
\tsession.timeout.ms = 6000

"""
STREAMS = """\
3 [main] INFO org.apache.kafka.streams.StreamsConfig - StreamsConfig values:\x20
\tcommit.interval.ms = 1000
\tprocessing.guarantee = {processing}

"""


def producer(acks: str = "-1", transactional_id: str = "app-1") -> str:
    return PRODUCER.format(acks=acks, transactional_id=transactional_id)


def consumer(isolation: str = "read_committed", auto_commit: str = "false", group: str = "app") -> str:
    return CONSUMER.format(isolation=isolation, auto_commit=auto_commit, group=group)


def streams(processing: str = "exactly_once_v2") -> str:
    return STREAMS.format(processing=processing)


def test_configurations_are_found_among_other_lines() -> None:
    configs = client_configs(f"starting\n{producer()}\tat java.lang.Thread\n{consumer()}\ndone\n\tlater = no option\n")
    assert [c.kind for c in configs] == ["ProducerConfig", "ConsumerConfig"]
    assert configs[0].options["transactional.id"] == "app-1"
    assert "later" not in configs[1].options


@pytest.mark.parametrize(
    ("log", "guarantee"),
    [
        (streams() + producer() + consumer(), "exactly_once"),
        (streams() + producer() + consumer() + consumer("read_uncommitted", group="null"), "exactly_once"),
        (streams("at_least_once") + producer(transactional_id="null") + consumer("read_uncommitted"), "at_least_once"),
        (streams() + producer() + consumer("read_uncommitted"), "at_least_once"),
        (streams() + producer() + producer(transactional_id="null") + consumer(), "at_least_once"),
        (streams("at_least_once") + producer("1", "null") + consumer(), "at_most_once"),
        (streams("at_least_once") + producer(transactional_id="null") + consumer(auto_commit="true"), "at_most_once"),
    ],
)
def test_the_guarantee_of_kafka_streams_is_that_of_its_clients(log: str, guarantee: Guarantee) -> None:
    effective = kafka_streams.effective_of(list(client_configs(log)))
    assert effective.guarantee == guarantee
    assert effective.commit_interval_seconds == 1.0
    assert (effective.session_timeout_seconds, effective.heartbeat_interval_seconds) == (6.0, 1.5)


@pytest.mark.parametrize(
    ("mode", "interval_ms", "log", "guarantee"),
    [
        ("exactly_once", 1000, producer() + consumer(), "exactly_once"),
        ("exactly_once", 1000, producer(transactional_id="null") + consumer(), "at_least_once"),
        ("at_least_once", 1000, producer() + consumer(), "at_least_once"),
        ("exactly_once", 1000, producer() + consumer("read_uncommitted"), "at_least_once"),
        ("exactly_once", (1 << 63) - 1, producer() + consumer(), "at_most_once"),
        ("exactly_once", 1000, producer("0", "null") + consumer(), "at_most_once"),
    ],
)
def test_the_guarantee_of_flink_is_that_of_checkpoints_and_clients(
    mode: str, interval_ms: int, log: str, guarantee: Guarantee
) -> None:
    effective = flink_guarantee.effective_of(mode, interval_ms, client_configs(log))
    assert effective.guarantee == guarantee


@pytest.mark.parametrize(
    ("cluster", "session", "heartbeat"),
    [
        ({"heartbeat.timeout": "6000", "heartbeat.interval": "1500"}, 6.0, 1.5),
        ({"heartbeat.timeout": "50 s", "heartbeat.interval": "500ms"}, 50.0, 0.5),
        ({"heartbeat.timeout": "1 min", "rest.port": "8081"}, 60.0, None),
        ({"heartbeat.timeout": "soon"}, None, None),
        (None, None, None),
    ],
)
def test_flinks_heartbeats_are_those_of_its_jobmanager_and_not_of_a_kafka_client(
    cluster: dict[str, str] | None, session: float | None, heartbeat: float | None
) -> None:
    clients = client_configs(producer() + consumer())
    effective = flink_guarantee.effective_of("exactly_once", 1000, clients, cluster)
    assert (effective.session_timeout_seconds, effective.heartbeat_interval_seconds) == (session, heartbeat)
    assert (effective.transaction_timeout_seconds, effective.checkpoint_mode) == (30.0, "exactly_once")


def test_the_configuration_of_flink_is_read_from_its_jobmanager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = flink.FlinkEngine(RealEngineSettings(bootstrap_servers="127.0.0.1:1"), tmp_path)
    options = {"heartbeat.interval": "1500", "heartbeat.timeout": "6000"}
    answers = {
        f"/jobs/{engine._job_id}/checkpoints/config": {"mode": "exactly_once", "interval": 1000},
        "/jobmanager/config": [{"key": key, "value": value} for key, value in options.items()],
    }
    monkeypatch.setattr(engine, "_rest", answers.__getitem__)
    (tmp_path / "flink-0.log").write_text(producer() + consumer(), encoding="utf-8")
    worker = Instance(0, 1, True, tmp_path / "flink-0.log")
    monkeypatch.setattr(flink.FlinkEngine, "instances", (worker,))
    effective = engine.effective()
    assert (effective.session_timeout_seconds, effective.heartbeat_interval_seconds) == (6.0, 1.5)


def test_flinks_counters_are_of_the_chains_the_taskmanagers_and_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = flink.FlinkEngine(RealEngineSettings(bootstrap_servers="127.0.0.1:1"), tmp_path)
    job = f"/jobs/{engine._job_id}"
    managers = {"taskmanager-0-2": "RUNNING", "taskmanager-1-1": "RUNNING", "(unassigned)": "SCHEDULED"}

    def records(read: int, written: int) -> dict[str, int]:
        return {"read-records": read, "write-records": written}

    answers = {
        job: {"vertices": [{"id": name, "name": name, "metrics": records(9, 5)} for name in ("source", "window")]},
        f"{job}/checkpoints": {
            "latest": {"completed": {"end_to_end_duration": 30, "state_size": 700}}, "counts": {"completed": 4}
        },
        **{
            f"{job}/vertices/{name}": {"subtasks": [
                {"taskmanager-id": manager, "status": status, "metrics": records(read + place, 1)}
                for place, (manager, status) in enumerate(managers.items())
            ]}
            for name, read in (("source", 0), ("window", 40))
        },
    }  # fmt: skip
    monkeypatch.setattr(engine, "_rest", answers.__getitem__)
    assert engine.counters() == {
        "source": records(9, 5), "window": records(9, 5), "worker-0": records(40, 2), "worker-1": records(42, 2),
        "job": {"checkpoints-completed": 4, "last-checkpoint-ms": 30, "last-checkpoint-bytes": 700,
                "running-tasks": 4},
    }  # fmt: skip


def test_only_a_guarantee_weaker_than_declared_is_a_finding() -> None:
    clients = client_configs(producer(transactional_id="null") + consumer())
    effective = flink_guarantee.effective_of("exactly_once", 1000, clients)
    assert effective.mismatch("at_least_once") is None
    assert effective.mismatch("exactly_once") == (
        "flink is declared exactly-once but runs at-least-once: checkpoints exactly_once every 1000 ms; "
        "transactional.id not set in the sinks' producers; isolation.level read_committed in the source; acks all."
    )


def test_nothing_is_claimed_of_an_engine_that_has_logged_nothing() -> None:
    with pytest.raises(EngineError):
        kafka_streams.effective_of(list(client_configs(streams() + consumer())))
    with pytest.raises(EngineError):
        flink_guarantee.effective_of("exactly_once", 1000, client_configs(producer()))
