"""What a delivery report says about a send: acknowledged, rejected or indeterminate (Jepsen's ok, fail, info).

A send is *rejected* only where the record is certainly not in the topic. Every error that leaves it open, also one
that this table does not know, is *indeterminate*: a validator may then tolerate both presence and absence.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message

from generator import journal
from generator.workloads import sst

CERTAINLY_ABSENT: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too large, now as at any earlier try",
    KafkaError.RECORD_LIST_TOO_LARGE: "too large, now as at any earlier try",
    KafkaError.INVALID_RECORD: "not acceptable to the topic, now as at any earlier try",
    KafkaError.INVALID_TIMESTAMP: "not acceptable to the topic, now as at any earlier try",
    KafkaError.POLICY_VIOLATION: "not acceptable to the topic, now as at any earlier try",
}
"""Error code -> why a send that ends with it is in no partition: only refusals that hold for every try.

Everything else may follow an earlier try that was carried out and whose answer was lost. That is so for
``_MSG_TIMED_OUT``, ``NOT_ENOUGH_REPLICAS`` and authorisation errors, and also for ``_PURGE_QUEUE``: a message whose
connection broke goes back into the queue (seen: a broker killed under load, records reported so were in its log).
"""

_REJECTED: Final = -2
_INDETERMINATE: Final = -3

Report = Callable[[KafkaError | None, Message], None]


class Ledger:
    """Sends in order, matched with their reports; hands completed stretches to a journal.

    Reports are matched by the id in the record, not by their order: that holds with and without idempotence, retries
    and errors. A second copy of an id has reports of its own, told apart by the callback that it was sent with.
    ``number_in`` finds an id number in a value; ``acknowledges`` False (acks=0) makes successes indeterminate.
    """

    def __init__(
        self, number_in: Callable[[bytes], int], *, acknowledges: bool, writer: journal.JournalWriter | None
    ) -> None:
        self._writer = writer
        self._open: deque[tuple[sst.SendBatch, list[int]]] = deque()
        self._reported: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.errors: Counter[str] = Counter()
        self.outcomes = [0, 0, 0]
        self.acknowledged_by_partition: Counter[int] = Counter()
        self.report_first = self._report_into(self._reported[0], number_in, acknowledges=acknowledges)
        self.report_second = self._report_into(self._reported[1], number_in, acknowledges=acknowledges)

    def add(self, batch: sst.SendBatch, partitions: list[int]) -> None:
        """The next sends, before their reports can come in."""
        self._open.append((batch, partitions))

    def settle(self) -> None:
        """Journal the oldest batches whose reports are all in."""
        while self._open:
            batch, partitions = self._open[0]
            first, second = self._reported
            try:
                # The newest send of a batch is reported last, nearly always: look at it before all others.
                codes = [self._of(batch, -1, first, second)]
                if len(batch) > 1:
                    codes = self._codes(batch)
            except KeyError:
                return
            self._open.popleft()
            self._close(batch, partitions, codes)

    def abandon(self) -> None:
        """The deadline has passed: whatever has no report is indeterminate."""
        first, second = self._reported
        for batch, partitions in self._open:
            codes = [
                (second if kind == sst.SECOND_COPY else first).get(number, _INDETERMINATE)
                for number, kind in zip(batch.numbers, batch.kinds, strict=True)
            ]
            self.errors["no report by the deadline"] += sum(
                number not in (second if kind == sst.SECOND_COPY else first)
                for number, kind in zip(batch.numbers, batch.kinds, strict=True)
            )
            self._close(batch, partitions, codes)
        self._open.clear()

    @property
    def acknowledged(self) -> int:
        """Sends that are certainly in the topic."""
        return self.outcomes[journal.ACKNOWLEDGED]

    def _report_into(self, codes: dict[int, int], number_in: Callable[[bytes], int], *, acknowledges: bool) -> Report:
        def report(error: KafkaError | None, message: Message) -> None:
            value = message.value()
            assert isinstance(value, bytes)
            if error is not None:
                self.errors[str(error.name())] += 1
                codes[number_in(value)] = _REJECTED if error.code() in CERTAINLY_ABSENT else _INDETERMINATE
            elif acknowledges:
                offset = message.offset()
                # Negative: the broker had it from an earlier try and tells no offset. Acknowledged all the same.
                codes[number_in(value)] = -1 if offset is None or offset < 0 else offset
            else:
                codes[number_in(value)] = _INDETERMINATE

        return report

    def _codes(self, batch: sst.SendBatch) -> list[int]:
        first, second = self._reported
        if sst.SECOND_COPY not in batch.kinds:
            return [first[number] for number in batch.numbers]
        return [self._of(batch, i, first, second) for i in range(len(batch))]

    @staticmethod
    def _of(batch: sst.SendBatch, i: int, first: dict[int, int], second: dict[int, int]) -> int:
        return (second if batch.kinds[i] == sst.SECOND_COPY else first)[batch.numbers[i]]

    def _close(self, batch: sst.SendBatch, partitions: list[int], codes: list[int]) -> None:
        first, second = self._reported
        for number in batch.numbers:
            first.pop(number, None)
        if second:
            for number, kind in zip(batch.numbers, batch.kinds, strict=True):
                if kind == sst.SECOND_COPY:
                    second.pop(number, None)
        outcomes = [
            journal.ACKNOWLEDGED if c >= -1 else journal.REJECTED if c == _REJECTED else journal.INDETERMINATE
            for c in codes
        ]
        for outcome in range(3):
            self.outcomes[outcome] += outcomes.count(outcome)
        self.acknowledged_by_partition.update(
            partition for partition, code in zip(partitions, codes, strict=True) if code >= -1
        )
        if self._writer is not None:
            self._writer.write(
                number=batch.numbers,
                time_ms=batch.times_ms,
                offset=[code if code >= 0 else -1 for code in codes],
                key=batch.keys,
                partition=partitions,
                kind=batch.kinds,
                outcome=outcomes,
            )
