"""Topics that are deleted and recreated: the verdict is unknown for the records that the sidecar never read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.broker import EmbeddedBroker
from tests.integration.sidecar_fixtures import Pipeline, answer, aside_topic, click, counts
from tests.tiers import first_of
from validator.cli.main import main
from validator.stream import batch
from validator.stream.batch import BatchRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


def recreated(topic: str) -> str:
    """Return the report's sentence."""
    return f"topic {topic} was deleted and recreated: it is not known how many of its records were never read"


def test_an_output_recreated_before_the_first_commit_of_facts_proves_no_loss(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query ends at the new topic. Only the state that was committed earlier shows that there was another topic."""
    pipeline.create()
    pipeline.clicks(*[click(i, 10 * i + 1) for i in range(4)])
    pipeline.answers(*[answer([i], i) for i in range(3)])
    passed = iter(["batch_begun"])

    def reach(name: str) -> None:
        if name == "batch_begun" and next(passed, None):
            pipeline.broker.delete_topic(pipeline.output)
            pipeline.broker.create_topics({pipeline.output: 1})
            pipeline.answers(answer([2], 2))

    monkeypatch.setattr(batch, "reach", reach)
    run = pipeline.once()
    assert run.said[-1].endswith(f": topic {pipeline.output} was deleted and recreated")
    # A pipeline whose topics are recreated during the run is not at rest, so the end of this run decides nothing.
    assert run.counts("expected", "processed", "missing") == {"expected": 4, "processed": 1, "missing": 0}
    assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
    assert recreated(pipeline.output) in run.report["reasons"]
    again = pipeline.once()
    assert (again.counts(), again.status) == ({"expected": 4, "processed": 1, "overdue": 3}, 3)
    assert recreated(pipeline.output) in again.report["reasons"]


@pytest.mark.parametrize("again", first_of([True, False]), ids=["recreated", "deleted"])
def test_a_topic_that_disappears_after_the_last_batch_of_a_run_proves_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    pipeline.create()
    pipeline.clicks(*[click(i, 10 * i + 1) for i in range(4)])
    pipeline.answers(*[answer([i], i) for i in range(3)])
    conclude, todo = BatchRunner.conclude, [pipeline.output]

    def delete_first(runner: BatchRunner, *args: Any, **options: Any) -> None:
        if todo:
            pipeline.broker.delete_topic(topic := todo.pop())
            if again:
                pipeline.broker.create_topics({topic: 1})
        conclude(runner, *args, **options)

    monkeypatch.setattr(BatchRunner, "conclude", delete_first)
    run = pipeline.once()
    assert not todo
    assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
    assert not any(run.report["violations"]["confirmed"].values())
    assert any(f"topic {pipeline.output} " in reason for reason in run.report["reasons"]), run.report["reasons"]


@pytest.mark.full
@pytest.mark.parametrize("role", ["output", "late", "rejected"])
def test_the_records_of_a_topic_recreated_between_two_runs_are_unknown(pipeline: Pipeline, role: str) -> None:
    """A duplicate may have been appended after the last lookup. The new topic has one partition less, and event time
    goes on."""
    pipeline.broker.create_topics({pipeline.input: 1, pipeline.output: 2, pipeline.late: 2})
    topic = pipeline.output if role == "output" else pipeline.late
    settings = ("late=[]", aside_topic(role, topic)) if role == "rejected" else ()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    pipeline.answers(answer([2], 1), partition=1)
    junk = ["no JSON"] if role == "late" else []
    pipeline.put(pipeline.late, *junk)
    assert pipeline.once(*settings, leave_open=True).status == (3 if junk else 0)
    # The acknowledgement settles the old topic's record, although it is processed when the new topic exists.
    position = f"{pipeline.late}/0/0"
    ack = ["ack", str(pipeline.state()), "--position", position, "--reason", "a probe"]
    assert main(ack) == (0 if junk else 2)
    pipeline.broker.delete_topic(topic)
    pipeline.broker.create_topics({topic: 1})
    pipeline.put(pipeline.late, *junk)

    with pipeline.live(*settings) as live:
        report = live.until(lambda r: recreated(topic) in r["reasons"])
        assert (counts(report)["processed"], report["outcome"]) == (2, "unknown")
        # These events came after the recreation, so the result for window 2 is certainly missing.
        pipeline.clicks(click(3, 21), click(6, 22), click(7, 23), click(4, 31), click(5, 41))
        pipeline.answers(answer([4], 3))
        # Three: more than the two undecodable late records can account for.
        report = live.until(lambda r: r["violations"]["confirmed"]["missing"] == 3)
        assert report["late_records"]["undecodable"] == 2 * len(junk)
        assert any(reason.startswith("2 late records ") for reason in report["reasons"]) == bool(junk)
    again = pipeline.once(*settings, leave_open=True)
    assert recreated(topic) in again.report["reasons"]
    assert again.report["coverage"]["complete"] is False


@pytest.mark.full
def test_a_faults_topic_that_is_recreated_is_read_from_its_start_and_named(pipeline: Pipeline) -> None:
    """Without the expired records of faults, the cause of a violation is unknown."""
    pipeline.create()
    topic = f"{pipeline.name}-faults"
    pipeline.broker.create_topics({topic: 1})
    pipeline.put(topic, fault("one"), fault("two"))
    pipeline.clicks(click(1, 1))
    with pipeline.live(f"faults.topic={topic}") as live:
        report = live.until(lambda r: len(r["faults"]) == 2)
        assert recreated(topic) not in report["reasons"]
        pipeline.broker.delete_topic(topic)
        pipeline.broker.create_topics({topic: 1})
        pipeline.put(topic, fault("three"))
        live.until(lambda r: len(r["faults"]) == 3 and recreated(topic) in r["reasons"])
    pipeline.answers(answer([1]))
    again = pipeline.once(f"faults.topic={topic}")
    assert recreated(topic) in again.report["reasons"]
    assert (again.counts(), again.verdicts) == ({"expected": 1, "processed": 1}, ("unknown",) * 3)


@pytest.mark.full
@pytest.mark.parametrize("role", ["input", "output"])
def test_a_truncated_log_confirms_nothing(spark: SparkSession, tmp_path: Path, role: str) -> None:
    """Simulates an unclean leader election: the same topic, without the records that were read last."""
    with EmbeddedBroker(folder=tmp_path / "kafka") as broker:
        pipeline = Pipeline("cut", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        topic = {"input": pipeline.input, "output": pipeline.output}[role]
        pipeline.clicks(click(1, 1), click(2, 11))
        pipeline.answers(answer([1]), answer([2], 1))
        assert pipeline.once().status == 0
        broker.kill()
        for file in (tmp_path / "kafka" / "data" / f"{topic}-0").iterdir():
            if file.name != "partition.metadata":
                file.unlink()
        broker.restart()
        pipeline = Pipeline("cut", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.clicks(click(3, 21))
        pipeline.answers(answer([1]))

        run = pipeline.once()

        assert run.verdicts == ("unknown",) * 3, run.report["reasons"]
        assert run.report["violations"]["confirmed"] == dict.fromkeys(run.report["violations"]["confirmed"], 0)
        assert any(reason.startswith(f"the log of {topic}-0 was cut back ") for reason in run.report["reasons"])
        # The sidecar assumes that the input below its read offset holds the records that it has read.
        assert run.report["inputs"]["read"] == {"input": 2, "output": 3}[role]
        assert pipeline.once().report["reasons"] == run.report["reasons"]


def fault(name: str) -> str:
    """A record of the faults topic."""
    instant = {"state": "injected", "time": "2026-01-01T00:00:01Z"}
    return json.dumps({"id": name, "name": name, "kind": "process_kill", "target": "engine", **instant})
