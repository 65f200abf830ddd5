"""Classifies sends by their delivery reports: acknowledged, rejected or indeterminate (Jepsen's ok, fail, info).

A send is *rejected* only if the record is certainly not in the topic. Every other error, including errors that this
table does not list, makes the send *indeterminate*: a validator may then tolerate both presence and absence of the
record.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message

from generator import journal
from generator.sends import SECOND_COPY, SendBatch

CERTAINLY_ABSENT: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "too large, on this attempt and on earlier ones",
    KafkaError.RECORD_LIST_TOO_LARGE: "too large, on this attempt and on earlier ones",
    KafkaError.INVALID_RECORD: "not acceptable to the topic, on this attempt and on earlier ones",
    KafkaError.INVALID_TIMESTAMP: "not acceptable to the topic, on this attempt and on earlier ones",
    KafkaError.POLICY_VIOLATION: "not acceptable to the topic, on this attempt and on earlier ones",
}
"""Error code -> reason why the record is in no partition. Lists only refusals that hold for every attempt.

With any other error, an earlier attempt may have succeeded while its response was lost. This applies to
``_MSG_TIMED_OUT``, ``NOT_ENOUGH_REPLICAS`` and authorisation errors. It also applies to ``_PURGE_QUEUE``: a message
whose connection breaks goes back into the queue. (Observed with a broker killed under load: records with this error
were in its log.)
"""

_REJECTED: Final = -2
_INDETERMINATE: Final = -3

Report = Callable[[KafkaError | None, Message], None]


class Ledger:
    """Matches sends with their delivery reports and writes completed batches to a journal in send order.

    A report is matched by the id in the record and not by its position, which is correct with and without idempotence,
    retries and errors. A second copy of an id has its own reports, distinguished by the callback that it was sent with.
    A callback costs 0.4 to 0.6 microseconds of CPU. To deduce reports from the order of the sends would save a quarter
    of the processor time, and fails if a queued message times out before one in flight is acknowledged.
    ``number_in`` extracts the id number from a value; if ``acknowledges`` is False (acks=0), successes are
    indeterminate.
    """

    def __init__(
        self, number_in: Callable[[bytes], int], *, acknowledges: bool, writer: journal.JournalWriter | None
    ) -> None:
        self._writer = writer
        self._open: deque[tuple[SendBatch, list[int]]] = deque()
        self._reported: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.errors: Counter[str] = Counter()
        self.outcomes = [0, 0, 0]
        self.acknowledged_by_partition: Counter[int] = Counter()
        self.report_first = self._report_into(self._reported[0], number_in, acknowledges=acknowledges)
        self.report_second = self._report_into(self._reported[1], number_in, acknowledges=acknowledges)

    def add(self, batch: SendBatch, partitions: list[int]) -> None:
        """Register sends before their reports can arrive."""
        self._open.append((batch, partitions))

    def settle(self) -> None:
        """Write batches to the journal, the oldest first, up to the first batch for which a report is outstanding."""
        while self._open:
            batch, partitions = self._open[0]
            first, second = self._reported
            try:
                # The newest send of a batch is almost always reported last, so it is checked first.
                codes = [self._of(batch, -1, first, second)]
                if len(batch) > 1:
                    codes = self._codes(batch)
            except KeyError:
                return
            self._open.popleft()
            self._close(batch, partitions, codes)

    def abandon(self) -> None:
        """After the deadline: record every send without a report as indeterminate."""
        first, second = self._reported
        for batch, partitions in self._open:
            codes = [
                (second if kind == SECOND_COPY else first).get(number, _INDETERMINATE)
                for number, kind in zip(batch.numbers, batch.kinds, strict=True)
            ]
            self.errors["no report by the deadline"] += sum(
                number not in (second if kind == SECOND_COPY else first)
                for number, kind in zip(batch.numbers, batch.kinds, strict=True)
            )
            self._close(batch, partitions, codes)
        self._open.clear()

    @property
    def acknowledged(self) -> int:
        """Number of sends that are certainly in the topic."""
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
                # A negative offset means that the broker has the record from an earlier attempt and does not return its
                # offset. The send is acknowledged.
                codes[number_in(value)] = -1 if offset is None or offset < 0 else offset
            else:
                codes[number_in(value)] = _INDETERMINATE

        return report

    def _codes(self, batch: SendBatch) -> list[int]:
        first, second = self._reported
        if SECOND_COPY not in batch.kinds:
            return [first[number] for number in batch.numbers]
        return [self._of(batch, i, first, second) for i in range(len(batch))]

    @staticmethod
    def _of(batch: SendBatch, i: int, first: dict[int, int], second: dict[int, int]) -> int:
        return (second if batch.kinds[i] == SECOND_COPY else first)[batch.numbers[i]]

    def _close(self, batch: SendBatch, partitions: list[int], codes: list[int]) -> None:
        first, second = self._reported
        for number in batch.numbers:
            first.pop(number, None)
        if second:
            for number, kind in zip(batch.numbers, batch.kinds, strict=True):
                if kind == SECOND_COPY:
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
