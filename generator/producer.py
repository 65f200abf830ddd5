"""One producer: takes events from its sequence at the configured rate, sends them and journals the outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Final

from confluent_kafka import KafkaException

from generator import journal, shapes
from generator.config import GeneratorConfig
from generator.outcomes import Ledger
from generator.sender import Sender, Target, wire_of
from generator.sends import FLUSH, KIND_NAMES, SECOND_COPY, SendBatch

BATCH_SENDS_MAX: Final = 4096
"""Sends rendered per batch: large enough to spread the fixed costs, small enough that a stop is quick."""
WAIT_SECONDS: Final = 0.002


@dataclass(frozen=True)
class Totals:
    """Totals of one producer on one stream. ``events`` counts distinct ids; ``sends`` includes second copies."""

    events: int
    sends: int
    acknowledged: int
    rejected: int
    indeterminate: int
    kinds: Mapping[str, int]
    errors: Mapping[str, int]
    acknowledged_by_partition: Mapping[str, int]
    newest_time_ms: int
    """Event time of the newest event sent, in milliseconds; -1 if none was sent."""
    next_number: int
    """The id numbers of this producer's events are all below this number."""
    fatal: str | None = None
    """Fatal error of the client, if it had one."""


@dataclass
class Counters:
    """Progress of a producer; read by the thread that displays it."""

    sent: int = 0
    acknowledged: int = 0


def journal_header(config: GeneratorConfig, target: Target, producer: int | None) -> dict[str, object]:
    """The first line of a journal: the format of its rows and the settings of the run. ``producer`` None: the final
    flush.
    """
    return {
        "producer": producer,
        "topic": target.topic,
        "partitions": target.partitions,
        **wire_of(config, target).journaled,
        "seed": config.seed,
        "window_ms": config.window,
        **({} if config.sessions is None else {"sessions": config.sessions.model_dump()}),
    }


def produce(
    config: GeneratorConfig,
    producer: int,
    start_ms: int,
    targets: Sequence[Target],
    stopped: Callable[[], bool],
    counters: Counters,
) -> list[Totals]:
    """Run one producer until its limit is reached or ``stopped`` returns True; blocking. Returns the totals of each of
    its streams.
    """
    with ExitStack() as journals:
        streams = [_Stream(config, target, _name(config, f"producer-{producer:04d}", target), producer, journals)
                   for target in targets]  # fmt: skip
        return _produce(config, producer, start_ms, streams, stopped, counters)


class _Stream:
    """The sends of one producer to one topic."""

    def __init__(
        self, config: GeneratorConfig, target: Target, name: str, producer: int | None, journals: ExitStack
    ) -> None:
        writer = None
        if config.journal is not None:
            header = journal_header(config, target, producer)
            writer = journals.enter_context(journal.JournalWriter(config.journal / f"{name}{journal.SUFFIX}", header))
        self.sender = Sender(config, target, writer)
        self._prefix = f"{config.workload.streams[target.of].name}s-" if target.of else ""
        self._tally = _Tally()

    def send(self, batch: SendBatch) -> None:
        """Raises KafkaException if the client has failed."""
        self._tally.add(batch)
        self.sender.send(batch)

    def totals(self, next_number: int, fatal: str | None) -> Totals:
        """Wait for the delivery reports, and complete the journal."""
        self.sender.close()
        totals = self._tally.totals(self.sender.ledger, self._prefix, next_number, fatal)
        self.sender.finish(asdict(totals))
        return totals


def _name(config: GeneratorConfig, of: str, target: Target) -> str:
    """The name of a journal: that of the producer and, after the first stream, of the stream."""
    return f"{of}-{config.workload.streams[target.of].name}s" if target.of else of


def _produce(
    config: GeneratorConfig,
    producer: int,
    start_ms: int,
    streams: Sequence[_Stream],
    stopped: Callable[[], bool],
    counters: Counters,
) -> list[Totals]:
    shape = config.rate.build(config.events_per_event_second)
    events = config.workload.events(config.load(producer, start_ms))
    started = time.monotonic()
    duration = None if config.limit.duration is None else config.limit.duration / 1000
    fatal = None

    def send(batches: Sequence[SendBatch]) -> None:
        for stream, batch in zip(streams, batches, strict=True):
            stream.send(batch)

    def show() -> None:
        counters.sent, counters.acknowledged = events.taken, sum(s.sender.ledger.acknowledged for s in streams)

    try:
        while not stopped():
            elapsed = time.monotonic() - started
            if duration is not None and elapsed >= duration:
                break
            due = shapes.share_of(shape.events_by(elapsed), producer, config.producers) - events.taken
            if due < 1:
                for stream in streams:
                    stream.sender.settle(WAIT_SECONDS)
                continue
            batches = events.take(int(min(due, BATCH_SENDS_MAX)))
            if not any(map(len, batches)):
                break
            send(batches)
            show()
        send(events.drain())
    except KafkaException as error:
        fatal = str(error.args[0])
    totals = [
        stream.totals(number, fatal if stream is streams[0] else None)
        for stream, number in zip(streams, events.next_numbers, strict=True)
    ]
    show()
    return totals


class _Tally:
    """Counts of sends that were passed to the client."""

    def __init__(self) -> None:
        self.sends = 0
        self.newest_time_ms = -1
        self.kinds = [0] * len(KIND_NAMES)

    def add(self, batch: SendBatch) -> None:
        self.sends += len(batch)
        self.newest_time_ms = max([self.newest_time_ms, *batch.times_ms])
        for kind in range(len(self.kinds)):
            self.kinds[kind] += batch.kinds.count(kind)

    def totals(self, ledger: Ledger, prefix: str, next_number: int, fatal: str | None) -> Totals:
        return Totals(
            events=self.sends - self.kinds[SECOND_COPY],
            sends=self.sends,
            acknowledged=ledger.outcomes[journal.ACKNOWLEDGED],
            rejected=ledger.outcomes[journal.REJECTED],
            indeterminate=ledger.outcomes[journal.INDETERMINATE],
            kinds=dict(zip(KIND_NAMES, self.kinds, strict=True)),
            errors=dict(ledger.errors),
            acknowledged_by_partition={f"{prefix}{p}": n for p, n in sorted(ledger.acknowledged_by_partition.items())},
            newest_time_ms=self.newest_time_ms,
            next_number=next_number,
            fatal=fatal,
        )


def flush_windows(config: GeneratorConfig, target: Target, newest_time_ms: int, first_number: int) -> Totals:
    """Send events to all partitions, far enough ahead in event time to close all earlier windows."""
    window_end_ms = (newest_time_ms // config.window + 1) * config.window
    time_ms = window_end_ms + config.disorder.within + config.lateness.beyond + config.window
    if config.sessions is not None:
        time_ms += config.sessions.gap
    with ExitStack() as journals:
        stream = _Stream(config, target, _name(config, "flush", target), None, journals)
        numbers, keys = stream.sender.closing(first_number)
        fatal = None
        try:
            stream.send(SendBatch(numbers, keys, [time_ms] * len(numbers), [FLUSH] * len(numbers)))
        except KafkaException as error:
            fatal = str(error.args[0])
        return stream.totals(numbers[-1] + 1, fatal)
