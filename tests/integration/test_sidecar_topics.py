"""Topics that are created, full, deleted and truncated while a sidecar reads them."""

from __future__ import annotations

import json
import threading

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Report, answer, click, counts, set_aside
from validator.state.identity import StateMismatch
from validator.state.lock import StateLocked
from validator.stream import batch, generations
from validator.stream.sidecar import Sidecar

pytestmark = pytest.mark.timeout(900)


def test_a_sidecar_waits_for_topics_reads_new_partitions_and_is_alone(pipeline: Pipeline) -> None:
    with pipeline.live() as live:
        for topic in (pipeline.output, pipeline.late, pipeline.input):
            live.until_said(f"topic {topic} does not exist yet: waiting for it")
        report = live.until(lambda r: len(r["waiting_for"]) == 3)
        assert f"topic {pipeline.input} does not exist yet" in report["reasons"]
        with pytest.raises(StateLocked, match=f" {pipeline.state()}: "):
            Sidecar(pipeline.config(), say=lambda _: None, session=pipeline.spark).run()

        # The late topic is created after the others, when the query is already running.
        pipeline.broker.create_topics({pipeline.input: 1, pipeline.output: 1})
        pipeline.clicks(click(1, 1), click(2, 11))
        pipeline.answers(answer([1]))
        report = live.until(lambda r: counts(r) == {"expected": 2, "processed": 1, "pending": 1})
        assert report["waiting_for"] == [pipeline.late]
        assert report["reasons"] == [f"topic {pipeline.late} does not exist yet"]
        pipeline.broker.create_topics({pipeline.late: 1})
        live.until(lambda r: r["waiting_for"] == [] and r["reasons"] == [])

        pipeline.add_partitions(pipeline.input, 2)
        pipeline.add_partitions(pipeline.output, 2)
        pipeline.clicks(click(3, 12), click(4, 22), partition=1)
        pipeline.clicks(click(5, 23))
        pipeline.answers(answer([2, 3], 1), partition=1)
        report = live.until(lambda r: r["contributions"]["processed"] == 3)
        assert counts(report) == {"expected": 5, "processed": 3, "pending": 2}
        assert len(report["coverage"]["partitions"]) == 5
        assert report["coverage"]["complete"]
        live.until(lambda r: r["outcome"] == "pass")
    assert live.status == 0


