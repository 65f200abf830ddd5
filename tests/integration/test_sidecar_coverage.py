"""Coverage against a real broker: topics with transactions and without raise no alarm, and a reader that leaves out one
record in ten thousand is found by second readings, whose loop and consumer are their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.integration.sidecar_fixtures import Pipeline, Report, answer, click
from validator.config.model import Config
from validator.stream import generations, sources
from validator.stream.kafka_reading import Range, Read, Reading

pytestmark = pytest.mark.timeout(600)

LEFT_OUT = 10_000
"""The reader leaves out the record at each multiple of this offset."""


class LeakyReading(Reading):
    """A reader that leaves out one record in ten thousand, before anything counts it."""

    def messages(self, wanted: Range) -> Iterator[Read]:
        for messages, offsets in super().messages(wanted):
            kept = offsets % LEFT_OUT != LEFT_OUT - 1
            yield [message for message, stays in zip(messages, kept, strict=True) if stays], offsets[kept]


@pytest.fixture
def leaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sidecar's workers read with `LeakyReading`."""

    def leaky(config: Config, *more: Any) -> Reading:
        reading = sources.reading_of(config, *more)
        return LeakyReading(**vars(reading))

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    monkeypatch.setattr(generations, "reading_of", leaky)
    yield
    cloudpickle.unregister_pickle_by_value(module)


def filled(pipeline: Pipeline, events: int) -> None:
    """Write events of one window. The engine has lost those that the leaky reader leaves out."""
    pipeline.create()
    pipeline.clicks(*(click(number, 1) for number in range(events)))
    pipeline.answers(answer([number for number in range(events) if number % LEFT_OUT != LEFT_OUT - 1]))


def second_reading(report: Report) -> dict[str, int]:
    found: dict[str, int] = report["coverage"]["second_reading"]
    return found


def test_a_reader_that_leaves_out_one_record_in_ten_thousand_is_found(pipeline: Pipeline, leaks: None) -> None:
    """The lost event and the gap in the reading hide each other: without second readings the verdict is `pass`."""
    filled(pipeline, LEFT_OUT + 500)
    run = pipeline.once()
    gap = f"a second reading of {pipeline.input}-0 at offset 9999 found 1 record, but the stored facts count 0"
    assert gap in run.report["coverage"]["differences"]
    assert set(run.report["verdicts"].values()) == {"unknown"}
    assert any(reason.startswith(gap) for reason in run.report["reasons"])
    # The sums hold: the reader took the record for an offset without one.
    sums = run.report["coverage"]["sums"]
    assert sums == {"records": LEFT_OUT + 500, "expired": 0, "invisible": 1, "offsets_spanned": LEFT_OUT + 501}
    again = pipeline.once()
    assert gap in again.report["coverage"]["differences"], "it stays on record"


@pytest.mark.full
def test_the_same_reader_passes_without_second_readings(
    pipeline: Pipeline, leaks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.stream.second_reading.SecondReadings._read_again", lambda *_: None)
    filled(pipeline, LEFT_OUT + 500)
    assert set(pipeline.once().report["verdicts"].values()) == {"pass"}


def test_transactions_raise_no_alarm_and_gaps_are_read_again(pipeline: Pipeline) -> None:
    """Markers and records of aborted transactions leave gaps, which a second reading finds empty, too."""
    pipeline.create()
    with pipeline.live() as live:
        for number in range(6):
            producer = pipeline.transactional()
            producer.begin_transaction()
            producer.produce(pipeline.input, click(number, 1))
            if number % 3 == 2:
                assert producer.flush(30) == 0
                producer.abort_transaction(30)
                producer.begin_transaction()
                producer.produce(pipeline.input, click(number, 1))
            producer.commit_transaction(30)
            live.batches()
        pipeline.answers(answer(list(range(6))))
        pipeline.clicks(click("next", 25))
        report = live.until(lambda r: r["contributions"]["processed"] == 6 and second_reading(r)["ranges"] >= 2)
    assert report["coverage"]["differences"] == []
    assert report["coverage"]["complete"]
    assert report["coverage"]["sums"]["invisible"] == 6 + 2 * 2
    assert second_reading(report)["not_done"] == 0
    assert report["coverage"]["events"]["read"] == 7
