"""A run of twenty minutes as snapshots: steady load, one worker killed for 40 s, with the resulting losses and
duplicates.

The values have the shapes of a real sidecar's: totals that only grow, a backlog that shrinks, latency in the sidecar's
buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random

from tests.unit.publish_snapshots import NOON_US, SECOND, clean
from validator.measure.histogram import LATENCY_BOUNDS
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import FaultWindow, Histogram, PartitionCoverage, Phase, Snapshot
from validator.model.violation import Violation
from validator.publish.html_sections import PhaseLatency

SECONDS = 1200
STEP_SECONDS = 2
RATE_PER_SECOND = 480
INJECTED, HEALED = 840, 880
LOST, REPEATED = 37, 112
FAULT = "kill-one-worker"
NETWORK = "slow-broker"


def at(second: float) -> int:
    """Return the time of a second of the run in microseconds. The run ends at noon."""
    return NOON_US + int((second - SECONDS) * SECOND)


@cache
def story(seed: int = 7) -> tuple[Snapshot, ...]:
    """Return the snapshots in order, one per ``STEP_SECONDS``."""
    return tuple(_told(seed))


def _told(seed: int) -> Iterator[Snapshot]:
    random = Random(seed)
    read, processed, counts, top, total = 0, 0, [0] * (len(LATENCY_BOUNDS) + 1), 0.0, 0.0
    for second in range(0, SECONDS + 1, STEP_SECONDS):
        read += int(RATE_PER_SECOND * STEP_SECONDS * random.uniform(0.9, 1.1))
        down = INJECTED <= second < HEALED
        backlog = max(0, read - processed)
        catching_up = second > INJECTED and backlog > 1_200
        if not down:
            processed += min(backlog, int(RATE_PER_SECOND * STEP_SECONDS * (1.4 if catching_up else 1.0)))
        answered = 0 if down else 40
        for _ in range(answered):
            seconds = random.lognormvariate(-0.9, 0.5) + (backlog / RATE_PER_SECOND if catching_up else 0)
            counts[bisect_left(LATENCY_BOUNDS, seconds)] += 1
            top, total = max(top, seconds), total + seconds
        yield _snapshot(second, read, processed, Histogram(LATENCY_BOUNDS, tuple(counts), total, top))


def _snapshot(second: int, read: int, processed: int, latency: Histogram) -> Snapshot:
    lost = LOST if second >= HEALED + 120 else 0
    repeated = REPEATED if second >= HEALED + 20 else 0
    outstanding = max(0, read - processed - lost)
    overdue = outstanding // 3 if INJECTED + 30 <= second < HEALED + 60 else 0
    failed = Verdict.FAIL
    lossless = Verdict.FAIL if lost else Verdict.PASS
    healthy = replace(
        clean(),
        taken_us=at(second),
        contributions={**clean().contributions, "expected": read, "processed": processed, "late": read // 400}
        | {
            "missing": lost,
            "duplicate": repeated,
            "incorrect": 0,
            "overdue": overdue,
            "pending": outstanding - overdue,
        },
        results={**clean().results, "read": processed // 20, "correct": processed // 20},
        inputs={**clean().inputs, "read": read},
        cells={
            "seen": read // 20,
            "closed": read // 20 - 24,
            "verified": read // 20 - 30,
            "violated": 6,
            "open": 24,
            "estimated": 0,
            "sampled": 0,
        },
        latency={"last_input": latency},
        latency_absent_because=None,
        faults=faults(second),
        phases=phases(second),
        coverage=coverage(second, read, processed),
        input_watermark_us=at(second - 3),
        batches=second // STEP_SECONDS + 1,
        batch_seconds=0.61,
        input_events_per_second=RATE_PER_SECOND * 1.02,
        restarts=0 if second < 400 else 1,
        settled={"expected": processed, "handled": processed - lost, "exact": processed - lost - repeated},
    )
    if not repeated:
        return healthy
    return replace(
        healthy,
        verdicts={
            Guarantee.AT_MOST_ONCE: failed,
            Guarantee.AT_LEAST_ONCE: lossless,
            Guarantee.EXACTLY_ONCE: failed,
        },
        verdicts_over={over: dict.fromkeys(Guarantee, failed) for over in ("1h", "24h")},
        reasons=("112 confirmed duplicate, which exactly_once does not allow",)
        + (("37 confirmed missing, which exactly_once does not allow",) if lost else ()),
        violations={
            "confirmed": {"missing": lost, "duplicate": repeated},
            "retracted": {"missing": 2},
            "suspected": {},
        },
        violations_latest=tuple(violations(lost)),
        first_confirmed_us={"duplicate": at(HEALED + 20)} | ({"missing": at(HEALED + 120)} if lost else {}),
        violations_open={"missing": lost, "duplicate": repeated},
        fault_violations={"f-1": {"missing": lost, "duplicate": repeated}, "f-2": {}},
        fault_measures={"f-1": {"failure_cost_seconds": 58.4, "downtime_seconds": 38.0, "recovery_seconds": 71.5}},
    )


def faults(second: int) -> tuple[FaultWindow, ...]:
    """Return the faults injected up to ``second``."""
    shown = [
        FaultWindow("f-2", NETWORK, "network_delay", "broker-1", at(500), at(501), at(559), at(560)),
        FaultWindow("f-1", FAULT, "process_kill", "taskmanager-1", at(INJECTED), at(INJECTED + 1), None, None),
    ]
    if second >= HEALED:
        shown[1] = replace(shown[1], heal_started_us=at(HEALED - 5), healed_us=at(HEALED))
    return tuple(fault for fault in shown if fault.injected_us is not None and fault.injected_us <= at(second))


def phases(second: int) -> tuple[Phase, ...]:
    """Return the sidecar's phases up to ``second``. Each phase has its times and its fault, but no measures."""
    changes: list[tuple[str, str | None, int]] = [
        ("control", None, 499),
        ("failure", NETWORK, 500),
        ("recovery", NETWORK, 560),
    ]
    changes += [("failure", FAULT, INJECTED), ("recovery", FAULT, HEALED)]
    begun = [change for change in changes if change[2] <= second]
    ends: list[int | None] = [at(start) for _, _, start in begun[1:]]
    spans = zip(begun, [*ends, None], strict=True) if begun else ()
    return tuple(Phase(name, fault, at(start), end) for (name, fault, start), end in spans)


