"""The types of `report.json` and `violations.json`, as docs/CONTRACT.md describes them.

Instants are RFC 3339 in UTC, durations are seconds. None: a measure that is absent, which is never 0.
"""

from __future__ import annotations

from typing import TypedDict

Counts = dict[str, int | None]
"""Name in the contract -> number; None if it was not counted."""


class Latency(TypedDict):
    """A distribution of latencies: the number of values and quantiles in seconds."""

    count: int | None
    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


class EngineSettings(TypedDict):
    """The engine's settings; None: not stated, or the engine has no such setting."""

    commit_interval_seconds: float | None
    transaction_timeout_seconds: float | None
    checkpoint_mode: str | None
    session_timeout_seconds: float | None
    heartbeat_interval_seconds: float | None


class EffectiveGuarantee(EngineSettings):
    """The guarantee and the settings that the engine really runs with, from the file of `engine.effective`."""

    declared: str
    effective: str | None
    engine: str | None
    evidence: list[str]
    finding: str | None
    problem: str | None


class UnconsumedOverdue(TypedDict):
    """Contributions that are due, and that the engine's consumer group has not consumed."""

    contributions: int
    since: str | None


class Reliability(TypedDict):
    """Ratios over the settled cells, and the throughput of exact results."""

    handled_ratio: float | None
    exact_ratio: float | None
    reliable_throughput_per_second: float | None


class PhaseOfReport(TypedDict):
    """One phase of the run: control, failure or recovery."""

    phase: str
    fault: str | None
    start: str | None
    end: str | None
    contributions: Counts | None
    results: int | None
    observed_contributions: int | None
    latency_seconds: dict[str, Latency]
    throughput_per_second: float | None
    resolution_seconds: float | None


class FaultOfReport(TypedDict):
    """One fault with its times, its measures and the violations that are attributed to it."""

    id: str
    name: str
    kind: str
    target: str
    start: str | None
    verified: str | None
    heal_started: str | None
    healed: str | None
    failure_cost_seconds: float | None
    downtime_seconds: float | None
    recovery_seconds: float | None
    recovered: bool | None
    throughput_penalty_ratio: float | None
    latency_penalty_ratio: float | None
    control_start: str | None
    control_end: str | None
    resolution_seconds: float | None
    absent_because: list[str]
    expects: list[str]
    over_because: str | None
    violations: dict[str, int] | None


class ViolationCounts(TypedDict):
    """State -> class -> number. ``unacknowledged``: confirmed and not acknowledged. ``first_confirmed``: class ->
    start of the current period with confirmed violations. ``loss_hint``: what the lost events have in common, as a
    sentence. ``examples``: class -> what was expected beside what a result names, as a clause."""

    confirmed: dict[str, int]
    retracted: dict[str, int]
    suspected: dict[str, int]
    unacknowledged: dict[str, int]
    first_confirmed: dict[str, str | None]
    loss_hint: str | None
    examples: dict[str, str]


class SettledRange(TypedDict):
    """A range of settled undecodable records. ``by``: `ack`, or the rejected topic whose records name them."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    by: str
    reason: str


class PartitionOfReport(TypedDict):
    """The record sum of one partition, and how far it was read."""

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
    newest_event_time: str | None
    read_through: str | None
    lag_events: int


class CoverageSums(TypedDict):
    """``records + expired + invisible == offsets_spanned``, over all partitions. The reader counts the offsets without
    a visible record (``invisible``) before it decodes anything; the fact rows count the records."""

    records: int
    expired: int
    invisible: int
    offsets_spanned: int


class SecondReading(TypedDict):
    """How much was read a second time. ``not_done``: ranges that could not be read again."""

    ranges: int
    offsets: int
    not_done: int


class Coverage(TypedDict):
    """How much of the topics was read, and whether the sums agree.

    ``events``, ``answers``: the number of records that were read (``read``), and what became of them, which adds up to
    it. ``differences``: a sentence for each sum that does not hold, and for each range whose second reading differs.
    """

    complete: bool
    sums: CoverageSums
    events: dict[str, int]
    answers: dict[str, int]
    second_reading: SecondReading
    differences: list[str]
    partitions: list[PartitionOfReport]


class DetectionDelay(TypedDict):
    """Seconds from the instant at which a violation became provable to its confirmation."""

    p50: float | None
    p99: float | None
    max: float | None


class SidecarStatus(TypedDict):
    """The sidecar itself."""

    version: str
    batches: int
    batch_seconds: float
    input_events_per_second: float | None
    detection_delay_seconds: DetectionDelay
    restarts: int
    state_bytes: dict[str, int]


class Report(TypedDict):
    """`report.json`: the whole run after one committed batch."""

    schema: int
    pipeline: str
    time: str | None
    guarantee: str
    cell_noun: str
    outcome: str
    verdicts: dict[str, str]
    verdicts_over: dict[str, dict[str, str | None]]
    reasons: list[str]
    effective_guarantee: EffectiveGuarantee | None
    contributions: Counts
    unconsumed_overdue: UnconsumedOverdue
    results: Counts
    inputs: Counts
    late_records: Counts
    cells: Counts
    reliability: Reliability
    latency_seconds: dict[str, Latency]
    latency_resolution_seconds: float
    latency_absent_because: str | None
    phases: list[PhaseOfReport]
    faults: list[FaultOfReport]
    violations: ViolationCounts
    violations_unacknowledged: int
    settled_positions: list[SettledRange]
    coverage: Coverage
    input_watermark: str | None
    waiting_for: list[str]
    cannot_see: list[str]
    validator: SidecarStatus


ViolationOfReport = TypedDict(
    "ViolationOfReport",
    {
        "id": str,
        "class": str,
        "state": str,
        "window_start": str | None,
        "key": str,
        "count": int,
        "ids": list[str],
        "first": str | None,
        "changed": str | None,
        "phase": str,
        "fault": str | None,
        "acknowledged": str | None,
        "acknowledged_by": str | None,
        "acknowledged_at": str | None,
        "explanation": str,
    },
)
"""One violation: a cell and a class, with a bounded sample of ids as evidence."""


class ViolationsReport(TypedDict):
    """`violations.json`: the newest violations. ``counts``: state -> total number of contributions and results."""

    schema: int
    pipeline: str
    time: str | None
    counts: dict[str, int]
    violations: list[ViolationOfReport]
