"""Books, sums and record to the snapshot that is published: only what is committed, nothing is computed anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from validator.config.model import Config
from validator.model.books import Books
from validator.model.classes import Guarantee, Verdict
from validator.model.grading import grade, reasons
from validator.model.snapshot import FaultWindow, PartitionCoverage, Snapshot
from validator.reconcile.judge import VIOLATIONS
from validator.stream.judging import Sums
from validator.stream.measuring import measured
from validator.stream.run_record import RunRecord

_POISON: Final = "poison"
"""The kind of fault (docs/faults.md)."""


def snapshot_of(config: Config, books: Books, sums: Sums, record: RunRecord) -> Snapshot:
    """The snapshot after the batch that ``books`` stand at."""
    coverage = tuple(_coverage(books))
    complete = all(part.invisible >= 0 for part in coverage)
    doubts = list(doubts_of(books, record, sums))
    if not complete:
        doubts.append("the books do not balance: more records were counted than offsets were spanned")
    held = record.suspected(books, sums)
    confirmed = _confirmed_now(books, sums, record, held)
    suspected = {name: max(0, sums.on_record.get(name, 0) - confirmed[name]) for name in sorted(held)}
    untold = _untold(confirmed, record)
    acknowledged = record.acknowledged.left
    # What nobody told, nobody could acknowledge.
    told = {name: min(count, record.confirmed_now.get(name, 0)) for name, count in confirmed.items()}
    opened = _unacknowledged(told, acknowledged)
    expected = record.expected()
    planned = _by_class(expected)
    costs = measured(config, books, record)
    results = results_of(books, sums)
    return Snapshot(
        pipeline=config.pipeline,
        guarantee=config.guarantee,
        taken_us=books.lookup_us,
        verdicts=grade(confirmed, doubts),
        verdicts_over=_over(books, record, [*doubts, *untold], confirmed),
        reasons=reasons(confirmed, [*doubts, *untold]),
        contributions=dict(sums.counts),
        results=results,
        results_total={name: max(count, record.results_most.get(name, 0)) for name, count in results.items()},
        processed_total=max(sums.counts["processed"], record.processed_most),
        inputs={
            "read": books.records("input"),
            "undecodable": books.undecodable("input"),
            "expired": books.expired_of("input"),
            "out_of_scope": sums.counts["out_of_scope"],
        },
        late_records={"read": books.records("late"), "undecodable": books.undecodable("late")},
        cells={
            "seen": sums.cells_seen,
            "closed": sums.cells_closed,
            "verified": sums.cells_verified,
            "violated": sums.cells_violated,
            "open": sums.cells_seen - sums.cells_closed,
        },
        reliable_throughput_per_second=_throughput(books, sums),
        latency={name: tally.frozen() for name, tally in record.latency.items()} if record.has_broker_time else {},
        latency_absent_because=None
        if record.has_broker_time
        else "a topic has CreateTime: its record timestamps are what the producer wrote, so no latency is known",
        phases=costs.phases,
        faults=record.faults,
        fault_measures=costs.faults,
        fault_absent_because=costs.absent_because,
        latency_by_phase={place: tally.frozen() for place, tally in record.latency_by_phase.items()},
        fault_violations=record.fault_violations(),
        violations={
            "confirmed": confirmed,
            "retracted": dict(record.retracted_total),
            "suspected": suspected,
        },
        violations_latest=tuple(
            replace(v, acknowledged=record.acknowledged.reason(v.id)) for v in reversed(record.latest.values())
        ),
        first_confirmed_us={
            name: instant for name, instant in record.first_confirmed_us.items() if confirmed.get(name)
        },
        confirmed_total=dict(record.confirmed_total),
        retracted_total=dict(record.retracted_total),
        coverage_complete=complete and not books.expired and not books.replaced,
        coverage=coverage,
        input_watermark_us=books.watermark_us,
        batches=record.batches,
        batch_seconds=record.batch_seconds,
        input_events_per_second=record.events_per_second,
        detection_delay=record.detection.frozen(),
        restarts=record.restarts,
        state_bytes={},
        waiting_for=record.waiting_for,
        settled={
            "expected": sums.settled_expected,
            "handled": sums.settled_handled,
            "exact": sums.settled_exact,
        },
        classified_total=dict(record.classified_total),
        reclassified_total=dict(record.reclassified_total),
        batch_durations=record.durations.frozen(),
        violations_open=opened,
        violations_expected={name: min(count, planned.get(name, 0)) for name, count in confirmed.items()},
        violations_unexpected=_unexpected(opened, expected, acknowledged),
        expected_now=record.expected_now(books.lookup_us),
        unacknowledged_open=sum(opened.values()),
    )


def results_of(books: Books, sums: Sums) -> dict[str, int]:
    """Class of result -> how many there are now, and all that were read."""
    return {
        "read": books.records("output"),
        "correct": sums.results["correct"],
        "incomplete": sums.results["incomplete"],
        "excess": sums.results["excess"],
        "misplaced": sums.results["misplaced_results"],
        # Nothing compares values yet: `inconsistent` and `wrong_value` are absent, not 0.
        "undecodable": books.undecodable("output"),
        "tombstone": books.tombstones,
    }


def _unacknowledged(confirmed: Mapping[str, int], acknowledged: Mapping[tuple[str | None, str], int]) -> dict[str, int]:
    """Class -> confirmed and not acknowledged: what the alert is about."""
    seen = _by_class(acknowledged)
    return {name: max(0, count - seen.get(name, 0)) for name, count in confirmed.items()}


def _unexpected(
    opened: Mapping[str, int],
    expected: Mapping[tuple[str, str], int],
    acknowledged: Mapping[tuple[str | None, str], int],
) -> dict[str, int]:
    """Class -> open violations that no fault's plan expects. What was acknowledged of the expected is in neither."""
    open_expected = dict(expected)
    for (fault, name), count in acknowledged.items():
        place = (fault or "", name)
        if place in open_expected:
            open_expected[place] = max(0, open_expected[place] - count)
    planned = _by_class(open_expected)
    return {name: max(0, count - planned.get(name, 0)) for name, count in opened.items()}


