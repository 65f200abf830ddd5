"""Builds the published snapshot from progress, totals and run record. The snapshot contains only committed state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from validator.config.model import Config
from validator.core import split_sessions
from validator.core.suspicion import unproven_outputs
from validator.core.totals import CellTotals
from validator.model.classes import Guarantee, Verdict, ViolationClass, forbidding
from validator.model.envelopes import placed
from validator.model.frontier import UNREADABLE_POLICY, PartitionId, may_compact
from validator.model.grading import FORBID_LOSS, Doubt, grade, reasons
from validator.model.progress import IngestProgress
from validator.model.snapshot import FaultWindow, PartitionCoverage, SettledPositions, Snapshot
from validator.model.violation import Violation
from validator.model.wording import plural
from validator.publish.times import rfc3339
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.judge import VIOLATIONS
from validator.settings.durations import format_duration
from validator.state.acknowledgements import Acknowledgement
from validator.state.positions import Positions
from validator.stream.coverage_sums import answers_of, events_of, failed_sums
from validator.stream.doubt_sentences import configuration_doubts
from validator.stream.end_of_run import WHAT_TO_DO
from validator.stream.hidden_sentences import hidden_examples, not_examined, topics_without_use
from validator.stream.measuring import measured
from validator.stream.pair_sentences import examples_of
from validator.stream.run_record import RunRecord

_ANSWERS: Final = {"output": "results", "late": "late records", "rejected": "rejected records"}
"""Side -> its records, which answer contributions."""
_EVENTS_HAVE: Final = ("event has", "events have")
_COUNTS_ARE_WRONG: Final = (
    "do not rely on the counts; this is a defect of streamproof, of the machine or of the brokers"
)
_POISON: Final = "poison"
"""The fault kind that writes undecodable records (docs/faults.md)."""


def snapshot_of(
    config: Config, progress: IngestProgress, sums: CellTotals, record: RunRecord, positions: Positions | None = None
) -> Snapshot:
    """The snapshot after the batch of ``progress``. ``positions``: those of undecodable records."""
    differences = (*failed_sums(progress, sums), *(found.sentence for found in progress.differences))
    doubts = [
        *_end_doubts(record),
        *doubts_of(config, progress, record, sums, positions),
        *map(Doubt, _faults_recreated(config, progress)),
        *_absence_doubts(config, progress, record, sums),
        *_retired_in_doubt(config, sums),
    ]
    doubts += [Doubt(f"{sentence}: {_COUNTS_ARE_WRONG}") for sentence in differences]
    if sums.cells_refuted:
        doubts.append(Doubt(_refuted_sentence(sums)))
    retired = _retired_doubts(config, sums)
    class_of = evidence_of(config.oracle).class_of
    held = frozenset(map(class_of, record.suspicion.suspected(progress, sums)))
    confirmed = _confirmed_now(config, progress, sums, record, held)
    on_record = {class_of(name): count for name, count in sums.on_record.items()}
    on_record["undecodable"] = progress.undecodable("output")
    left = {class_of(name): count for name, count in sums.unproven.items() if count}
    suspects = {
        name: max(0, on_record.get(name, 0) - confirmed[name]) + left.get(name, 0) for name in sorted({*held, *left})
    }
    doubts += _unjudged(on_record, confirmed, held)
    unrecorded = _unrecorded(confirmed, record)
    acknowledged = record.acknowledged.left
    # Only recorded violations can be acknowledged.
    recorded = {name: min(count, record.confirmed_now.get(name, 0)) for name, count in confirmed.items()}
    opened = _unacknowledged(recorded, acknowledged)
    expected = record.expected()
    planned = _by_class(expected)
    costs = measured(config, progress, record)
    results = results_of(config, progress, sums)
    return Snapshot(
        pipeline=config.pipeline,
        guarantee=config.guarantee,
        cell_noun=config.oracle.cell_noun,
        taken_us=progress.lookup_us,
        verdicts=grade(confirmed, [*doubts, *retired], unclear=_unclear(config)),
        verdicts_over=_over(config, progress, record, [*doubts, *unrecorded], confirmed),
        reasons=reasons(confirmed, [*doubts, *retired, *unrecorded]),
        contributions=dict(sums.counts),
        results=results,
        results_total={name: max(count, record.results_most.get(name, 0)) for name, count in results.items()},
        processed_total=max(sums.counts["processed"], record.processed_most),
        inputs={
            "read": progress.records("input"),
            "undecodable": progress.undecodable("input"),
            "expired": progress.expired_of("input"),
            "out_of_scope": sums.counts["out_of_scope"],
        },
        unconsumed_overdue=sums.unconsumed_overdue,
        unconsumed_due_us=sums.unconsumed_due_us,
        late_records={"read": progress.records("late"), "undecodable": progress.undecodable("late")},
        cells={
            "seen": sums.cells_seen,
            "closed": sums.cells_closed,
            "verified": sums.cells_verified,
            "violated": sums.cells_violated,
            "open": sums.cells_seen - sums.cells_closed,
            "estimated": sums.cells_estimated,
            "sampled": sums.cells_sampled,
        },
        reliable_throughput_per_second=_throughput(progress, sums),
        latency={name: tally.frozen() for name, tally in record.latency.items()},
        latency_resolution_seconds=record.record_times.resolution_us / 1e6,
        latency_absent_because=_why_no_latency(record),
        phases=costs.phases,
        faults=record.faults,
        fault_measures=costs.faults,
        fault_absent_because=costs.absent_because,
        latency_by_phase={place: tally.frozen() for place, tally in record.latency_by_phase.items()},
        fault_violations=record.fault_violations(),
        violations={
            "confirmed": confirmed,
            "retracted": dict(record.retracted_total),
            "suspected": suspects,
        },
        violations_latest=tuple(
            _with_acknowledgement(v, record.acknowledged.entry(v.id)) for v in reversed(record.latest.values())
        ),
        examples=examples_of(config, sums.fit, confirmed),
        first_confirmed_us={
            name: instant for name, instant in record.first_confirmed_us.items() if confirmed.get(name)
        },
        confirmed_total=dict(record.confirmed_total),
        retracted_total=dict(record.retracted_total),
        coverage_complete=not differences
        and not (progress.expired or progress.replaced or progress.cut_back or progress.compacted),
        coverage=tuple(_coverage(progress)),
        events_accounted=events_of(progress, sums),
        answers_accounted=answers_of(progress, sums),
        read_twice=replace(record.read_twice),
        coverage_differences=differences,
        input_watermark_us=progress.watermark_us,
        batches=record.batches,
        batch_seconds=record.batch_seconds,
        input_events_per_second=record.events_per_second,
        detection_delay=record.detection.frozen(),
        restarts=record.restarts,
        state_bytes={},
        waiting_for=record.waiting_for,
        cannot_see=evidence_of(config.oracle).cannot_see,
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
        expected_now=record.expected_now(progress.lookup_us),
        unacknowledged_open=sum(opened.values()),
        settled_positions=_settled(positions) if positions is not None else (),
    )


def _with_acknowledgement(violation: Violation, found: Acknowledgement | None) -> Violation:
    if found is None:
        return violation
    by, at_us = found.by or None, found.time_us or None
    return replace(violation, acknowledged=found.reason, acknowledged_by=by, acknowledged_at_us=at_us)


def _settled(positions: Positions) -> tuple[SettledPositions, ...]:
    """The settled positions: one entry per partition and cause."""
    return tuple(
        SettledPositions(
            topic=partition.topic,
            partition=partition.partition,
            first_offset=stretches[0].first,
            last_offset=stretches[-1].last,
            records=sum(stretch.records for stretch in stretches),
            by="ack" if cause.topic is None else partition.topic if partition in positions.answers else cause.topic,
            reason=cause.reason,
        )
        for partition, causes in positions.by_cause.items()
        for cause, stretches in causes.items()
        if cause and stretches
    )


def results_of(config: Config, progress: IngestProgress, sums: CellTotals) -> dict[str, int]:
    """Class of result -> current number; ``read``: all results read."""
    # A class that is not judged is absent, not 0.
    of_class = evidence_of(config.oracle).value_class
    of_values: dict[str, int] = {} if of_class is None else {of_class: sums.results.get("wrong_value", 0)}
    return {
        "read": progress.records("output"),
        "correct": sums.results["correct"],
        "incomplete": sums.results["incomplete"],
        "excess": sums.results["excess"],
        "misplaced": sums.results["misplaced_results"],
        **of_values,
        "undecodable": progress.undecodable("output"),
        "tombstone": progress.tombstones("output"),
    }


def _unacknowledged(confirmed: Mapping[str, int], acknowledged: Mapping[tuple[str | None, str], int]) -> dict[str, int]:
    """Class -> confirmed contributions that are not acknowledged."""
    seen = _by_class(acknowledged)
    return {name: max(0, count - seen.get(name, 0)) for name, count in confirmed.items()}


def _unexpected(
    opened: Mapping[str, int],
    expected: Mapping[tuple[str, str], int],
    acknowledged: Mapping[tuple[str | None, str], int],
) -> dict[str, int]:
    """Class -> open violations that no fault's plan expects. An acknowledged one is neither open nor expected."""
    open_expected = dict(expected)
    for (fault, name), count in acknowledged.items():
        place = (fault or "", name)
        if place in open_expected:
            open_expected[place] = max(0, open_expected[place] - count)
    planned = _by_class(open_expected)
    return {name: max(0, count - planned.get(name, 0)) for name, count in opened.items()}