def latencies() -> tuple[PhaseLatency, ...]:
    """Return the latencies of each phase's results: the growth of the run's histogram during the phase."""

    def counted(instant_us: int) -> tuple[int, ...]:
        earlier = [one.latency["last_input"].counts for one in story() if one.taken_us < instant_us]
        return earlier[-1] if earlier else (0,) * (len(LATENCY_BOUNDS) + 1)

    found = []
    for phase in (Phase("control", None, at(0), at(499)), *phases(SECONDS)[1:]):
        ends = counted(phase.end_us or at(SECONDS + 1))
        counts = tuple(end - start for start, end in zip(counted(phase.start_us), ends, strict=True))
        name = phase.phase + (f", {phase.fault}" if phase.fault else "")
        found.append(PhaseLatency(name, {"last_input": Histogram(LATENCY_BOUNDS, counts, 0.0, None)}))
    return tuple(found)


def coverage(second: int, read: int, processed: int) -> tuple[PartitionCoverage, ...]:
    """Return three partitions of input, two of output, one of late records."""
    lag, each = (read - processed) % 700, read // 3
    through = at(second - 1)
    parts = [
        PartitionCoverage("input", "clickstream.events.v3", p, 0, each, each + lag, each + lag, each,
                          0, 0, at(second - 2), through, lag)
        for p in range(3)
    ]  # fmt: skip
    parts += [
        PartitionCoverage("output", "page-views-per-minute", p, 0, processed // 40, processed // 40, processed // 40,
                          processed // 40, 0, 0, None, through, 0)
        for p in range(2)
    ]  # fmt: skip
    late = read // 400
    return (*parts, PartitionCoverage("late", "late-clicks", 0, 0, late, late, late, late, 0, 0, None, through, 0))


def violations(lost: int) -> Iterator[Violation]:
    """Yield the newest violations, limited like the sidecar's."""
    kinds = [("duplicate", HEALED + 20, "counted again in a second result of the window")]
    if lost:
        kinds.append(("missing", HEALED + 120, "expected and in no result, late or rejected record"))
    for kind, second, said in kinds:
        for i in range(14):
            count = 8 if kind == "duplicate" else 3
            yield Violation(
                f"{kind[0]}{i:07x}", kind, "confirmed", at(INJECTED - 60 + 60 * (i % 3)),
                f"/products/{i * 37 % 100}/reviews", count,
                tuple(str(400_000 + 17 * i + k) for k in range(count)), at(second), at(second), "failure", FAULT,
                "known: replayed by hand" if kind == "missing" and i == 3 else None,
                f"{count} of 214 ids of the window are {said}.",
            )  # fmt: skip


def windows() -> dict[int, dict[str, int]]:
    """Return the final counts by class of each window of a minute, consistent with :func:`violations`."""
    each = RATE_PER_SECOND * 60
    judged = {at(second): {"expected": each, "processed": each} for second in range(0, SECONDS - 60, 60)}
    for count, kind in ((REPEATED, "duplicate"), (LOST, "missing")):
        for i in range(3):
            window = judged[at(INJECTED - 60 + 60 * i)]
            window[kind] = count // 3 + (i < count % 3)
            window["processed"] -= window[kind] if kind == "missing" else 0
    judged[at(SECONDS - 60)] = {"expected": each, "processed": each // 2, "pending": each // 2}
    return judged
