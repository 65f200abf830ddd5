"""An absent result while the pipeline may still produce it: `--once` beside a running pipeline, and an engine with
unread input."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts, verdicts
from validator.stream import batch

pytestmark = pytest.mark.timeout(900)

PATIENT = ("timing.overdue_after=10m", "timing.missing_after=20m")
"""Long enough that time decides nothing: only the end of the run does."""


def during_the_run(monkeypatch: pytest.MonkeyPatch, write: Callable[[], None]) -> None:
    """Let ``write`` append to the topics once, during the next run's reading."""
    todo = [write]

    def reach(name: str) -> None:
        if name == "after_facts" and todo:
            todo.pop()()

    monkeypatch.setattr(batch, "reach", reach)


@pytest.mark.full
def test_once_beside_a_running_pipeline_decides_only_by_elapsed_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 11), click(4, 21))
    pipeline.answers(answer([1, 2]))

    during_the_run(monkeypatch, lambda: pipeline.clicks(click(5, 22)))
    run = pipeline.once(*PATIENT)
    assert run.counts() == {"expected": 4, "processed": 2, "pending": 2}
    assert (run.status, run.verdicts) == (3, ("unknown",) * 3)
    assert run.report["verdicts_over"]["1h"]["exactly_once"] == "unknown"
    [reason] = run.report["reasons"]
    assert f"(the end of {pipeline.input}-0 moved from offset 4 to 5)" in reason
    assert all(option in reason for option in ("--leave-open", "--once", "--at-rest"))

    # The engine answers what it has read; --leave-open accepts that.
    during_the_run(monkeypatch, lambda: pipeline.answers(answer([3], 1)))
    run = pipeline.once(*PATIENT, leave_open=True)
    assert (run.counts(), run.status) == ({"expected": 5, "processed": 2, "pending": 3}, 0)

    # A confirmed violation fails the run in this case too.
    pipeline.answers(answer([1]))
    during_the_run(monkeypatch, lambda: pipeline.answers(answer([4], 2)))
    run = pipeline.once(*PATIENT)
    assert run.counts() == {"expected": 5, "processed": 3, "pending": 2, "duplicate": 1}
    assert (run.status, run.verdicts) == (1, ("fail", "unknown", "fail"))

    # When the pipeline is at rest, the next run continues and closes.
    monkeypatch.undo()
    run = pipeline.once(*PATIENT)
    assert run.counts() == {"expected": 5, "processed": 4, "missing": 1, "duplicate": 1}
    assert run.verdicts == ("fail",) * 3
    assert run.report["reasons"][0].startswith("1 expected")


def test_a_pipeline_with_an_open_transaction_is_not_at_rest_unless_declared(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    producer = pipeline.transactional()
    producer.begin_transaction()
    producer.produce(pipeline.input, click(3, 21), partition=0)
    assert producer.flush(30) == 0

    run = pipeline.once(*PATIENT)
    assert (run.counts(), run.status) == ({"expected": 2, "processed": 1, "pending": 1}, 3)
    assert f" {pipeline.input}-0 from offset 2 on)" in run.report["reasons"][0]
    run = pipeline.once(*PATIENT, at_rest=True)
    assert (run.counts(), run.status) == ({"expected": 2, "processed": 1, "missing": 1}, 1)
    producer.abort_transaction(30)


@pytest.mark.full
def test_late_input_not_consumed_by_a_dead_engine_is_neither_dropped_nor_a_pass(pipeline: Pipeline) -> None:
    drop = ("timing.late_policy=drop", f"engine.consumer_group={pipeline.name}")
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11), click(3, 21), click(4, 2))
    pipeline.answers(answer([1]), answer([2], 1), answer([3], 2))
    pipeline.commit_group(pipeline.name, pipeline.input, 3)
    with pipeline.live(*drop) as live:
        behind = live.until(lambda r: r["unconsumed_overdue"]["contributions"] == 1)
        assert counts(behind) == {"expected": 4, "processed": 3, "unconsumed": 1}
        assert verdicts(behind) == ("pass", "unknown", "unknown")
    run = pipeline.once(*drop, *PATIENT, state="once")
    assert run.counts() == {"expected": 4, "processed": 3, "unconsumed": 1}
    assert (run.status, run.verdicts) == (3, ("unknown",) * 3)
    pipeline.commit_group(pipeline.name, pipeline.input, 4)
    run = pipeline.once(*drop, *PATIENT, state="once")
    assert (run.counts(), run.status) == ({"expected": 4, "processed": 3, "dropped_late": 1}, 0)


