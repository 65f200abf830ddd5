"""The published state of the whole run after one committed batch, from which report, metrics and page are made.

Plain data, no I/O. Durations are in seconds, instants in microseconds since the epoch. An absent measure is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from validator.model.classes import Guarantee, Verdict
from validator.model.coverage import ReadTwice
from validator.model.violation import Violation


@dataclass(frozen=True)
class Histogram:
    """Bucket counts of a measure in seconds, not cumulative. ``counts[i]`` is the number of values in
    ``(bounds[i-1], bounds[i]]``. ``counts`` has one entry more than ``bounds``, for values above the last bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum_seconds: float
    max_seconds: float | None

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def quantile(self, q: float) -> float | None:
        """Return the upper bound of the bucket that contains quantile ``q``, capped by the maximum; None if empty."""
        total = self.count
        if total == 0:
            return None
        rank = max(1, -(-int(q * total * 1_000_000) // 1_000_000))
        seen = 0
        for i, n in enumerate(self.counts):
            seen += n
            if seen >= rank:
                top = self.bounds[i] if i < len(self.bounds) else self.max_seconds
                if top is None:
                    return self.max_seconds
                return top if self.max_seconds is None else min(top, self.max_seconds)
        return self.max_seconds


@dataclass(frozen=True)
class PartitionCoverage:
    """The record sum of one partition: ``records + expired + invisible == next_offset - first_offset``. ``invisible``
    is what the reader counted; it is not computed from the other terms."""

    role: str
    topic: str
    partition: int
    first_offset: int
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    records: int
    expired: int
    invisible: int
    newest_event_time_us: int | None
    read_through_us: int | None
    lag_events: int


@dataclass(frozen=True)
class FaultWindow:
    """One fault, as the faults topic reports it."""

    id: str
    name: str
    kind: str
    target: str
    injected_us: int | None
    verified_us: int | None
    heal_started_us: int | None
    healed_us: int | None
    expects: frozenset[str] = frozenset()  # classes of `EXPECTABLE` that its plan expects
    over_because: str | None = None  # why it ended early, in the words of the fault runner


@dataclass(frozen=True)
class Phase:
    """A phase of the run: control, failure or recovery (SEMANTICS section 6).

    ``contributions``: violations in the phase, by class; empty if they are not counted by phase. ``results``,
    ``observed``: number of results in the phase, and of ids in them. ``throughput_per_second``: ``observed`` per second
    of the phase. ``resolution_seconds``: the precision of the results' instants (0: broker time; None: not known).
    """

    phase: str
    fault: str | None
    start_us: int
    end_us: int | None
    contributions: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, Histogram] = field(default_factory=dict)
    throughput_per_second: float | None = None
    results: int | None = None
    observed: int | None = None
    resolution_seconds: float | None = 0.0


@dataclass(frozen=True)
class SettledPositions:
    """Undecodable records of one partition that hide nothing. ``by``: `ack`, or the rejected topic that names them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    by: str
    reason: str


@dataclass(frozen=True)
class CanaryMeasures:
    """How many planted violations the canary detected, over the last rounds that were due; None before the first round.

    ``judged_us``: instant at which the newest round was judged; until one was judged, the start of the canary.
    ``silent_after_us``: time within which a working canary judges the next round. ``delay_us_max``: the largest
    detection delay; None if nothing was detected.
    """

    judged_us: int
    silent_after_us: int
    recall_ratio: float | None
    class_recall_ratio: Mapping[str, float]
    delay_us_max: int | None
    false_alarms: int | None


@dataclass(frozen=True)
class Snapshot:
    """Everything that is published after a commit. Mapping keys are the names in docs/CONTRACT.md."""

    pipeline: str
    guarantee: Guarantee
    cell_noun: str  # what a sentence calls the time of a cell
    taken_us: int
    verdicts: Mapping[Guarantee, Verdict]
    verdicts_over: Mapping[str, Mapping[Guarantee, Verdict]]
    reasons: tuple[str, ...]
    contributions: Mapping[str, int]
    results: Mapping[str, int]
    inputs: Mapping[str, int]
    late_records: Mapping[str, int]
    cells: Mapping[str, int]
    reliable_throughput_per_second: float | None
    latency: Mapping[str, Histogram]
    latency_absent_because: str | None
    phases: tuple[Phase, ...]
    faults: tuple[FaultWindow, ...]
    violations: Mapping[str, Mapping[str, int]]  # state -> class -> count
    violations_latest: tuple[Violation, ...]
    confirmed_total: Mapping[tuple[str, str], int]  # (class, phase) -> ever confirmed, never falls
    retracted_total: Mapping[str, int]
    coverage_complete: bool
    coverage: tuple[PartitionCoverage, ...]
    input_watermark_us: int | None
    batches: int
    batch_seconds: float
    input_events_per_second: float | None
    detection_delay: Histogram
    restarts: int
    state_bytes: Mapping[str, int]
    fault_measures: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    fault_absent_because: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # fault id -> why a measure is None
    latency_by_phase: Mapping[tuple[str, str], Histogram] = field(
        default_factory=dict
    )  # (definition, phase), never falls
    latency_resolution_seconds: float = 0.0  # 0: broker time
    waiting_for: tuple[str, ...] = ()  # topics that do not exist
    cannot_see: tuple[str, ...] = ()  # sentences: what this oracle and evidence cannot find
    unacknowledged_open: int = 0
    settled: Mapping[str, int] = field(default_factory=dict)  # over settled cells: expected, handled, exact
    classified_total: Mapping[str, int] = field(default_factory=dict)  # class -> classifications ever made
    reclassified_total: Mapping[tuple[str, str], int] = field(default_factory=dict)  # (from, to) -> moves ever made
    violations_open: Mapping[str, int] | None = None  # class -> confirmed and not acknowledged; None: not known
    violations_expected: Mapping[str, int] = field(
        default_factory=dict
    )  # class -> confirmed violations that plans of faults expect
    violations_unexpected: Mapping[str, int] | None = None  # class -> open violations that no plan expects; None: all
    expected_now: frozenset[str] = frozenset()  # classes that the plan of a fault expects at this instant
    fault_violations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # fault id -> class -> confirmed
    first_confirmed_us: Mapping[str, int] = field(default_factory=dict)  # class -> instant since which any is confirmed
    batch_durations: Histogram | None = None  # of all batches, earlier runs included; None: metrics count this run
    examples: Mapping[str, str] = field(default_factory=dict)  # class -> an example of its violations, as a clause
    canary: CanaryMeasures | None = None  # None: not configured
    results_total: Mapping[str, int] = field(default_factory=dict)  # class -> largest count so far
    settled_positions: tuple[SettledPositions, ...] = ()  # undecodable records that hide nothing
    unconsumed_overdue: int = 0  # as in `CellTotals`
    unconsumed_due_us: int | None = None  # instant since which the first of them is due
    events_accounted: Mapping[str, int] = field(
        default_factory=dict
    )  # what became of the events that were read; ``read``: their number. None: not known
    answers_accounted: Mapping[str, int] = field(default_factory=dict)  # the same for all other records
    read_twice: ReadTwice = field(default_factory=ReadTwice)  # how much was read a second time
    coverage_differences: tuple[str, ...] = ()  # sums that do not hold, and second readings that differ
    loss_hint: str | None = None  # what the lost events have in common, as a sentence
    processed_total: int | None = None  # largest number of processed contributions so far; None: not kept
