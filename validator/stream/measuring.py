"""Published measures of phases and faults, and the file with the ledger from which they are computed.

The file is written periodically. A start measures later batches again from the facts, so that a kill neither loses nor
repeats a measurement.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from validator.config.model import Config
from validator.measure.cost import CostRules, FaultCost
from validator.measure.latency import RESULT_COLUMNS, latency_buckets
from validator.measure.ledger import Ledger, MeasuredPhase
from validator.measure.output import second_after
from validator.measure.recovery import Detector
from validator.model.progress import IngestProgress
from validator.model.snapshot import Phase
from validator.publish.atomic import replace_file
from validator.publish.published_files import DAMAGED, Say, unreadable
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table
from validator.stream.recovery import Recovered
from validator.stream.run_record import RunRecord

FILE: Final = "measures.json"
SCHEMA: Final = 1
KEPT_EVERY_US: Final = 10_000_000


@dataclass(frozen=True)
class Measured:
    """Phases in time order. ``faults``, ``absent_because``: measures and reasons for absent ones, by fault id."""

    phases: tuple[Phase, ...] = ()
    faults: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    absent_because: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_ledger(state: Path, say: Say = lambda _: None) -> Ledger:
    """The ledger kept in ``state``.

    An empty one if the file is absent, damaged or of another schema: `catch_up` then fills it from the facts.
    """
    path = state / FILE
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        return Ledger.from_plain(plain) if plain["schema"] == SCHEMA else Ledger()
    except FileNotFoundError:
        return Ledger()
    except DAMAGED as error:
        say(f"{unreadable(path, error)}: phases and fault costs are computed again from the facts still in the state")
        return Ledger()


class LedgerWriter:
    """Writes the ledger of a run to its file."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        self._kept_us: int | None = None

    def write(self, record: RunRecord, now_us: int) -> None:
        """Write the ledger, at most every `KEPT_EVERY_US`. Raises OSError."""
        if self._kept_us is None or now_us - self._kept_us >= KEPT_EVERY_US:
            self.write_now(record)
            self._kept_us = now_us

    def write_now(self, record: RunRecord) -> None:
        """Write the ledger, if there is one. Raises OSError."""
        if record.ledger is not None:
            plain = {"schema": SCHEMA, **record.ledger.to_plain()}
            replace_file(self._path, json.dumps(plain, separators=(",", ":")) + "\n")


def catch_up(tables: StateTables, recovered: Recovered, record: RunRecord) -> None:
    """Measure the results of committed batches that the files of measurements lack after a kill."""
    progress = recovered.progress
    known = record.measured_batch if record.ledger is None else min(record.measured_batch, record.ledger.batch)
    if progress.batch > known:
        since = (
            (ds.field("batch") > known)
            & (ds.field("batch") <= progress.batch)
            & (ds.field("kind") == Kind.FACT.value)
            & (ds.field("side") == Side.OUTPUT.value)
        )
        parts = tables.scan(Table.FACTS, RESULT_COLUMNS, since)
        dates_all = not record.record_times.topics
        # Records read before the kill are not dated exactly enough for a latency.
        since_us = 0 if dates_all else progress.lookup_us
        left = recovered.evicted.opened_us()
        # All rows in one call: a batch is counted once, but its rows may be in several files.
        record.latency_measured(
            [row for part in parts for row in latency_buckets(part, recovered.cells, left, since_us=since_us)],
            0 if dates_all else None,
        )
    record.measured_through(progress.batch)


def rules_of(config: Config) -> CostRules:
    """The configured rules, in whole seconds (rounded up)."""
    measures = config.measures
    return CostRules(
        latency=measures.latency,
        warm_up_seconds=second_after(measures.warm_up_us),
        control_seconds_least=second_after(measures.control_least_us),
        control_seconds_most=second_after(measures.control_most_us),
        give_up_seconds=second_after(measures.give_up_after_us),
        detector=Detector(
            moving_seconds=second_after(measures.moving_rate_us),
            band_ratio=measures.band_ratio,
            stable_seconds=second_after(measures.stable_for_us),
        ),
    )