@pytest.mark.full
def test_a_loss_is_retracted_by_its_answer_although_a_late_event_of_the_cell_is_not_consumed(
    pipeline: Pipeline,
) -> None:
    drop = ("timing.late_policy=drop", f"engine.consumer_group={pipeline.name}", *PATIENT)
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11), click(3, 21))
    pipeline.answers(answer([2], 1), answer([3], 2))
    pipeline.commit_group(pipeline.name, pipeline.input, 3)
    run = pipeline.once(*drop)
    assert (run.counts(), run.status) == ({"expected": 3, "processed": 2, "missing": 1}, 1)
    pipeline.clicks(click(4, 2))
    pipeline.answers(answer([1]))
    run = pipeline.once(*drop)
    assert (run.counts(), run.status) == ({"expected": 4, "processed": 3, "unconsumed": 1}, 3)
    assert (run.report["violations"]["confirmed"]["missing"], run.report["violations"]["retracted"]["missing"]) == (
        0,
        1,
    )
    pipeline.commit_group(pipeline.name, pipeline.input, 4)
    run = pipeline.once(*drop)
    assert (run.counts(), run.status) == ({"expected": 4, "processed": 3, "dropped_late": 1}, 0)


def test_input_not_consumed_by_a_dead_engine_is_neither_missing_nor_a_pass(pipeline: Pipeline) -> None:
    """In each state of the engine's group: no offset, an offset past the log's end, a valid offset, and a deleted
    group."""
    pipeline.create()
    group = f"engine.consumer_group={pipeline.name}"
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 11), click(4, 12), click(5, 21), click(6, 31))
    pipeline.answers(answer([1, 2]))
    with pipeline.live(group) as live:
        live.until_said(f"consumer group {pipeline.name} has committed no offset")
        behind = live.until(lambda r: r["unconsumed_overdue"]["contributions"] == 3)
        [reason] = behind["reasons"]
        since = behind["unconsumed_overdue"]["since"]
        assert re.match(f"3 events .* group {pipeline.name} .* 4s, since {since}; ", reason)
        assert "engine.consumer_group is misspelt" in reason
        assert verdicts(behind) == ("pass", "unknown", "unknown")
        assert behind["verdicts_over"]["24h"] == behind["verdicts"]
    assert live.status == 3
    pipeline.commit_group(pipeline.name, pipeline.input, 50)
    with pipeline.live(group) as live:
        report = live.batches()
        assert report["unconsumed_overdue"] == {"contributions": 3, "since": since}
        assert "the committed offset 50 of" in report["reasons"][0]
        assert "past the end of the log (6)" in report["reasons"][0]
        pipeline.commit_group(pipeline.name, pipeline.input, 3)
        report = live.until(lambda r: r["violations"]["confirmed"]["missing"] == 1)
        assert counts(report) == {"expected": 6, "processed": 2, "missing": 1, "unconsumed": 2, "pending": 1}
        assert verdicts(report) == ("pass", "fail", "fail")
        # A confirmed loss stays confirmed when the group's offsets expire. New events are unconsumed.
        pipeline.delete_group(pipeline.name)
        report = live.until(lambda r: r["contributions"]["unconsumed"] == 3)
        assert counts(report) == {"expected": 6, "processed": 2, "unconsumed": 3, "pending": 1}
        assert (report["violations"]["confirmed"]["missing"], report["violations"]["retracted"]["missing"]) == (1, 0)

    # While the engine has input to read, even a consumed event is not lost.
    pipeline.commit_group(pipeline.name, pipeline.input, 3)
    run = pipeline.once(group, *PATIENT, state="once")
    assert run.counts() == {"expected": 6, "processed": 2, "unconsumed": 3, "pending": 1}
    assert (run.status, run.verdicts) == (3, ("unknown",) * 3)
    [reason] = run.report["reasons"]
    assert re.match(f"3 events .* group {pipeline.name} at the end of the run", reason)
    run = pipeline.once(group, *PATIENT, state="left-open", leave_open=True)
    assert (run.counts("unconsumed", "pending", "missing"), run.status) == (
        {"unconsumed": 3, "pending": 1, "missing": 0},
        3,
    )
    pipeline.commit_group(pipeline.name, pipeline.input, 6)
    run = pipeline.once(group, *PATIENT, state="once")
    assert (run.counts(), run.status) == ({"expected": 6, "processed": 2, "missing": 4}, 1)