def _by_class(counts: Mapping[tuple[str | None, str], int] | Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Class -> the sum over the faults of ``counts``, whose places are (fault's name, class)."""
    sums: dict[str, int] = {}
    for (_, name), count in counts.items():
        sums[name] = sums.get(name, 0) + count
    return sums


def _confirmed_now(books: Books, sums: Sums, record: RunRecord, held: Iterable[str]) -> dict[str, int]:
    """Violation class -> contributions (or results) that are confirmed and not retracted. ``held``: the classes of
    which no further cell is confirmed."""
    # What was told stays so while it is on record: of cells that are retired by now too, and though time, or a topic
    # that was made again, calls it overdue.
    told = {name: min(sums.on_record.get(name, 0), record.confirmed_now.get(name, 0)) for name in VIOLATIONS}
    confirmed = {name: told[name] if name in held else max(told[name], sums.counts[name]) for name in VIOLATIONS}
    confirmed["undecodable"] = books.undecodable("output")
    return confirmed


def _untold(confirmed: Mapping[str, int], record: RunRecord) -> list[str]:
    """Why the verdicts over an hour and a day are unknown, where violations were retired while they were suspected: of
    those nobody told when they were confirmed."""
    names = [name for name, count in confirmed.items() if count > record.confirmed_now.get(name, 0)]
    return [f"when violations of class {', '.join(names)} were confirmed is not known"] if names else []


def _over(
    books: Books, record: RunRecord, doubts: Sequence[str], confirmed: Mapping[str, int]
) -> Mapping[str, Mapping[Guarantee, Verdict]]:
    found = {}
    for span, minutes in {"1h": 60, "24h": 24 * 60}.items():
        since = record.recent.since(minutes, books.lookup_us)
        # What is not confirmed any more by now counts toward no verdict.
        found[span] = grade({name: min(count, confirmed.get(name, 0)) for name, count in since.items()}, doubts)
    return found


def doubts_of(books: Books, record: RunRecord, sums: Sums) -> tuple[str, ...]:
    """Why the validator cannot vouch, as sentences; empty where it can."""
    said: list[str] = list(record.troubles)
    said.extend(f"topic {topic} does not exist yet" for topic in record.waiting_for)
    poison = _poison(record.faults)
    for side in ("input", "late", "rejected"):
        count = books.undecodable(side)
        if count:
            wrote = f" ({poison} wrote such records)" if poison else ""
            said.append(f"{count} {side} records could not be decoded, so what they would explain is not known{wrote}")
    said.extend(
        f"{place.topic}-{place.partition} has shown no event yet, so how old the events before its start are is not "
        "known: every cell is out of scope until it does"
        for place in books.hiding
    )
    for place, frontier in sorted(books.frontiers.items()):
        if frontier.expired:
            said.append(
                f"{frontier.expired} records of {place.topic}-{place.partition} were gone before they could be read "
                "(retention or a recreated topic)"
            )
    said.extend(
        f"topic {topic} was deleted and made again while it was read: how much of it was never read is not known"
        for topic in sorted({place.topic for place in books.replaced})
    )
    if any(f.gone_us is not None and f.side != "input" for f in books.frontiers.values()) and (
        overdue := sums.counts["overdue"]
    ):
        said.append(f"{overdue} contributions may have been answered in output that is gone")
    if sums.doubtful:
        said.append(
            f"{sums.doubtful} contributions without an answer may rightly have been dropped as late: before them in "
            "their partition came what could not be read, or an event further ahead than timing.max_ahead"
        )
    if sums.cells_settled == 0:
        said.append("nothing has settled yet: no cell is closed and judged")
    return tuple(said)


def _poison(faults: Iterable[FaultWindow]) -> str:
    """The faults that write what cannot be decoded, the first by its name; nothing where none struck."""
    names = [fault.name for fault in faults if fault.kind == _POISON and fault.injected_us is not None]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"fault {names[0]}{more}" if names else ""


def _coverage(books: Books) -> list[PartitionCoverage]:
    return [
        PartitionCoverage(
            role=frontier.side,
            topic=place.topic,
            partition=place.partition,
            first_offset=frontier.first_offset,
            next_offset=frontier.next_offset,
            high_watermark=frontier.high_watermark,
            last_stable_offset=frontier.last_stable_offset,
            records=frontier.records,
            expired=frontier.expired,
            invisible=frontier.next_offset - frontier.first_offset - frontier.records - frontier.expired,
            newest_event_time_us=frontier.newest_event_time_us,
            read_through_us=frontier.read_through_us,
            lag_events=frontier.lag_events,
        )
        for place, frontier in sorted(books.frontiers.items())
    ]


def _throughput(books: Books, sums: Sums) -> float | None:
    """Distinct processed contributions per second of output broker time."""
    span = books.output_span_us
    if span is None or span[1] <= span[0]:
        return None
    return sums.counts["processed"] / ((span[1] - span[0]) / 1e6)