def _by_class(counts: Mapping[tuple[str | None, str], int] | Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Class -> sum over all faults of ``counts``, whose keys are (fault's name, class)."""
    sums: dict[str, int] = {}
    for (_, name), count in counts.items():
        sums[name] = sums.get(name, 0) + count
    return sums


def _confirmed_now(
    config: Config, progress: IngestProgress, sums: CellTotals, record: RunRecord, held: Iterable[str]
) -> dict[str, int]:
    """Violation class -> contributions (or results) that are confirmed and not retracted.

    ``held``: the classes of which nothing more is confirmed.
    """
    # A confirmed violation stays confirmed while it is on record, also if its cell was retired, or if its contributions
    # count as overdue again, for example because a topic was recreated.
    confirmed, evidence = {}, evidence_of(config.oracle)
    for column in VIOLATIONS:
        name = evidence.class_of(column)
        if column == "wrong_value" and evidence.value_class is None:
            continue
        recorded = min(sums.on_record.get(column, 0), record.confirmed_now.get(name, 0))
        proven = sums.violations(column) - sums.unproven.get(column, 0)
        confirmed[name] = recorded if name in held else max(recorded, proven)
    unproven = unproven_outputs(progress, sums)
    sure = sum(
        f.undecodable
        for partition, f in progress.frontiers.items()
        if f.side == "output" and partition.topic not in unproven
    )
    confirmed["undecodable"] = max(
        sure, min(record.confirmed_now.get("undecodable", 0), progress.undecodable("output"))
    )
    return confirmed | dict.fromkeys(map(evidence.class_of, record.suspicion.withdrawn(progress, sums)), 0)


def _retired_in_doubt(config: Config, sums: CellTotals) -> Iterator[Doubt]:
    """Suspected violations that can be neither confirmed nor explained, since the facts of their cells were dropped
    (SEMANTICS 4.18)."""
    for column, count in sums.unproven.items():
        if count:
            name = evidence_of(config.oracle).class_of(column)
            violations, were, it = ("violation", "was", "it") if count == 1 else ("violations", "were", "them")
            yield Doubt(
                f"{count:,} suspected {violations} of class {name} {were} in cells that state.retention dropped before "
                f"later records could confirm or explain {it}",
                forbidding(ViolationClass(name)),
            )


def _unjudged(on_record: Mapping[str, int], confirmed: Mapping[str, int], held: frozenset[str]) -> Iterator[Doubt]:
    """Violations on record that were suspected, and are not judged again yet (SEMANTICS 2.20): the doubt about them has
    ended, and newer records of their cells may explain them. ``held``: classes that are still suspected."""
    for name, now in confirmed.items():
        count = on_record.get(name, 0) - now
        if count > 0 and name not in held:
            yield Doubt(
                f"{plural(count, 'suspected violation')} of class {name} may be explained by newer records: "
                "the results are not judged again yet",
                forbidding(ViolationClass(name)),
            )


def _unrecorded(confirmed: Mapping[str, int], record: RunRecord) -> list[Doubt]:
    """Why the verdicts over an hour and a day are unknown.

    If violations are confirmed after their cells were retired, the instant of the confirmation is not recorded.
    """
    names = [name for name, count in confirmed.items() if count > record.confirmed_now.get(name, 0)]
    return [Doubt(f"it is not known when violations of class {', '.join(names)} were confirmed")] if names else []


def _unclear(config: Config) -> frozenset[ViolationClass]:
    """Return the classes that do not show whether a contribution was lost or repeated."""
    if config.oracle.reads.signed:
        # SEMANTICS 2.35: a lost change that removes an event looks like a repeat of one that adds it.
        return frozenset({ViolationClass.MISSING, ViolationClass.DUPLICATE, ViolationClass.WRONG_VALUE})
    stated = config.oracle.stated
    # An engine that drops late events may have lost none.
    are_clear = not stated.stated or (stated.show_number and config.timing.late_policy != "drop")
    return frozenset() if are_clear else frozenset({ViolationClass.WRONG_VALUE})


def _over(
    config: Config,
    progress: IngestProgress,
    record: RunRecord,
    doubts: Sequence[Doubt],
    confirmed: Mapping[str, int],
) -> Mapping[str, Mapping[Guarantee, Verdict]]:
    found = {}
    for span, minutes in {"1h": 60, "24h": 24 * 60}.items():
        since = record.recent.since(minutes, progress.lookup_us)
        # Violations that are no longer confirmed count toward no verdict.
        some = {name: min(count, confirmed.get(name, 0)) for name, count in since.items()}
        found[span] = grade(some, doubts, unclear=_unclear(config))
    return found


def absent_topic(topic: str, progress: IngestProgress) -> str:
    """Return a sentence that a topic does not exist; "yet" if it has never been read."""
    was_read = any(partition.topic == topic for partition in progress.frontiers)
    return f"topic {topic} does not exist{'' if was_read else ' yet'}"


def doubts_of(
    config: Config,
    progress: IngestProgress,
    record: RunRecord,
    sums: CellTotals,
    positions: Positions | None = None,
) -> tuple[Doubt, ...]:
    """Why the verdict is unknown (SEMANTICS 4.5); empty if nothing is in doubt. ``positions``: those of undecodable
    records."""
    doubts = [Doubt(absent_topic(topic, progress)) for topic in record.waiting_for]
    doubts += configuration_doubts(config, progress, sums, record.examples, waits=bool(record.waiting_for))
    sentences: list[str] = []
    poison = _poison(record.faults)
    sides = {partition: frontier.side for partition, frontier in progress.frontiers.items()}
    for side in ("input", "late", "rejected", "table"):
        count = progress.hidden(side)
        if count:
            wrote = f" ({poison} wrote such records)" if poison else ""
            read, would = plural(count, f"{side} record"), "it" if count == 1 else "they"
            where = not_examined(record.unexamined, sides, side)
            sentences.append(
                f"{read} could not be decoded, so it is not known which violations {would} would explain{wrote}{where}"
                + hidden_examples(config, progress, positions, record.examples, side)
            )
    sentences.extend(topics_without_use(config, progress))
    sentences.extend(
        f"no event of {partition} was read yet, and events before its start offset may belong to "
        "any cell: every cell is out of scope until an event of this partition is read"
        for partition in progress.partitions_with_hidden_start
    )
    expired = _expired(progress, record)
    for partition, count in expired.items():
        sentences.append(
            f"{plural(count, 'record')} of {partition} "
            f"expired before {'it' if count == 1 else 'they'} could be read (retention or a recreated topic)"
        )
    sentences.extend(_compacted(config, progress))
    if progress.supersedes(record.missing_after_us) and any(map(sums.violations, VIOLATIONS)):
        topics = " and ".join(config.oracle.reads.upserts)
        sentences.append(
            f"compaction may have removed records of topic {topics} that later ones replace, and that results still "
            "show: violations are confirmed once the pipeline has had timing.missing_after to read these"
        )
    sentences.extend(map(_recreated, sorted({partition.topic for partition in progress.replaced})))
    sentences.extend(
        f"the log of {partition} was cut back after it was read (unclean leader election or lost "
        "disk): the pipeline may have read other records at these offsets than the sidecar"
        for partition in sorted(progress.cut_back)
    )
    if where := not_examined(record.unexamined, sides, "output"):
        sentences.append(f"some results count as expired, although they may be correct{where}")
    expired_sides = {frontier.side for frontier in progress.frontiers.values() if frontier.unread_since_us is not None}
    if expired_sides and (overdue := sums.counts["overdue"]):
        kinds = [kind for side, kind in _ANSWERS.items() if side in expired_sides]
        sentences.append(
            f"{plural(overdue, 'contribution')} may have been answered in {' or '.join(kinds)} that expired"
            if kinds
            else f"{plural(overdue, 'contribution')} may belong to events that expired before the engine read them"
        )
    if sums.keys_scattered:
        keys, have = plural(sums.keys_scattered, "key"), "has" if sums.keys_scattered == 1 else "have"
        sentences.append(
            f"{keys} {have} results on several partitions, whose offsets do not show which result is newest: "
            f"{'it is' if sums.keys_scattered == 1 else 'they are'} not judged; write all results of a key to one "
            "partition"
        )
    if sums.rows_scattered:
        keys, have = plural(sums.rows_scattered, "key"), "has" if sums.rows_scattered == 1 else "have"
        sentences.append(
            f"{keys} {have} rows of the table on several partitions, whose offsets do not show their order: which rows "
            "their results may state is not judged; write all rows of a key to one partition, and begin with a new "
            "state.path"
        )
    if sums.doubtful:
        them_in = "it in its partition" if sums.doubtful == 1 else "them in their partitions"
        sentences.append(
            f"{plural(sums.doubtful, 'contribution')} without an answer may have been dropped correctly as late: "
            f"a record before {them_in} (unreadable, ignored, or beyond timing.max_ahead) may have moved the engine's "
            "watermark"
        )
    sentences.extend(_moved_elsewhere(config, sums))
    sentences.extend(split_sessions.sentences(sums))
    if sums.cells_settled == 0:
        clause = _settling_clause(record, sums) or ("" if record.has_ended else _watermark_clause(config, progress))
        sentences.append(f"nothing has settled yet: no cell is closed and judged{clause}")
    elif sums.cells_seen and not sums.cells_verified and not sums.cells_violated:
        sentences.append(
            "nothing has settled yet: every cell that is closed and judged is out of scope, because records before the "
            "first ones that were read may belong to it; later events settle cells in scope"
        )
    return (*doubts, *map(Doubt, sentences))


def _moved_elsewhere(config: Config, sums: CellTotals) -> Iterator[str]:
    """Sentences on what records of other partitions may explain (SEMANTICS 2.26)."""
    scope = config.timing.lateness_scope
    declared = (
        "set timing.lateness_scope: partition if they do not move it, idle if they do during a pause of its partition, "
        "and topic, task or global if they do at any time"
        if scope is None
        else f"timing.lateness_scope is {scope}, and the order in which an engine reads partitions is not known"
    )
    if scope == "idle" and config.oracle.excuses_pauses:
        half = format_duration(config.timing.idle_after_us // 2)
        declared = f"timing.lateness_scope is idle, and their partitions may have had no events for {half} before"
    if sums.elsewhere:
        them = "it" if sums.elsewhere == 1 else "them"
        yield (
            f"{plural(sums.elsewhere, 'contribution')} without an answer may have been dropped correctly as late: "
            "other partitions were past the window's end, and may have moved the engine's time before it read "
            f"{them}; {declared}"
        )
    if sums.unproven_splits:
        yield (
            f"sessions were answered in parts without a pause, {plural(sums.unproven_splits, 'time')}: an event may "
            "have been late for the earlier part, because of other partitions or of records that could not be read; "
            f"{declared}"
        )


def _expired(progress: IngestProgress, record: RunRecord) -> dict[PartitionId, int]:
    """Partition -> records that expired before they were read; only partitions that have some.

    Results that were not examined are left out: their frontier counts them as expired, but another doubt names them.
    """
    counts = {
        partition: frontier.expired - (record.unexamined[partition].records if partition in record.unexamined else 0)
        if frontier.side == "output"
        else frontier.expired
        for partition, frontier in sorted(progress.frontiers.items())
    }
    return {partition: count for partition, count in counts.items() if count > 0}


def _watermark_clause(config: Config, progress: IngestProgress) -> str:
    """The input partitions without a record, if nothing else holds back the watermark, as the end of a sentence."""
    inputs = {
        partition: frontier for partition, frontier in sorted(progress.frontiers.items()) if frontier.side == "input"
    }
    silent = [partition for partition, frontier in inputs.items() if frontier.newest_event_time_us is None]
    empty = [partition for partition in silent if inputs[partition].records == 0 and inputs[partition].lag_events == 0]
    if progress.watermark_us is not None or not empty or len(empty) < len(silent) or len(empty) == len(inputs):
        return ""
    names = " and ".join(map(str, empty[:2]))
    others = f" and {plural(len(empty) - 2, 'other partition')}" if len(empty) > 2 else ""
    return (
        f"; {names}{others} {'has' if len(empty) == 1 else 'have'} no record, so the input watermark waits for an "
        "event there; after timing.idle_after "
        f"({format_duration(config.timing.idle_after_us)}), an event in another partition is enough"
    )


def _settling_clause(record: RunRecord, sums: CellTotals) -> str:
    """What to do if a run with `--leave-open` has settled nothing, as the end of a sentence."""
    if not record.leaves_open or not sums.cells_seen:
        return ""
    if record.left_open_because is None:
        return (
            "; with --leave-open, cells stay open until the input watermark passes their end: run without it, or run "
            "again after later events"
        )
    return (
        f"; the pipeline was not at rest ({record.left_open_because}), so the end of the run settled no cell: run "
        "again on this state after timing.missing_after, run without --once, or stop the load and run again without "
        "--leave-open"
    )


def _faults_recreated(config: Config, progress: IngestProgress) -> Iterator[str]:
    """Why violations may lack an attribution: records of the recreated faults topic were never read."""
    if config.faults is not None and len(progress.faults_topics) > 1:
        yield _recreated(config.faults.topic)


def _recreated(topic: str) -> str:
    return f"topic {topic} was deleted and recreated: it is not known how many of its records were never read"


def _compacted(config: Config, progress: IngestProgress) -> Iterator[str]:
    """A sentence for each topic from which compaction may have removed unread records."""
    for topic in sorted({partition.topic for partition, frontier in progress.frontiers.items() if frontier.compacted}):
        frontiers = [frontier for partition, frontier in progress.frontiers.items() if partition.topic == topic]
        count = sum(frontier.compacted for frontier in frontiers)
        policy = frontiers[0].cleanup_policy
        if policy == UNREADABLE_POLICY:
            why = "cleanup.policy could not be read: grant DescribeConfigs on the topic"
        else:
            why = f"cleanup.policy={policy}" if may_compact(policy) else "cleanup.policy was compact"
        if topic in config.oracle.reads.upserts:
            why += "; it was not read to its end within half of delete.retention.ms, so these may be deletions of rows"
        yield (
            f"topic {topic} has {plural(count, 'offset')} without a visible record, and compaction may have removed "
            f"{'its record before it was' if count == 1 else 'their records before they were'} read ({why})"
        )


def _absence_doubts(config: Config, progress: IngestProgress, record: RunRecord, sums: CellTotals) -> list[Doubt]:
    """Doubts about contributions that are outstanding long enough to be missing, but may still arrive."""
    found = [*_group_doubts(config, progress, record, sums), *_unnamed_withdrawals(config, progress)]
    if sums.blocked_overdue:
        found.append(
            Doubt(
                f"an open transaction on an output, late or rejected topic may have held back the answers to "
                f"{plural(sums.blocked_overdue, 'event')} for more than "
                f"{format_duration(config.timing.missing_after_us)}, since {rfc3339(sums.blocked_due_us)}",
                FORBID_LOSS,
            )
        )
    elif record.has_ended and sums.blocked:
        found.append(Doubt(f"an open transaction may hold the answers to {plural(sums.blocked, 'event')}", FORBID_LOSS))
    # If the pipeline is not at rest, that is a reason of its own, or (with `--leave-open`) none.
    at_rest = record.has_ended and record.not_at_rest_because is None and record.left_open_because is None
    if unresolved := max(sums.counts["unresolved"], sums.held_long) if at_rest else sums.held_long:
        its_event = "its event" if unresolved == 1 else "their events"
        topics = "an input topic or the table" if config.oracle.tables else "an input topic"
        its_event += " or rows of the table" if config.oracle.tables else ""
        found.append(
            Doubt(
                f"{plural(unresolved, 'contribution')} in results, late or rejected records could not be judged: an "
                f"open transaction on {topics} may hold {its_event}; end that transaction, or abort it"
            )
        )
    return found


def _unnamed_withdrawals(config: Config, progress: IngestProgress) -> Iterator[Doubt]:
    """Doubts about null values on cumulative outputs with windows, or whose keys are in the value, and about deletions
    there whose row is absent: no one knows which results they withdraw."""
    for number, entry in enumerate(config.outputs):
        has_window = entry.fields.window_start is not None or entry.fields.window_end is not None
        if entry.emission != "cumulative" or (
            not has_window
            and all(placed(key.path, is_change=entry.envelope is not None)[0] for key in entry.fields.key)
        ):
            continue
        # SEMANTICS 4.5: the sidecar reads no window from a record without a value, wherever the window is.
        key = f"outputs[{number}].fields.key"
        why = (
            "since a null value names no window: compare the withdrawn windows with the events by hand"
            if has_window
            else f"since the key is in the value: take {key} from $key or $header.NAME, and begin with a new state.path"
        )
        what = "null value"
        if entry.envelope is not None:
            what = "withdrawal"
            why = "since it does not name it: let the writer state the row before a deletion, and write no null values"
        frontiers = [frontier for partition, frontier in progress.frontiers.items() if partition.topic == entry.topic]
        if nulls := sum(frontier.tombstones for frontier in frontiers):
            yield Doubt(
                f"{plural(nulls, what)} on topic {entry.topic} may have withdrawn any result, {why}",
                FORBID_LOSS,
            )


def _refuted_sentence(sums: CellTotals) -> str:
    """The sentence for cells whose ids differ although their fingerprints agree.

    Two sums of 64-bit hashes do not agree by chance for different ids.
    """
    count, all_of_them = sums.cells_refuted, sums.cells_sampled
    compared = "cell was" if all_of_them == 1 else "cells were"
    return (
        f"the expected and the found ids of {plural(count, 'cell')} differ though {'its' if count == 1 else 'their'} "
        f"fingerprints agree ({all_of_them} {compared} compared): do not rely on the fingerprints of other cells; "
        "this is a defect of streamproof or of the machine"
    )


def _retired_doubts(config: Config, sums: CellTotals) -> list[Doubt]:
    """Doubts about contributions that were undecided when retention dropped their cells.

    They make the verdict over the whole run unknown, and raise no alert: nothing can resolve them any more.
    """
    found = []
    if count := sums.unconsumed_retired:
        sentence = (
            f"{plural(count, 'event was', 'events were')} not consumed {_by_group(config)} when retention dropped"
        )
        found.append(Doubt(f"{sentence} {'its cell' if count == 1 else 'their cells'}", FORBID_LOSS))
    if count := sums.cells_undecided:
        sentence = f"retention dropped {plural(count, 'cell')} before the verdict was decided"
        why = "a topic did not exist or had an open transaction for twice state.retention"
        found.append(Doubt(f"{sentence}, because {why}; a new state begins without this doubt"))
    if count := sums.blocked_retired:
        sentence = f"an open transaction may have held the answers to {plural(count, 'event')} when retention dropped"
        found.append(Doubt(f"{sentence} {'its cell' if count == 1 else 'their cells'}", FORBID_LOSS))
    return found


def _by_group(config: Config) -> str:
    """A phrase for the consumer. The configuration may no longer name the group on which retired cells depended."""
    group = config.engine.consumer_group
    return "by the engine" if group is None else f"by group {group}"


def _group_doubts(config: Config, progress: IngestProgress, record: RunRecord, sums: CellTotals) -> list[Doubt]:
    """Doubts about events that the engine's group has not consumed: they are not lost, but may still get lost."""
    unconsumed, by_group = sums.unconsumed, _by_group(config)
    if record.has_ended and unconsumed:
        sentence = (
            f"{plural(unconsumed, *_EVENTS_HAVE)} not been consumed {by_group} at the end of the run, so that the "
            "pipeline is not at rest: let the engine continue, and run again"
        )
        return [Doubt(sentence + _group_problem(progress))]
    if sums.unconsumed_overdue:
        sentence = (
            f"{plural(sums.unconsumed_overdue, *_EVENTS_HAVE)} not been consumed {by_group} for more than "
            f"{format_duration(config.timing.missing_after_us)}, since {rfc3339(sums.unconsumed_due_us)}"
        )
        return [Doubt(sentence + _group_problem(progress), FORBID_LOSS)]
    return []


def _group_problem(progress: IngestProgress) -> str:
    """A problem with the committed offsets of the engine's group, as the end of a sentence; empty if there is none."""
    inputs = [
        (partition, frontier) for partition, frontier in sorted(progress.frontiers.items()) if frontier.side == "input"
    ]
    if all(frontier.committed_offset is None for _, frontier in inputs):
        return (
            "; the group has no committed offset on any input topic: engine.consumer_group is misspelt, the group's "
            "offsets were deleted or have expired, or the engine has not committed yet"
        )
    for partition, frontier in inputs:
        committed = frontier.committed_offset
        if committed is not None and committed > frontier.high_watermark:
            return (
                f"; the committed offset {committed} of {partition} is past the end of the log "
                f"({frontier.high_watermark}) and is ignored: it belongs to an earlier topic of that name"
            )
    return ""


def _end_doubts(record: RunRecord) -> list[Doubt]:
    """The doubt if a `--once` run is not at its end, or if the pipeline was not at rest there: that end then decides
    nothing."""
    if record.is_once and not record.has_ended:
        return [
            Doubt(
                "this run with --once has not reached its end, so records may be unread; if it was stopped, repeat it"
            )
        ]
    if record.not_at_rest_because is None:
        return []
    because = record.not_at_rest_because
    return [Doubt(f"the pipeline was not at rest ({because}), so open contributions stay open: {WHAT_TO_DO}")]


def _poison(faults: Iterable[FaultWindow]) -> str:
    """The injected faults that write undecodable records, with the name of the first; empty if there are none."""
    names = [fault.name for fault in faults if fault.kind == _POISON and fault.injected_us is not None]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"fault {names[0]}{more}" if names else ""


def _coverage(progress: IngestProgress) -> list[PartitionCoverage]:
    return [
        PartitionCoverage(
            role=frontier.side,
            topic=partition.topic,
            partition=partition.partition,
            first_offset=frontier.first_offset,
            next_offset=frontier.next_offset,
            high_watermark=frontier.high_watermark,
            last_stable_offset=frontier.last_stable_offset,
            records=frontier.records,
            expired=frontier.expired,
            invisible=frontier.invisible,
            newest_event_time_us=frontier.newest_event_time_us,
            read_through_us=frontier.read_through_us,
            lag_events=frontier.lag_events,
        )
        for partition, frontier in sorted(progress.frontiers.items())
    ]


def _why_no_latency(record: RunRecord) -> str | None:
    if not record.record_times.topics or any(any(tally.counts) for tally in record.latency.values()):
        return None
    topics = ", ".join(sorted(record.record_times.topics))
    return (
        f"CreateTime on {topics}: latency is measured from the instants at which the sidecar reads the records; "
        "a result counts only if neither it nor its inputs were in a backlog, and there is no such result yet"
    )


def _throughput(progress: IngestProgress, sums: CellTotals) -> float | None:
    """Distinct processed contributions per second of output broker time."""
    span = progress.output_span_us
    if span is None or span[1] <= span[0]:
        return None
    return sums.counts["processed"] / ((span[1] - span[0]) / 1e6)
