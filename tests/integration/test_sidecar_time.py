"""The time model against a real broker and real seconds: when absence is confirmed, and when it must not be.

One sidecar runs through all steps, since each step builds on the previous ones. Window n of 10 s is closed by an event
of window n + 1. Timings are a few seconds, or a few batches if the machine is busy: if a single batch took longer than
`missing_after`, an event would go from pending to missing at once, and the reports would not show that one
partition is idle while another is active.
"""

from __future__ import annotations

import pytest

from tests.integration.sidecar_fixtures import (
    Live,
    Pipeline,
    Report,
    answer,
    click,
    counts,
    instant,
    set_aside,
    verdicts,
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

_FUTURE_SECONDS = 4_102_444_800


def test_absence_is_decided_by_elapsed_time_and_never_too_early(pipeline: Pipeline) -> None:
    pipeline.create()
    # An event further ahead than max_ahead closes no window. It stays pending itself.
    pipeline.clicks(*[click(i, 1) for i in range(10)], click("from 2100", _FUTURE_SECONDS))
    with pipeline.live() as live:
        missing_after = max(5.0, 3 * live.pace())
    with pipeline.live("timing.overdue_after=1s", f"timing.missing_after={missing_after:.0f}s") as live:
        _a_clock_gone_mad_closes_nothing(live)
        _a_dead_engine_is_noticed_without_traffic(pipeline, live)
        _a_late_answer_retracts(pipeline, live)
        _an_open_transaction_blocks_and_its_commit_answers(pipeline, live, missing_after)
        _an_aborted_transaction_proves_the_loss(pipeline, live)
        _an_output_before_its_input_is_unresolved_then_explained(pipeline, live)
        _a_record_set_aside_is_late(pipeline, live)
    assert live.status == 1


def test_an_idle_partition_does_not_hold_the_watermark(pipeline: Pipeline) -> None:
    """It holds the watermark until `idle_after`, and again as soon as it has an event."""
    pipeline.create(inputs=2)
    pipeline.clicks(click(1, 1))
    with pipeline.live() as live:
        idle_after = max(4.0, 3 * live.pace())
    with pipeline.live(f"timing.idle_after={idle_after:.0f}s") as live:
        # The second partition became idle while no sidecar ran. An event of its own restarts its idle time.
        pipeline.clicks(click(7, 2), partition=1)
        pipeline.clicks(click(2, 11))
        report = live.until(lambda r: r["contributions"]["expected"] == 3)
        assert report["cells"]["closed"] == 0
        # The partition is idle, and another one is active: the next event closes window 0.
        report = _after(live, report, seconds=idle_after + 1)
        assert report["cells"]["closed"] == 0
        pipeline.clicks(click(3, 12))
        live.until(lambda r: r["cells"]["closed"] == 1)
        # An event of its own makes the second partition active again: window 1 waits for it.
        pipeline.clicks(click(4, 13), partition=1)
        live.until(lambda r: r["contributions"]["expected"] == 5)
        pipeline.clicks(click(5, 21))
        report = live.until(lambda r: r["contributions"]["expected"] == 6)
        assert report["cells"]["closed"] == 1
        assert report["input_watermark"] == "1970-01-01T00:00:13.000000Z"
        pipeline.clicks(click(6, 22), partition=1)
        live.until(lambda r: r["cells"]["closed"] == 2)


def _a_clock_gone_mad_closes_nothing(live: Live) -> None:
    report = live.until(lambda r: counts(r) == {"expected": 11, "pending": 11})
    report = _after(live, report, seconds=3)
    assert counts(report) == {"expected": 11, "pending": 11}
    assert report["cells"]["closed"] == 0
    assert verdicts(report) == ("unknown",) * 3


def _a_dead_engine_is_noticed_without_traffic(pipeline: Pipeline, live: Live) -> None:
    pipeline.clicks(click(20, 11))
    seen = []

    def lost(report: Report) -> bool:
        seen.append((counts(report), verdicts(report)))
        return bool(report["contributions"]["missing"])

    report = live.until(lost)
    assert counts(report) == {"expected": 12, "pending": 2, "missing": 10}
    assert verdicts(report) == ("pass", "fail", "fail")
    # The events were overdue before, and this was not a violation.
    overdue = [said for found, said in seen if found == {"expected": 12, "pending": 2, "overdue": 10}]
    assert overdue, seen[-20:]
    assert set(overdue) == {("unknown",) * 3}
    assert report["violations"]["confirmed"]["missing"] == 10


def _a_late_answer_retracts(pipeline: Pipeline, live: Live) -> None:
    pipeline.answers(answer(range(10)))
    report = live.until(lambda r: r["contributions"]["processed"] == 10)
    assert counts(report) == {"expected": 12, "pending": 2, "processed": 10}
    assert report["violations"]["retracted"]["missing"] == 10
    assert report["violations"]["confirmed"]["missing"] == 0
    assert verdicts(report) == ("pass", "pass", "pass")


def _an_open_transaction_blocks_and_its_commit_answers(pipeline: Pipeline, live: Live, missing_after: float) -> None:
    producer = pipeline.transactional()
    producer.begin_transaction()
    producer.produce(pipeline.output, answer([20], 1), partition=0)
    assert producer.flush(30) == 0
    pipeline.clicks(click(30, 21))
    report = live.until(lambda r: r["contributions"]["blocked"] == 1)
    # It is well past missing_after, and is still not missing.
    report = _after(live, report, seconds=missing_after + 1)
    assert counts(report) == {"expected": 13, "processed": 10, "pending": 2, "blocked": 1}
    producer.commit_transaction(30)
    report = live.until(lambda r: r["contributions"]["processed"] == 11)
    assert counts(report) == {"expected": 13, "processed": 11, "pending": 2}
    assert verdicts(report) == ("pass", "pass", "pass")
    assert report["violations"]["retracted"]["missing"] == 10


def _an_aborted_transaction_proves_the_loss(pipeline: Pipeline, live: Live) -> None:
    producer = pipeline.transactional()
    producer.begin_transaction()
    producer.produce(pipeline.output, answer([30], 2), partition=0)
    assert producer.flush(30) == 0
    pipeline.clicks(click(40, 31))
    live.until(lambda r: r["contributions"]["blocked"] == 1)
    read = live.batches()["results"]["read"]
    producer.abort_transaction(30)
    report = live.until(lambda r: r["contributions"]["missing"] == 1)
    assert counts(report) == {"expected": 14, "processed": 11, "pending": 2, "missing": 1}
    assert verdicts(report) == ("pass", "fail", "fail")
    # The aborted record and the transaction markers are offsets without a visible record.
    assert report["results"]["read"] == read == 2
    [output] = [p for p in report["coverage"]["partitions"] if p["topic"] == pipeline.output]
    assert (output["records"], output["next_offset"], output["invisible"]) == (2, 5, 3)
    assert report["coverage"]["complete"]


def _an_output_before_its_input_is_unresolved_then_explained(pipeline: Pipeline, live: Live) -> None:
    producer = pipeline.transactional()
    producer.begin_transaction()
    producer.produce(pipeline.input, click(50, 35), partition=0)
    assert producer.flush(30) == 0
    pipeline.answers(answer([40, 50], 3))
    report = live.until(lambda r: r["contributions"]["unresolved"] == 1)
    report = _after(live, report, seconds=3)
    assert counts(report) == {"expected": 14, "processed": 12, "pending": 1, "missing": 1, "unresolved": 1}
    producer.commit_transaction(30)
    report = live.until(lambda r: r["contributions"]["expected"] == 15)
    assert counts(report) == {"expected": 15, "processed": 13, "pending": 1, "missing": 1}
    assert report["violations"]["retracted"]["unknown_id"] == 0


def _a_record_set_aside_is_late(pipeline: Pipeline, live: Live) -> None:
    pipeline.put(pipeline.late, set_aside(60, 41))
    pipeline.clicks(click(60, 41), click(70, 51))
    report = live.until(lambda r: r["contributions"]["late"] == 1 and r["cells"]["verified"] == 4)
    assert counts(report) == {"expected": 17, "processed": 13, "late": 1, "pending": 2, "missing": 1}
    assert verdicts(report) == ("pass", "fail", "fail")
    assert report["violations"]["retracted"]["missing"] == 10


def _after(live: Live, report: Report, *, seconds: float) -> Report:
    """Return the first report taken at least ``seconds`` after ``report``."""
    then = instant(report)
    return live.until(lambda r: instant(r) >= then + seconds)


def test_unread_input_is_unconsumed_and_read_input_is_missing(pipeline: Pipeline) -> None:
    """The engine's group distinguishes the two. The cell itself does not change when the engine commits."""
    pipeline.create()
    group = f"engine.consumer_group={pipeline.name}"
    # The last event closes the cell of the others.
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 3), click(4, 300))
    pipeline.answers(answer([1]))
    pipeline.commit_group(pipeline.name, pipeline.input, 1)
    behind = pipeline.once(group)
    assert behind.counts() == {"expected": 4, "processed": 1, "unconsumed": 3}
    pipeline.commit_group(pipeline.name, pipeline.input, 2)
    with pipeline.live(group) as live:
        report = live.until(lambda r: r["contributions"]["missing"] == 1)
        assert counts(report) == {"expected": 4, "processed": 1, "missing": 1, "unconsumed": 1, "pending": 1}
        pipeline.commit_group(pipeline.name, pipeline.input, 3)
        report = live.until(lambda r: r["contributions"]["missing"] == 2)
        assert counts(report) == {"expected": 4, "processed": 1, "missing": 2, "pending": 1}
    assert live.status == 1