@pytest.mark.full
def test_a_recreated_topic_is_read_from_its_start_and_its_old_records_are_expired(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    with pipeline.live() as live:
        live.until(lambda r: counts(r) == {"expected": 2, "processed": 1, "pending": 1})
        pipeline.broker.delete_topic(pipeline.output)
        live.until_said(f"topic {pipeline.output} does not exist: waiting for it")
        pipeline.broker.create_topics({pipeline.output: 1})
        # More records than the old topic had: only the topic id shows that it is another topic.
        pipeline.clicks(click(3, 21), click(4, 31))
        pipeline.answers(answer([2], 1), answer([3], 2))
        report = live.until(lambda r: r["contributions"]["processed"] == 3)
        assert counts(report) == {"expected": 4, "processed": 3, "pending": 1}
        assert report["results"]["read"] == 3
        assert report["violations"]["confirmed"]["duplicate"] == 0


@pytest.mark.full
def test_a_recreated_input_may_explain_later_excess(pipeline: Pipeline) -> None:
    """It is unknown how many deleted records were never read. Violations confirmed earlier cannot depend on them."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1, 1]))
    with pipeline.live() as live:
        live.until(lambda r: r["violations"]["confirmed"]["duplicate"] == 1)
        pipeline.broker.delete_topic(pipeline.input)
        live.until_said(f"topic {pipeline.input} does not exist: waiting for it")
        pipeline.broker.create_topics({pipeline.input: 1})
        pipeline.clicks(click(3, 21), click(4, 31))
        pipeline.answers(answer([2, 2], 1), answer([3, 9], 2))
        found = live.until(lambda r: r["contributions"]["unknown_id"] == 1 and r["contributions"]["duplicate"] == 2)
        confirmed, suspected = found["violations"]["confirmed"], found["violations"]["suspected"]
        assert (confirmed["duplicate"], confirmed["unknown_id"]) == (1, 0)
        assert (suspected["duplicate"], suspected["unknown_id"]) == (1, 1)
    again = pipeline.once(leave_open=True).report
    assert again["violations"]["confirmed"]["duplicate"] == again["violations"]["suspected"]["duplicate"] == 1
    unknown = "was deleted and recreated: it is not known how many of its records were never read"
    assert f"topic {pipeline.input} {unknown}" in again["reasons"]


def test_retention_that_overtakes_a_running_reader_makes_the_verdict_unknown(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader is held after a commit until retention has passed it. It must then detect the gap and continue."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2))
    pipeline.answers(answer([1, 2]))
    has_read, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def reach(name: str) -> None:
        if name == "after_publishing" and has_read.is_set() and not go_on.is_set():
            held.set()
            assert go_on.wait(60)

    monkeypatch.setattr(batch, "reach", reach)
    with pipeline.live() as live:
        live.until(lambda r: r["contributions"]["processed"] == 2)
        has_read.set()
        assert held.wait(60)
        pipeline.clicks(*[click(i, 3) for i in range(3, 8)], click(8, 14))
        pipeline.delete_records(pipeline.input, 5)
        pipeline.answers(answer(range(3, 8), 0))
        go_on.set()
        report = live.until(lambda r: r["inputs"]["expired"] == 3 and r["contributions"]["expected"] == 5)
        live.until_said("the query restarts after the committed batches")
        # No input explains 3, 4 and 5 any more: the expired records may have been these events.
        report = live.until(lambda r: r["contributions"]["unknown_id"] == 3)
        assert counts(report) == {"expected": 5, "processed": 4, "unknown_id": 3, "pending": 1}
        assert report["violations"]["suspected"]["unknown_id"] == 3
        assert report["outcome"] == "unknown"
        assert any(reason.startswith(f"3 records of {pipeline.input}-0 expired ") for reason in report["reasons"])
        [book] = [p for p in report["coverage"]["partitions"] if p["topic"] == pipeline.input]
        assert (book["records"], book["expired"], book["invisible"], book["next_offset"]) == (5, 3, 0, 8)
        assert not report["coverage"]["complete"]
    assert live.status == 3


@pytest.mark.full
def test_output_that_expired_between_two_runs_proves_no_loss(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    assert pipeline.once().status == 0
    pipeline.clicks(click(2, 11))
    pipeline.answers(answer([2], 1), answer([], 1))
    pipeline.delete_records(pipeline.output, 3)

    run = pipeline.once()

    assert run.counts() == {"expected": 2, "processed": 1, "overdue": 1}
    assert run.verdicts == ("unknown",) * 3
    expired, answered = run.report["reasons"]
    assert expired.startswith(f"2 records of {pipeline.output}-0 expired ")
    assert answered.startswith("1 contribution may have been answered ")
    assert run.status == 3


@pytest.mark.full
def test_an_absent_topic_confirms_neither_loss_nor_unknown_id(pipeline: Pipeline) -> None:
    """A misspelt topic in the configuration must not count against the engine."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2))
    pipeline.answers(answer([1, 2]))

    misspelt = pipeline.once("outputs.0.topic=ouput", state="output")
    assert misspelt.counts() == {"expected": 2, "missing": 2}
    assert misspelt.report["violations"]["suspected"]["missing"] == 2
    assert misspelt.report["violations"]["confirmed"]["missing"] == 0
    assert misspelt.report["reasons"] == ["topic ouput does not exist yet"]
    assert (misspelt.verdicts, misspelt.status) == (("unknown",) * 3, 3)

    misspelt = pipeline.once("inputs.0.topic=clik", state="input")
    assert misspelt.counts() == {"unknown_id": 2}
    assert misspelt.report["violations"]["suspected"]["unknown_id"] == 2
    assert misspelt.report["reasons"] == ["topic clik does not exist yet"]
    assert (misspelt.verdicts, misspelt.status) == (("unknown",) * 3, 3)


@pytest.mark.full
def test_violations_suspected_while_a_topic_is_absent_are_confirmed_once_it_exists(pipeline: Pipeline) -> None:
    pipeline.broker.create_topics({pipeline.input: 1, pipeline.output: 1})
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 22))
    with pipeline.live() as live:
        live.until(lambda r: r["violations"]["suspected"]["missing"] == 2)
    with pipeline.live() as live:
        before = live.batches()
        assert before["violations"]["first_confirmed"] == {}
        pipeline.broker.create_topics({pipeline.late: 1})
        pipeline.put(pipeline.late, set_aside(2, 2))
        report = live.until(lambda r: r["waiting_for"] == [] and r["violations"]["confirmed"]["missing"] == 1)
    assert report["verdicts_over"]["1h"]["exactly_once"] == report["verdicts_over"]["24h"]["exactly_once"] == "fail"
    assert report["violations"]["first_confirmed"]["missing"] == report["time"] > before["time"]
    assert report["violations"]["retracted"]["missing"] == 0
    assert report["violations_unacknowledged"] == 1
    [one] = listed(pipeline)
    assert (one["state"], one["count"], one["changed"]) == ("confirmed", 1, report["time"])
    assert one["first"] < before["time"]
    assert report["validator"]["restarts"] == 1

    with pipeline.live() as live:
        again = live.batches()
    assert again["violations"] == report["violations"]
    assert again["validator"]["restarts"] == 2
    assert [one] == listed(pipeline)


