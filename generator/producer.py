"""One producer: takes events from its sequence at the configured rate, sends them and journals the outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from generator import journal, shapes
from generator.config import GeneratorConfig
from generator.outcomes import Ledger
from generator.sender import Sender, Target
from generator.workloads import mst, sst

BATCH_SENDS_MAX: Final = 4096
"""Sends rendered per batch: large enough to spread the fixed costs, small enough that a stop is quick."""
WAIT_SECONDS: Final = 0.002


@dataclass(frozen=True)
class Totals:
    """Totals of one producer. ``events`` counts distinct ids; ``sends`` includes second copies."""

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
    next_update_number: int = 1
    """The id numbers of this producer's updates are all below this number."""
    fatal: str | None = None
    """Fatal error of the client, if it had one."""


@dataclass
class Counters:
    """Progress of a producer; read by the thread that displays it."""

    sent: int = 0
    acknowledged: int = 0


def plan_of(config: GeneratorConfig, producer: int, start_ms: int) -> sst.ClickPlan:
    """The click plan of producer ``producer``; ``start_ms`` is event time zero."""
    keys = config.keys.pages * max(1, config.keys.regions)
    plan = sst.ClickPlan(
        producer=producer,
        producers=config.producers,
        keys=keys,
        step_ms=config.step_ms,
        start_ms=start_ms,
        events=None,
        seed=config.seed,
        disorder_share=config.disorder.share,
        disorder_ms=config.disorder.within,
        late_share=config.lateness.share,
        late_by_ms=config.lateness.beyond,
        duplicate_share=config.duplicates.share,
        burst_events=1 if config.sessions is None else config.sessions.events,
        silent_steps=config.silent_steps,
    )
    limits = []
    if config.limit.events is not None:
        limits.append(int(shapes.share_of(config.limit.events, producer, config.producers)))
    if config.limit.windows is not None:
        rounds = sst.rounds_before(config.window, config.limit.windows, config.step_ms)
        limits.append(sst.events_before(plan, rounds))
    return replace(plan, events=min(limits, default=None))


def journal_header(config: GeneratorConfig, target: Target, producer: int | None) -> dict[str, object]:
    """The first line of a journal: the format of its rows and the settings of the run. ``producer`` None: the final
    flush.
    """
    return {
        "producer": producer,
        "topic": target.topic,
        "partitions": target.partitions,
        "keys": [[k.page] if k.region is None else [k.page, k.region] for k in target.all_keys],
        "id_prefix": target.id_prefix(config),
        "seed": config.seed,
        "window_ms": config.window,
        **({} if config.sessions is None else {"sessions": config.sessions.model_dump()}),
    }


def produce(
    config: GeneratorConfig,
    producer: int,
    start_ms: int,
    target: Target,
    stopped: Callable[[], bool],
    counters: Counters,
) -> Totals:
    """Run one producer until its limit is reached or ``stopped`` returns True; blocking. In workload `mst`, the totals
    cover clicks and updates.
    """
    plan = plan_of(config, producer, start_ms)
    name = f"producer-{producer:04d}"
    with ExitStack() as journals:

        def writer(of: Target, name: str) -> journal.JournalWriter | None:
            if config.journal is None:
                return None
            path = config.journal / f"{name}{journal.SUFFIX}"
            return journals.enter_context(journal.JournalWriter(path, journal_header(config, of, producer)))

        sender = Sender(config, target, writer(target, name))
        updates = None
        if target.updates is not None:
            per_window = mst.updates_per_window(config.events_per_window, config.update_percent)
            following = Sender(config, target.updates, writer(target.updates, f"{name}-updates"))
            updates = _UpdateStream(mst.Updates(mst.UpdatePlan(plan, config.window, per_window)), following)
        totals = _produce(config, producer, sst.ClickSequence(plan), sender, stopped, counters, updates)
        sender.finish(asdict(totals))
        return totals if updates is None else updates.added_to(totals)


class _UpdateStream:
    """The second stream of a producer, sent after its clicks."""

    def __init__(self, updates: mst.Updates, sender: Sender) -> None:
        self._updates = updates
        self._sender = sender
        self._tally = _Tally()

    def follow(self, clicks: sst.SendBatch) -> None:
        """Send the updates that are due after ``clicks`` were sent."""
        if len(clicks):
            self._send(self._updates.after(max(clicks.times_ms)))

    def close(self) -> None:
        """Send delayed updates, and wait for the delivery reports."""
        self._send(self._updates.drain())
        self._sender.close()

    def added_to(self, clicks: Totals) -> Totals:
        """The totals of both streams after both are closed; a partition of the updates is called ``updates-N``."""
        own = self._tally.totals(self._sender.ledger, self._updates.next_number, None)
        self._sender.finish(asdict(own))
        partitions = {f"updates-{name}": count for name, count in own.acknowledged_by_partition.items()}
        return replace(
            clicks,
            events=clicks.events + own.events,
            sends=clicks.sends + own.sends,
            acknowledged=clicks.acknowledged + own.acknowledged,
            rejected=clicks.rejected + own.rejected,
            indeterminate=clicks.indeterminate + own.indeterminate,
            kinds={name: count + own.kinds[name] for name, count in clicks.kinds.items()},
            errors={
                name: clicks.errors.get(name, 0) + own.errors.get(name, 0)
                for name in sorted({*clicks.errors, *own.errors})
            },
            acknowledged_by_partition={**clicks.acknowledged_by_partition, **partitions},
            next_update_number=own.next_number,
        )

    def _send(self, batch: sst.SendBatch) -> None:
        self._tally.add(batch)
        self._sender.send(batch)


