"""Delivery reports become outcomes, with fakes in place of the client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from generator import journal, wire
from generator.outcomes import CERTAINLY_ABSENT, Ledger
from generator.sends import PLAIN, SECOND_COPY, SendBatch

pytestmark = pytest.mark.unit

CLICK = wire.ClickWire(wire.keys(1, 0), None)
HEADER = {"topic": "click", "keys": [["/help"]], "id_prefix": None}


@dataclass
class FakeMessage:
    number: int
    at: int = 0

    def value(self) -> bytes:
        return CLICK.render([self.number], [0], [1], -1)[0]

    def offset(self) -> int:
        return self.at


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.journal"


def ledger(path: Path, *, acknowledges: bool = True) -> Any:
    return Ledger(CLICK.number_in, acknowledges=acknowledges, writer=journal.JournalWriter(path, HEADER))


def batch(*numbers: int, kind: int = PLAIN) -> SendBatch:
    n = len(numbers)
    return SendBatch(list(numbers), [0] * n, [1] * n, [kind] * n)


def outcomes(path: Path) -> list[tuple[object, str, int | None]]:
    return [(s.id, s.outcome, s.offset) for s in journal.read(path)]


def test_reports_in_any_order_are_journalled_in_send_order(path: Path) -> None:
    book = ledger(path)
    book.add(batch(1, 2, 3), [0, 0, 0])
    for number, offset in ((3, 12), (1, 10), (2, 11)):
        book.settle()
        assert outcomes(path) == []
        book.report_first(None, FakeMessage(number, offset))
    book.settle()
    assert outcomes(path) == [(1, "acknowledged", 10), (2, "acknowledged", 11), (3, "acknowledged", 12)]


def test_only_certain_absence_is_a_rejection(path: Path) -> None:
    book = ledger(path)
    book.add(batch(1, 2, 3), [0, 0, 0])
    book.report_first(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), FakeMessage(1))
    book.report_first(KafkaError(KafkaError._MSG_TIMED_OUT), FakeMessage(2))
    book.report_first(KafkaError(KafkaError._PURGE_INFLIGHT), FakeMessage(3))
    book.settle()
    assert outcomes(path) == [(1, "rejected", None), (2, "indeterminate", None), (3, "indeterminate", None)]
    assert sum(book.errors.values()) == 3


def test_no_report_by_the_deadline_is_indeterminate(path: Path) -> None:
    book = ledger(path)
    book.add(batch(1, 2), [0, 0])
    book.report_first(None, FakeMessage(2, 5))
    book.settle()
    book.abandon()
    assert outcomes(path) == [(1, "indeterminate", None), (2, "acknowledged", 5)]
    assert book.errors["no report by the deadline"] == 1


def test_the_copies_of_an_id_have_outcomes_of_their_own(path: Path) -> None:
    book = ledger(path)
    both = SendBatch([1, 1], [0, 0], [1, 1], [PLAIN, SECOND_COPY])
    book.add(both, [0, 0])
    book.report_second(None, FakeMessage(1, 8))
    book.settle()
    assert outcomes(path) == []
    book.report_first(KafkaError(KafkaError._MSG_TIMED_OUT), FakeMessage(1))
    book.settle()
    assert outcomes(path) == [(1, "indeterminate", None), (1, "acknowledged", 8)]


def test_a_duplicate_send_has_no_offset(path: Path) -> None:
    book = ledger(path)
    book.add(batch(1), [0])
    book.report_first(None, FakeMessage(1, -1001))
    book.settle()
    assert outcomes(path) == [(1, "acknowledged", None)]


def test_without_acknowledgements_success_proves_nothing(path: Path) -> None:
    book = ledger(path, acknowledges=False)
    book.add(batch(1), [0])
    book.report_first(None, FakeMessage(1, 3))
    book.settle()
    assert outcomes(path) == [(1, "indeterminate", None)]


def test_a_timeout_is_never_certain_absence() -> None:
    assert KafkaError._PURGE_QUEUE not in CERTAINLY_ABSENT, "it may have been sent before its connection broke"
    assert KafkaError._MSG_TIMED_OUT not in CERTAINLY_ABSENT
    assert KafkaError.REQUEST_TIMED_OUT not in CERTAINLY_ABSENT
    assert KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND not in CERTAINLY_ABSENT
