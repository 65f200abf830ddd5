"""Brokers that go and come back: an outage is no end of a sidecar, and no loss."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.broker import EmbeddedBroker
from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts
from validator.stream import batch, brokers
from validator.stream.brokers import BrokersUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.mark.extended
def test_a_sidecar_outlives_an_outage_of_its_brokers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers are killed while a batch is held before it asks them anything."""
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
        with pipeline.live() as live:
            assert held.wait(120)
            broker.kill()
            go_on.set()
            said = live.until_said("; trying again")
            assert said.startswith(f"no answer from the Kafka brokers at {broker.bootstrap_servers} (")
            broker.restart()
            pipeline.clicks(click(3, 21))
            pipeline.answers(answer([2], 1))
            report = live.until(lambda r: r["contributions"]["processed"] == 2)
            assert counts(report) == {"expected": 3, "processed": 2, "pending": 1}
            assert report["violations"]["retracted"]["missing"] == 0
        assert live.status == 0


def test_brokers_that_never_answered_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: EmbeddedBroker
) -> None:
    monkeypatch.setattr(brokers, "_TIMEOUT_SECONDS", 0.5)
    pipeline = Pipeline("nobody", "127.0.0.1:9", tmp_path, broker, spark)
    with pytest.raises(BrokersUnreachable, match=r"at 127\.0\.0\.1:9 \(.+\): check kafka.bootstrap_servers$"):
        pipeline.once()


def test_topics_that_do_not_exist_are_none_and_are_not_made(
    topic_names: Callable[[str], str], tmp_path: Path, spark: SparkSession, broker: EmbeddedBroker
) -> None:
    there, absent = topic_names("there"), topic_names("absent")
    broker.create_topics({there: 2})
    asked = brokers.Brokers(Pipeline("topics", broker.bootstrap_servers, tmp_path, broker, spark).config())
    for _ in range(2):
        found = asked.topics([there, absent, "no topic's name", there])
        assert {name: topic.partitions for name, topic in found.items()} == {there: (0, 1)}
    assert asked.topics([]) == {}