def known_until_us(progress: IngestProgress, clock_skew_us: int) -> int | None:
    """The instant of broker time (microseconds) through which output and its absence are known; None if unknown.

    It is not later than the newest record on an input or output: without load a pipeline writes no results.
    """
    outputs = [f for f in progress.frontiers.values() if f.side == "output"]
    through: list[int] = []
    for frontier in outputs:
        read_us = None if frontier.read_through_us is None else frontier.read_through_us - clock_skew_us
        instants = [instant for instant in (read_us, frontier.last_time_us) if instant is not None]
        if not instants:
            return None
        through.append(max(instants))
    lasts = [f.last_time_us for f in progress.frontiers.values() if f.side in ("input", "output")]
    newest = max((last for last in lasts if last is not None), default=None)
    return min([*through, newest]) if through and newest is not None else None


def measured(config: Config, progress: IngestProgress, record: RunRecord) -> Measured:
    """The published phases and fault measures after the batch of ``progress``.

    Each call also drops old entries of the ledger, even if no fault is known.
    """
    if record.ledger is None:
        return Measured()
    until_us = known_until_us(progress, config.timing.clock_skew_us)
    found, costs = record.ledger.measure(record.faults, rules_of(config), until_us=until_us)
    return Measured(
        _published(found, record),
        {name: _values(cost) for name, cost in costs.items()},
        {name: cost.absent_because for name, cost in costs.items()},
    )


def _values(cost: FaultCost) -> dict[str, float | None]:
    return {
        "failure_cost_seconds": cost.failure_cost_seconds,
        "downtime_seconds": cost.downtime_seconds,
        "recovery_seconds": cost.recovery_seconds,
        "recovered": None if cost.recovered is None else float(cost.recovered),
        "throughput_penalty_ratio": cost.throughput_penalty_ratio,
        "latency_penalty_ratio": cost.latency_penalty_ratio,
        "control_start_us": cost.control_start_us,
        "control_end_us": cost.control_end_us,
        "resolution_seconds": _seconds(cost.resolution_us),
    }


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def _published(found: list[MeasuredPhase], record: RunRecord) -> tuple[Phase, ...]:
    names = [(phase.stretch.phase, _name(phase)) for phase in found]
    repeated = [window.name for window in record.faults]
    published = []
    for i, phase in enumerate(found):
        place = names[i]
        # Violations are recorded by phase and fault name, so the counts are exact only if a pair belongs to a single
        # stretch of a single fault. Violations of a later control phase are counted with the recovery before it: some
        # were recorded before the recovery was known.
        is_unique = names.count(place) == 1 and repeated.count(place[1] or "") < 2 and (place[1] is not None or i == 0)
        bare = Phase(
            *place, phase.stretch.start_us, phase.stretch.end_us, _violations(record, place) if is_unique else {}
        )
        published.append(_with_output(bare, phase) if phase.is_known else bare)
    return tuple(published)


def _with_output(bare: Phase, phase: MeasuredPhase) -> Phase:
    output = phase.output
    results, observed = (0, 0) if output is None else (output.results, output.contributions)
    return replace(
        bare,
        latency={} if output is None else {name: spread.histogram() for name, spread in output.latency.items()},
        throughput_per_second=observed / phase.seconds if phase.seconds else None,
        results=results,
        observed=observed,
        resolution_seconds=_seconds(0 if output is None else output.resolution_us),
    )


def _name(phase: MeasuredPhase) -> str | None:
    return None if phase.stretch.fault is None else phase.stretch.fault.name


def _violations(record: RunRecord, place: tuple[str, str | None]) -> dict[str, int]:
    counts = dict.fromkeys(("missing", "duplicate", "misplaced", "unknown_id"), 0)
    for (phase, fault, name), count in record.by_phase.items():
        counted_with = "recovery" if phase == "control" and fault is not None else phase
        if (counted_with, fault) == place and name in counts:
            counts[name] += count
    return {name: max(0, count) for name, count in counts.items()}
