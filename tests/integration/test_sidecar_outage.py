"""Broker outages: the sidecar survives them and does not confirm a loss because of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException

from testbed.broker import EmbeddedBroker
from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts
from validator.stream import batch, brokers, outage
from validator.stream.brokers import BrokersUnreachable
from validator.stream.outage import FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
MISSING_SECONDS = 30.0


def test_a_sidecar_outlives_an_outage_of_its_brokers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are killed while a batch is held before its broker requests."""
    monkeypatch.setattr(brokers, "_TIMEOUT_SECONDS", 2.0)
    held, go_on = threading.Event(), threading.Event()

    def reach(name: str) -> None:
        if name == "after_publishing" and not go_on.is_set():
            held.set()
            assert go_on.wait(120)

    monkeypatch.setattr(batch, "reach", reach)
    with EmbeddedBroker() as broker:
        pipeline = Pipeline("outage", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        pipeline.clicks(click(1, 1), click(2, 11))
        pipeline.answers(answer([1]))
        with pipeline.live("timing.blind_after=8s") as live:
            assert held.wait(120)
            broker.kill()
            go_on.set()
            said = live.until_said("; trying again")
            assert f" brokers at {broker.bootstrap_servers} (" in said
            report = live.until(lambda r: "nothing after it is verified" in "; ".join(r["reasons"]))
            assert report["outcome"] == "unknown"
            broker.restart()
            pipeline.clicks(click(3, 21))
            pipeline.answers(answer([2], 1))
            report = live.until(lambda r: r["contributions"]["processed"] == 2)
            assert counts(report) == {"expected": 3, "processed": 2, "pending": 1}
            assert report["violations"]["retracted"]["missing"] == 0
        assert live.status == 0


@pytest.mark.full
def test_results_due_in_an_outage_get_their_time_afterwards(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are killed for longer than `missing_after`. Later the sidecar is restarted, and then the engine
    answers one of two events. Only the loss of the other event is confirmed."""
    monkeypatch.setattr(brokers, "_TIMEOUT_SECONDS", 2.0)
    timing = ("timing.overdue_after=5s", f"timing.missing_after={MISSING_SECONDS:g}s")
    with EmbeddedBroker() as broker:
        pipeline = Pipeline("away", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        pipeline.clicks(click(1, 1), click(2, 2), click(3, 11))
        with pipeline.live(*timing) as live:
            live.until(lambda r: r["cells"]["closed"] == 1)
            broker.kill()
            away_since = time.monotonic()
            live.until_said("; trying again")
            live.ended.wait(MISSING_SECONDS + 5.0 - (time.monotonic() - away_since))
            broker.restart()
            since = time.monotonic()
            # One batch whose frontiers include the outage, and a second batch. Without the allowance for outages, the
            # loss is confirmed here.
            live.batches(2)
        assert live.status in (0, 3)
        with pipeline.live(*timing) as live:
            report = live.until(lambda r: r["contributions"]["overdue"] == 2)
            pipeline.answers(answer([1]))
            report = live.until(lambda r: r["contributions"]["processed"] == 1)
            assert time.monotonic() - since < MISSING_SECONDS, "this machine is too slow to show anything"
            assert report["violations"]["confirmed"]["missing"] == 0
            assert report["violations"]["retracted"]["missing"] == 0
            report = live.until(lambda r: r["violations"]["confirmed"]["missing"] == 1)
            assert report["violations"]["retracted"]["missing"] == 0
        assert live.status == 1
    assert not (pipeline.state() / FILE).exists()


@pytest.mark.full
def test_an_outage_in_which_no_request_fails_proves_no_loss(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are away for less time than Spark's client and the driver wait for an answer. The time limits of the
    watch are short, as is `missing_after`."""
    for name in ("_ASK_AFTER_SECONDS", "_SAY_AFTER_SECONDS"):
        monkeypatch.setattr(outage, name, 2.0)
    missing_seconds = 10.0
    timing = ("timing.overdue_after=2s", f"timing.missing_after={missing_seconds:g}s")
    with EmbeddedBroker() as broker:
        pipeline = Pipeline("short", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        pipeline.clicks(click(1, 1), click(2, 2), click(3, 11))
        with pipeline.live(*timing) as live:
            live.until(lambda r: r["cells"]["closed"] == 1)
            broker.kill()
            since = time.monotonic()
            live.until_said(" do not answer (last answer at ")
            live.ended.wait(missing_seconds + 2.0 - (time.monotonic() - since))
            broker.restart()
            pipeline.answers(answer([1]))
            report = live.until(lambda r: r["contributions"]["processed"] == 1)
            assert report["violations"]["confirmed"]["missing"] == 0
            report = live.until(lambda r: r["violations"]["confirmed"]["missing"] == 1)
            assert report["violations"]["retracted"]["missing"] == 0
            assert not [line for line in live.said if "trying again" in line or "the query restarts" in line]
        assert live.status == 1
    assert not (pipeline.state() / FILE).exists()


@pytest.mark.full
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_brokers_that_fall_silent_are_named(
    how: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's client waits for a minute before its query ends, and the driver makes no request meanwhile."""
    for name in ("_ASK_AFTER_SECONDS", "_SAY_AFTER_SECONDS"):
        monkeypatch.setattr(outage, name, 5.0)
    with EmbeddedBroker() as broker:
        pipeline = Pipeline("silent", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        pipeline.clicks(click(1, 1), click(2, 11))
        with pipeline.live() as live:
            live.batches(2)
            if how == "stopped":
                os.kill(broker.process.pid, signal.SIGSTOP)
            else:
                broker.kill()
            try:
                said = live.until_said(" do not answer (last answer at ", 30.0)
                assert said.startswith(f"the Kafka brokers at {broker.bootstrap_servers} ")
            finally:
                if how == "stopped":
                    os.kill(broker.process.pid, signal.SIGCONT)
                else:
                    broker.restart()
            live.until_said(f"the Kafka brokers at {broker.bootstrap_servers} answer again")
            live.batches(1)
            assert len([line for line in live.said if "do not answer" in line]) == 1


@pytest.mark.full
def test_brokers_that_never_answered_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: EmbeddedBroker
) -> None:
    monkeypatch.setattr(brokers, "_TIMEOUT_SECONDS", 0.5)
    pipeline = Pipeline("nobody", "127.0.0.1:9", tmp_path, broker, spark)
    with pytest.raises(BrokersUnreachable, match=r"at 127\.0\.0\.1:9 \(.+\): check kafka.bootstrap_servers$"):
        pipeline.once()


def test_absent_topics_are_not_created(
    topic_names: Callable[[str], str], tmp_path: Path, spark: SparkSession, broker: EmbeddedBroker
) -> None:
    there, absent = topic_names("there"), topic_names("absent")
    broker.create_topics({there: 2})
    asked = brokers.Brokers(Pipeline("topics", broker.bootstrap_servers, tmp_path, broker, spark).config())
    for _ in range(2):
        found = asked.topics([there, absent, "no topic's name", there])
        assert {name: topic.partitions for name, topic in found.items()} == {there: (0, 1)}
    assert asked.topics([]) == {}
    moved = asked._unreachable(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), f"topic {there}")
    assert str(moved).startswith(f"the Kafka brokers at {asked.servers} answered for topic {there} with an error: ")


def test_a_sidecar_whose_spark_has_stopped_gives_no_pass(pipeline: Pipeline, spark: SparkSession) -> None:
    """Time goes on without Spark, so only unread records show that nothing is verified."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    with pipeline.live("timing.blind_after=3s", "timing.missing_after=600s", "timing.overdue_after=600s") as live:
        live.until(lambda r: r["outcome"] == "pass", 60)
        jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        os.kill(jvm, signal.SIGSTOP)
        try:
            pipeline.answers(answer([1]))
            report = live.until(lambda r: r["outcome"] == "unknown", 60)
            assert [reason for reason in report["reasons"] if reason.startswith("no record was read since ")]
            assert set(report["verdicts_over"]["1h"].values()) == {"unknown"}
        finally:
            os.kill(jvm, signal.SIGCONT)
        report = live.until(lambda r: r["outcome"] == "fail", 60)
        assert counts(report)["duplicate"] == 1
        assert not [reason for reason in report["reasons"] if reason.startswith("no record was read since ")]
    assert live.status == 1