def listed(pipeline: Pipeline) -> list[Report]:
    """The violations in `violations.json`."""
    found: list[Report] = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    return found


@pytest.mark.full
def test_only_consecutive_failures_count(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sidecar runs for months: an old failure that was followed by successful batches must not end it."""
    monkeypatch.setattr(generations, "_TROUBLES_MAX", 1)
    pipeline.create()
    pipeline.clicks(click(1, 1))
    fails: list[bool] = []

    def reach(name: str) -> None:
        if name == "before_facts" and fails and fails.pop():
            raise OSError("no room for facts")

    monkeypatch.setattr(batch, "reach", reach)
    with pipeline.live() as live:
        # Each failure follows a batch that was read; a tick would not count.
        for number in (1, 2, 3):
            live.until(lambda report, number=number: report["contributions"]["pending"] == number)
            fails.append(True)
            live.until(lambda _: not fails)
            pipeline.clicks(click(number + 1, 1))
        assert live.until(lambda report: report["contributions"]["pending"] == 4)
        assert sum(sentence.endswith(": no room for facts") for sentence in live.said) == 3


@pytest.mark.full
def test_a_failed_batch_is_not_the_end_of_a_run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the failed batch ended the run, `--once` would report the events of unread results as missing."""
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    fails = iter([True])

    def reach(name: str) -> None:
        if name == "before_facts" and next(fails, False):
            raise OSError("py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n" + "at x\n" * 20_000)

    monkeypatch.setattr(batch, "reach", reach)
    run = pipeline.once()
    assert run.said[-1].startswith("the query restarts after the committed batches: py4j.protocol.Py4JJavaError")
    assert run.counts() == {"expected": 1, "processed": 1}
    assert run.status == 0


def _outcome(report: Report) -> dict[str, object]:
    return {name: report[name] for name in ("contributions", "results", "inputs", "cells", "verdicts", "reliability")}


@pytest.mark.full
def test_successive_runs_equal_one_run_over_all_records(pipeline: Pipeline) -> None:
    pipeline.create(inputs=2, outputs=2)
    for window in range(3):
        for page in "abc":
            base = 100 * window + 10 * ord(page)
            pipeline.clicks(*[click(base + i, 10 * window + i, page) for i in range(5)], partition=window % 2)
    # Window 0 is complete. Window 1 comes in two halves, the second after the first run. Window 2 has one id, twice.
    ids = {(w, p): [100 * w + 10 * ord(p) + i for i in range(5)] for w in range(3) for p in "abc"}
    pipeline.answers(*[answer(ids[0, p], 0, p) for p in "abc"])
    pipeline.answers(*[answer(ids[1, p][:3], 1, p) for p in "abc"], partition=1)

    open_left = pipeline.once(state="left-open", leave_open=True)
    assert open_left.counts() == {"expected": 45, "processed": 24, "pending": 21}
    first = pipeline.once(state="continued")
    assert first.counts() == {"expected": 45, "processed": 24, "missing": 21}
    assert (first.verdicts, first.status) == (("pass", "fail", "fail"), 1)

    pipeline.answers(*[answer(ids[1, p][3:], 1, p) for p in "abc"])
    pipeline.answers(answer([ids[2, "a"][0]] * 2, 2, "a"))
    # An event older than all others, for a cell that the first run closed.
    pipeline.clicks(click(7, 3, "b"))
    second = pipeline.once("timing.missing_after=9s", "timing.overdue_after=3s", state="continued")
    assert second.said[-1].startswith("resuming after batch")
    assert second.counts() == {"expected": 46, "processed": 31, "duplicate": 1, "missing": 15}
    assert second.verdicts == ("fail", "fail", "fail")
    assert second.report["violations"]["retracted"]["missing"] == 7

    for state in ("left-open", "whole"):
        assert _outcome(pipeline.once(state=state).report) == _outcome(second.report), state
    # A further run without new records changes nothing.
    assert _outcome(pipeline.once(state="continued").report) == _outcome(second.report)

    with pytest.raises(StateMismatch, match=rf'{pipeline.state("continued")} .* oracle\.size was "10s" and is "20s"'):
        pipeline.once("oracle.size=20s", state="continued")
    with pytest.raises(StateMismatch, match=r"outputs\[0\]\.fields\.key\[0\]\.path was \"page\" and is \"region\" now"):
        pipeline.once("outputs.0.fields.key=region", state="continued")


@pytest.mark.full
def test_cells_before_the_start_are_out_of_scope(pipeline: Pipeline) -> None:
    """`start: latest`: windows that began before the first event read are partly hidden, and are not judged."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    started = pipeline.once("start=latest")
    assert (started.counts(), started.status) == ({}, 3)

    # The result of window 1 carries an event that was not read here. Window 2 is the first complete one.
    pipeline.clicks(click(3, 12), click(4, 22), click(5, 31), click(6, 41))
    pipeline.answers(answer([2, 3], 1), answer([4], 2), answer([5], 3))
    run = pipeline.once("start=latest")

    assert run.report["inputs"]["read"] == 4
    assert run.counts("unknown_id", "misplaced", "unresolved") == {"unknown_id": 0, "misplaced": 0, "unresolved": 0}
    assert run.counts() == {"expected": 3, "processed": 2, "missing": 1, "out_of_scope": 1}
    assert run.verdicts == ("pass", "fail", "fail")


def test_a_partition_cut_before_the_first_run_puts_its_early_cells_out_of_scope(pipeline: Pipeline) -> None:
    pipeline.create(inputs=2)
    pipeline.clicks(*[click(i, i) for i in range(25)])
    pipeline.clicks(*[click(100 + i, i) for i in range(25)], partition=1)
    pipeline.answers(
        answer([*range(10), *range(100, 110)]), answer([*range(10, 20), *range(110, 120)], 1), answer([20, 120], 2)
    )
    # Offset 5 is the event of second 5: window 0 is partly hidden.
    pipeline.delete_records(pipeline.input, 5)

    run = pipeline.once()

    # Window 0: 5 and 10 events were read, and the results have 20 ids. Window 2 lacks four ids of each partition.
    assert run.counts() == {"expected": 30, "processed": 22, "missing": 8, "out_of_scope": 15}
    assert run.report["inputs"]["expired"] == 0
    assert run.verdicts == ("pass", "fail", "fail")


@pytest.mark.full
def test_once_without_any_topic_replaces_the_earlier_report(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    assert pipeline.once().status == 0
    for topic in (pipeline.input, pipeline.output, pipeline.late):
        pipeline.broker.delete_topic(topic)
    counters = pipeline.state() / "counters.json"
    counters.unlink()
    run = pipeline.once()
    assert (run.counts(), run.verdicts, run.status) == ({"expected": 1, "processed": 1}, ("unknown",) * 3, 3)
    assert f"topic {pipeline.output} does not exist" in run.report["reasons"]
    assert run.said[-1] == "none of the topics exists, so this run verified nothing"
    assert any(f"{counters} does not exist any more" in sentence for sentence in run.said)
    assert json.loads(counters.read_text())["classified"]["processed"] == 1


@pytest.mark.full
def test_runs_that_only_waited_leave_counters_and_no_old_report(pipeline: Pipeline) -> None:
    for _ in range(2):
        with pipeline.live() as live:
            live.until(lambda r: len(r["waiting_for"]) == 3)
        assert not any("counters.json" in sentence for sentence in live.said)
    (pipeline.state() / "report.json").write_text("damaged")
    run = pipeline.once("guarantee=at_least_once")
    assert run.report["guarantee"] == "at_least_once"
    assert (run.report["outcome"], run.status) == ("unknown", 3)
    assert not any("counters.json" in sentence for sentence in run.said)