def _produce(
    config: GeneratorConfig,
    producer: int,
    sequence: sst.ClickSequence,
    sender: Sender,
    stopped: Callable[[], bool],
    counters: Counters,
    updates: _UpdateStream | None,
) -> Totals:
    shape = config.rate.build(config.events_per_event_second)
    tally = _Tally()
    started = time.monotonic()
    duration = None if config.limit.duration is None else config.limit.duration / 1000
    fatal = None
    try:
        while not stopped():
            elapsed = time.monotonic() - started
            if duration is not None and elapsed >= duration:
                break
            due = shapes.share_of(shape.events_by(elapsed), producer, config.producers) - tally.sends
            if due < 1:
                sender.settle(WAIT_SECONDS)
                continue
            batch = sequence.take(int(min(due, BATCH_SENDS_MAX)))
            if len(batch) == 0:
                break
            tally.add(batch)
            sender.send(batch)
            if updates is not None:
                updates.follow(batch)
            counters.sent, counters.acknowledged = tally.sends, sender.ledger.acknowledged
        rest = sequence.drain()
        tally.add(rest)
        sender.send(rest)
        if updates is not None:
            updates.follow(rest)
            updates.close()
    except KafkaException as error:
        fatal = str(error.args[0])
    sender.close()
    counters.sent, counters.acknowledged = tally.sends, sender.ledger.acknowledged
    return tally.totals(sender.ledger, sequence.next_number, fatal)


class _Tally:
    """Counts of sends that were passed to the client."""

    def __init__(self) -> None:
        self.sends = 0
        self.newest_time_ms = -1
        self.kinds = [0] * len(sst.KIND_NAMES)

    def add(self, batch: sst.SendBatch) -> None:
        self.sends += len(batch)
        self.newest_time_ms = max([self.newest_time_ms, *batch.times_ms])
        for kind in range(len(self.kinds)):
            self.kinds[kind] += batch.kinds.count(kind)

    def totals(self, ledger: Ledger, next_number: int, fatal: str | None) -> Totals:
        return Totals(
            events=self.sends - self.kinds[sst.SECOND_COPY],
            sends=self.sends,
            acknowledged=ledger.outcomes[journal.ACKNOWLEDGED],
            rejected=ledger.outcomes[journal.REJECTED],
            indeterminate=ledger.outcomes[journal.INDETERMINATE],
            kinds=dict(zip(sst.KIND_NAMES, self.kinds, strict=True)),
            errors=dict(ledger.errors),
            acknowledged_by_partition={str(p): n for p, n in sorted(ledger.acknowledged_by_partition.items())},
            newest_time_ms=self.newest_time_ms,
            next_number=next_number,
            fatal=fatal,
        )


def flush_windows(config: GeneratorConfig, target: Target, newest_time_ms: int, first_number: int) -> Totals:
    """Send one event per key, far enough ahead in event time to close all earlier windows."""
    window_end_ms = (newest_time_ms // config.window + 1) * config.window
    time_ms = window_end_ms + config.disorder.within + config.lateness.beyond + config.window
    if config.sessions is not None:
        time_ms += config.sessions.gap
    count = len(target.all_keys)
    batch = sst.SendBatch(
        list(range(first_number, first_number + count)), list(range(count)), [time_ms] * count, [sst.FLUSH] * count
    )
    name = "flush-updates" if target.is_updates else "flush"
    path: Path | None = None if config.journal is None else config.journal / f"{name}{journal.SUFFIX}"
    if path is None:
        return _flush(config, target, batch, None)
    with journal.JournalWriter(path, journal_header(config, target, None)) as writer:
        totals = _flush(config, target, batch, writer)
        writer.finish(asdict(totals))
        return totals


def _flush(
    config: GeneratorConfig, target: Target, batch: sst.SendBatch, writer: journal.JournalWriter | None
) -> Totals:
    sender, tally, fatal = Sender(config, target, writer), _Tally(), None
    tally.add(batch)
    try:
        sender.send(batch)
    except KafkaException as error:
        fatal = str(error.args[0])
    sender.close()
    return tally.totals(sender.ledger, batch.numbers[-1] + 1, fatal)
