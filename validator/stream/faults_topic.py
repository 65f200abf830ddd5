"""The faults topic, to which any chaos tool may write the faults that it injects (CONTRACT, "Faults topic").

Faults are few. They are read beside the stream, from the start of the topic, and kept in the state (`fault_records`).
Spark's workers read them, not the driver process, since the decompressed size of a record is not limited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from confluent_kafka import Message

from validator.config.model import Config
from validator.model.kafka_refusals import missing_right
from validator.stream.brokers import Brokers, BrokersRefuse, BrokersUnreachable
from validator.stream.fault_rows import Row, row_of
from validator.stream.kafka_reading import Range, ReadFailed
from validator.stream.oversized_records import is_exhausted

_ANSWER_SECONDS: Final = 5.0
"""Timeout of the brokers' answers, for which a batch waits."""
_OFFSETS_MAX: Final = 10_000
"""Offsets of a partition read in one poll."""
_PAUSE_SECONDS: Final = 10.0
"""Pause after a failed read, so that repeated failures do not delay every batch."""
_FAILURES_MAX: Final = 24
"""A poll splits ranges until this many reads have failed for lack of memory: enough to isolate one record among
`_OFFSETS_MAX`."""
_FAILURES_SILENT: Final = 3
"""Consecutive failed reads of a partition after which a message says that no fault is read from it."""

_Item = TypeVar("_Item")


class MessageReader(Protocol):
    """Reads ranges of offsets; implemented by `Workers`."""

    def each(self, taken: Callable[[Message], _Item], ranges: Sequence[Range], *, isolated: bool) -> Iterable[_Item]:
        """``taken`` applied to each visible message. Raises `ReadFailed`."""


class FaultsTopicReader:
    """Reads new records of one faults topic. ``undecodable``: number of records that did not decode."""

    def __init__(self, config: Config, say: Callable[[str], None]) -> None:
        assert config.faults is not None
        self._topic = config.faults.topic
        self._brokers = Brokers(config, _ANSWER_SECONDS)
        self._options = config.kafka.options
        self._say = say
        self._complained = False
        # The id of the topic that was read, and its next offsets, which change together.
        self._read: tuple[str, Mapping[int, int]] = ("", {})
        self._failed: dict[int, int] = {}
        self._not_before = 0.0
        self.undecodable = 0

    def poll(self, reader: MessageReader) -> list[Row]:
        """New records as rows of the faults table (without ``batch``); none if the topic does not exist."""
        if time.monotonic() < self._not_before:
            return []
        rows: list[Row] = []
        topic_id, reached, left = self._unread()
        failures = 0
        while left:
            wanted = left.pop(0)
            try:
                outcomes = list(reader.each(row_of, [wanted], isolated=failures > 0))
            except ReadFailed as error:
                self._not_before = time.monotonic() + _PAUSE_SECONDS
                if "Not authorized" in str(error):
                    self._complain()
                    break
                # One broken partition must not hide the faults in the others.
                left = [one for one in left if one.partition != wanted.partition]
                self._failed[wanted.partition] = self._failed.get(wanted.partition, 0) + 1
                if self._failed[wanted.partition] == _FAILURES_SILENT:
                    self._say(f"no fault is read from {self._topic}-{wanted.partition} for the time being: {error}")
                continue
            except Exception as error:
                if not is_exhausted(error):
                    raise
                failures += 1
                if wanted.end - wanted.start > 1 and failures < _FAILURES_MAX:
                    middle = (wanted.start + wanted.end) // 2
                    left[:0] = [wanted._replace(end=middle), wanted._replace(start=middle)]
                    continue
                if failures == 1:
                    # Retry, isolated: the record that did not fit may be outside of ``wanted``.
                    left.insert(0, wanted)
                    continue
                self._say(
                    f"the faults topic {self._topic}-{wanted.partition} is not read from offset {wanted.start} to "
                    f"{wanted.end - 1}: a record there does not fit into the memory of a worker (limits.worker_bytes)"
                )
                outcomes = [True]
            rows += [row for row in outcomes if isinstance(row, dict)]
            self.undecodable += outcomes.count(True)
            reached[wanted.partition] = wanted.end
            self._failed.pop(wanted.partition, None)
        # The offsets advance only together with the rows.
        self._read = topic_id, reached
        return rows

    def _unread(self) -> tuple[str, dict[int, int], list[Range]]:
        """The topic id, the offsets read so far (none if the topic was recreated), and the ranges beyond them."""
        topic_id, reached = self._read[0], dict(self._read[1])
        try:
            topic = self._brokers.seen([self._topic])[self._topic]
            if isinstance(topic, BrokersRefuse):
                self._complain()
            if topic is None or isinstance(topic, BrokersRefuse):
                return topic_id, reached, []
            lookups = self._brokers.lookup({self._topic: topic})
        except BrokersUnreachable:
            return topic_id, reached, []
        if topic.id != topic_id:
            topic_id = topic.id
            reached.clear()
        ranges = []
        for partition, lookup in sorted(lookups.items()):
            start = max(lookup.log_start_offset, reached.get(partition.partition, 0))
            end = min(lookup.last_stable_offset, start + _OFFSETS_MAX)
            if start < end:
                ranges.append(Range(0, partition.topic, partition.partition, start, end))
        return topic_id, reached, ranges

    def _complain(self) -> None:
        if not self._complained:
            lack = ": ".join(missing_right("READ", f"topic {self._topic}", self._options))
            self._say(f"no fault is read from the faults topic: {lack}")
        self._complained = True
