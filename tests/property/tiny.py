"""Hand-written histories: one line per micro-batch. `Story` assigns the offsets and partition states.


    story = Story(Timing(...))
    story.step(10, event("a", 3), event("b", 25))    # T = 10: two events on clicks/0
    story.step(20, result(0, "a"))                   # T = 20: a result of window 0
    assert story.counts(0, "a") == {"processed": 1}


Every partition is read to its end unless `unread` or `held` adds records to it. Offsets count from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tests.property.history import (
    Ending,
    History,
    InputEvent,
    LateRecord,
    PartitionState,
    Record,
    ResultRecord,
    Role,
    Step,
    Timing,
    Tombstone,
    TopicPartition,
    Undecodable,
    flaws,
    role_of,
)
from tests.property.reference import Judgement, Reference, classify, conclude

TIMING: Final = Timing(
    max_disorder_us=0,
    allowed_lateness_us=0,
    idle_after_us=1000,
    max_ahead_us=1000,
    overdue_after_us=5,
    missing_after_us=10,
    window_us=10,
)
"""Windows of 10; overdue after 5 and missing after 10; partitions stay active unless a test intends otherwise."""

CLICKS: Final = ("clicks", 0)
CLICKS_1: Final = ("clicks", 1)
COUNTS: Final = ("counts", 0)
COUNTS_1: Final = ("counts", 1)
LATE: Final = ("late", 0)
REJECTED: Final = ("rejected", 0)
UPDATES: Final = ("updates", 0)
ROLES: Final[Mapping[str, Role]] = {
    "clicks": "input",
    "updates": "input",
    "counts": "output",
    "late": "late",
    "rejected": "rejected",
    "rows": "table",
}


def event(id_: str, time_us: int, key: str = "k", partition: int = 0) -> InputEvent:
    """An event on `clicks`, or on the input that the id names, as in `updates/7`."""
    topic, _, _ = id_.rpartition("/")
    return InputEvent(topic or "clicks", partition, -1, 0, id_, key, time_us)


def result(window_start_us: int, *ids: str, key: str = "k", partition: int = 0) -> ResultRecord:
    """A result on `counts`."""
    return ResultRecord("counts", partition, -1, 0, key, window_start_us, ids)


def tombstone(key: str, partition: int = 0) -> Tombstone:
    """A null value on `counts`."""
    return Tombstone("counts", partition, -1, 0, key)


def late(id_: str, time_us: int, key: str = "k") -> LateRecord:
    """A record on the late topic."""
    return LateRecord("late", 0, -1, 0, id_, key, time_us)


def rejected(id_: str, time_us: int, key: str = "k") -> LateRecord:
    """A record on the dead-letter topic."""
    return LateRecord("rejected", 0, -1, 0, id_, key, time_us, "rejected")


def undecodable(topic: str) -> Undecodable:
    """A record that the validator cannot decode, on partition 0 of a topic."""
    return Undecodable(ROLES[topic], topic, 0, -1, 0)


class Story:
    """A history under construction, and the counts of its last step."""

    def __init__(
        self,
        timing: Timing = TIMING,
        places: tuple[TopicPartition, ...] = (CLICKS, COUNTS),
        reference: type[Reference] = Reference,
    ) -> None:
        self.timing = timing
        self.reference = reference
        self.steps: list[Step] = []
        self.next: dict[TopicPartition, int] = dict.fromkeys(places, 0)
        self.log_start: dict[TopicPartition, int] = dict.fromkeys(places, 0)

    def begins(self, place: TopicPartition, start: int, log_start: int = 0) -> Story:
        """Begin to read ``place`` at offset ``start`` of a log that starts at ``log_start``."""
        self.next[place] = start
        self.log_start[place] = log_start
        return self

    def step(
        self,
        lookup_us: int,
        *records: Record,
        unread: Mapping[TopicPartition, int] | None = None,
        held: Mapping[TopicPartition, int] | None = None,
        expired: Mapping[TopicPartition, int] | None = None,
        markers: Mapping[TopicPartition, int] | None = None,
        committed: Mapping[TopicPartition, int] | None = None,
    ) -> Story:
        """Append one batch. Numbers by partition, in log order: `expired` records before the batch, `markers` after its
        records, then `unread` records, then records `held` by an open transaction."""
        begins = dict(self.next)
        for place, count in (expired or {}).items():
            self.next[place] += count
            self.log_start[place] = self.next[place]
        placed: list[Record] = []
        for record in records:
            place = (record.topic, record.partition)
            placed.append(replace(record, offset=self.next[place]))
            self.next[place] += 1
        for place, count in (markers or {}).items():
            self.next[place] += count
        states = []
        for place, end in self.next.items():
            stable = end + (unread or {}).get(place, 0)
            high = stable + (held or {}).get(place, 0)
            role = ROLES[place[0]]
            states.append(PartitionState(role, *place, self.log_start[place], begins[place], end, high, stable))
        assert all(role_of(record) == ROLES[record.topic] for record in records)
        self.steps.append(Step(lookup_us, tuple(placed), tuple(states), committed))
        return self

    def history(self, final: Ending = "none") -> History:
        """The history so far. Asserts that it could have been read from a Kafka cluster."""
        history = History(self.timing, tuple(self.steps), final)
        assert not flaws(history)
        return history

    def judge(self, final: Ending = "none") -> Judgement:
        """The judgement after the last step, or after an ending."""
        history = self.history(final)
        if final != "none":
            return conclude(history, self.reference)
        return classify(history, len(self.steps) - 1, self.reference)

    def counts(self, window_start_us: int, id_: str, key: str = "k", final: Ending = "none") -> dict[str, int]:
        """The classes of one (cell, id) after the last step."""
        return dict(self.judge(final).contributions[window_start_us, key][id_])

    def confirmed(self, final: Ending = "none") -> set[tuple[str, str]]:
        """(kind, id) of the confirmed violations."""
        return {(found.kind, found.id) for found in self.judge(final).confirmed}
