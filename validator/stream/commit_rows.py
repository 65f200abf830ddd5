"""Rows of the facts table: a batch appends its fact rows, frontier rows and marks in one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import PAUSED, TOMBSTONE, UNDECODABLE, UNEXAMINED, UNOWED, WITH_A_CELL
from validator.model.frontier import Frontier, PartitionId, PartitionSummary, RunEnd
from validator.model.progress import IngestProgress, OffsetGap
from validator.reconcile.facts import Kind, Side
from validator.reconcile.lateness import Lateness, offset_gap_row
from validator.state.positions import log_reset_mark
from validator.state.tables import Table, rows_of

EPOCHS_PER_RETENTION: Final = 24
_REPLACED: Final = "replaced "
_CUT_BACK: Final = "cut_back "
_FAULTS: Final = "faults_topic "
_OUTAGE: Final = "outage "
_FORMER: Final = "former_id "
_SUPERSEDED: Final = "superseded"
_EPOCH_US_MAX: Final = 3_600_000_000


def epoch_length_us(retention_us: int) -> int:
    """Length of an epoch of facts in microseconds. Retention drops whole epochs."""
    return max(1_000_000, min(_EPOCH_US_MAX, retention_us // EPOCHS_PER_RETENTION))


def epoch_of(lookup_us: int, retention_us: int) -> int:
    """Epoch of a batch with this lookup instant: the epoch's start, in seconds since the Unix epoch."""
    length_us = epoch_length_us(retention_us)
    return lookup_us // length_us * length_us // 1_000_000


def frontier_rows(progress: IngestProgress, watermark_before_us: int | None, retention_us: int) -> pa.Table:
    """The frontier rows of the batch of ``progress``.

    They have the offsets and read-through times after this batch, and the counts and watermark after the previous one.
    """
    rows = [
        {
            "kind": Kind.FRONTIER.value,
            "batch": progress.batch,
            "lookup_us": progress.lookup_us,
            "side": frontier.side,
            "topic": partition.topic,
            "partition": partition.partition,
            "epoch": epoch_of(progress.lookup_us, retention_us),
            "frontier": _frontier_value(frontier, watermark_before_us),
        }
        for partition, frontier in sorted(progress.frontiers.items())
    ]
    return rows_of(Table.FACTS, rows)


def mark_row(progress: IngestProgress, mark: str, retention_us: int) -> pa.Table:
    """The row of a mark. A mark is a decision of the batch of ``progress``; recovery repeats the decision."""
    row = {
        "kind": Kind.MARK.value,
        "batch": progress.batch,
        "lookup_us": progress.lookup_us,
        "mark": mark,
        "epoch": epoch_of(progress.lookup_us, retention_us),
    }
    return rows_of(Table.FACTS, [row])


def offset_gap_rows(
    progress: IngestProgress, offset_gaps: Sequence[OffsetGap], reach_us: int, retention_us: int
) -> pa.Table:
    """Fact rows of input offsets whose records can no longer be read, found in the batch of ``progress``.

    ``reach_us``: the latest window end that the engine may have passed because of such a record.
    """
    of_batch = {
        "batch": progress.batch,
        "lookup_us": progress.lookup_us,
        "epoch": epoch_of(progress.lookup_us, retention_us),
    }
    found = [
        offset_gap_row(it.partition_id.topic, it.partition_id.partition, it.before_offset, reach_us)
        for it in offset_gaps
    ]
    return rows_of(Table.FACTS, [row | of_batch for row in found])


def pause_rows(progress: IngestProgress, facts: pa.Table | None, known: Lateness, retention_us: int) -> pa.Table:
    """Fact rows of pauses of input partitions: what other partitions have passed by the batch of ``progress``.

    ``facts``: those of the batch. ``known``: the reaches of the facts before.
    """
    seen = Lateness()
    if facts is not None:
        seen.absorb(facts)
    reached = known.furthest()
    for passed, end_us in seen.furthest().items():
        reached[passed] = max(end_us, reached.get(passed, end_us))
    found = []
    for partition, frontier in sorted(progress.frontiers.items()):
        place = partition.topic, partition.partition
        of_others = [end_us for other, end_us in reached.items() if other != place]
        if not frontier.pauses or not of_others:
            continue
        # SEMANTICS 2.31: what the others have passed holds for all events after the oldest pause.
        row = offset_gap_row(*place, frontier.pauses[0][0], max(of_others)) | {"status": PAUSED}
        if known.adds(place, row["reach_us"], row["first_offset"]):
            found.append(row | {"batch": progress.batch, "lookup_us": progress.lookup_us})
    epoch = epoch_of(progress.lookup_us, retention_us)
    return rows_of(Table.FACTS, [row | {"epoch": epoch} for row in found])


def skipped_row(
    progress: IngestProgress, partition: PartitionId, offset: int, reach_us: int, retention_us: int
) -> pa.Table:
    """The fact row of a skipped record, which does not fit into memory, in the batch of ``progress``."""
    side = progress.frontiers[partition].side
    row = {
        "kind": Kind.FACT.value,
        "batch": progress.batch,
        "lookup_us": progress.lookup_us,
        "epoch": epoch_of(progress.lookup_us, retention_us),
        "side": side,
        "topic": partition.topic,
        "partition": partition.partition,
        "status": UNEXAMINED if side == Side.OUTPUT.value else UNDECODABLE,
        "key": "it does not fit into the memory that limits.worker_bytes allows",
        "reach_us": reach_us if side == Side.INPUT.value else None,
        "records": 1,
        "contributions": 0,
        "hash_a": 0,
        "hash_b": 0,
        "first_offset": offset,
        "last_offset": offset,
    }
    return rows_of(Table.FACTS, [row])


def rest_mark(run_end: RunEnd) -> str:
    """The mark of the end of a `--once` run."""
    return f"rest_{run_end.value}"


def topic_marks(before: IngestProgress, progress: IngestProgress) -> list[str]:
    """Marks of the changes to topics, of outages, and of differences that second readings found: those that are in
    ``progress`` and not in ``before``."""
    replaced, cut_back = progress.replaced - before.replaced, progress.cut_back - before.cut_back
    faults = [f"{_FAULTS}{topic_id}" for topic_id in sorted(progress.faults_topics - before.faults_topics)]
    former = [f"{_FORMER}{topic_id}" for topic_id in sorted(progress.former_ids - before.former_ids)]
    resets = [log_reset_mark(*where) for where in log_resets(before, progress)]
    outages = [f"{_OUTAGE}{began} {ended}" for began, ended in sorted({*progress.outages} - {*before.outages})]
    partitions = [*map(replaced_mark, sorted(replaced)), *map(_cut_back_mark, sorted(cut_back))]
    differences = [found.to_mark() for found in progress.differences if found not in before.differences]
    is_superseded = progress.superseded_us not in (None, before.superseded_us)
    superseded = [_SUPERSEDED] if is_superseded else []
    return [*partitions, *faults, *former, *resets, *outages, *differences, *superseded]


def log_resets(before: IngestProgress, progress: IngestProgress) -> list[tuple[PartitionId, int]]:
    """The partitions whose logs were recreated or cut back since ``before``, with the first offset that changed."""
    both = [(partition, known, progress.frontiers[partition]) for partition, known in before.frontiers.items()]
    return [
        (partition, 0 if known.topic_id != now.topic_id else now.next_offset)
        for partition, known, now in sorted(both, key=lambda it: it[0])
        if known.topic_id != now.topic_id or now.next_offset < known.next_offset
    ]


def replaced_mark(partition: PartitionId) -> str:
    """The mark of a partition whose topic was deleted and recreated."""
    return f"{_REPLACED}{partition.topic}/{partition.partition}"


def _cut_back_mark(partition: PartitionId) -> str:
    return f"{_CUT_BACK}{partition.topic}/{partition.partition}"


def replaced_by(marks: Iterable[str]) -> frozenset[PartitionId]:
    """The partitions that the marks of `replaced_mark` name. Other marks are ignored."""
    return _named(marks, _REPLACED)


def cut_back_by(marks: Iterable[str]) -> frozenset[PartitionId]:
    """The partitions whose log was cut back, from their marks."""
    return _named(marks, _CUT_BACK)


def faults_topics_by(marks: Iterable[str]) -> frozenset[str]:
    """The topic ids of the faults topic, from their marks."""
    return frozenset(mark.removeprefix(_FAULTS) for mark in marks if mark.startswith(_FAULTS))


def former_ids_by(marks: Iterable[str]) -> frozenset[str]:
    """The ids of topics that were recreated, from their marks."""
    return frozenset(mark.removeprefix(_FORMER) for mark in marks if mark.startswith(_FORMER))


def outages_by(marks: Iterable[str]) -> list[tuple[int, int]]:
    """The outages, (start, end) in microseconds, from their marks."""
    found = [mark.removeprefix(_OUTAGE).split() for mark in marks if mark.startswith(_OUTAGE)]
    return [(int(began), int(ended)) for began, ended in found]


def superseded_by(marks: Iterable[tuple[str, int, int]]) -> tuple[int, int] | None:
    """The newest batch and its lookup, among marks with theirs, for `IngestProgress.superseded_us`."""
    return max(((batch, lookup_us) for mark, batch, lookup_us in marks if mark == _SUPERSEDED), default=None)


def _named(marks: Iterable[str], prefix: str) -> frozenset[PartitionId]:
    named = [mark.removeprefix(prefix).rsplit("/", 1) for mark in marks if mark.startswith(prefix)]
    return frozenset(PartitionId(topic, int(partition)) for topic, partition in named)


def _frontier_value(frontier: Frontier, watermark_us: int | None) -> Mapping[str, object]:
    return {
        "topic_id": frontier.topic_id,
        "first_offset": frontier.first_offset,
        "next_offset": frontier.next_offset,
        "log_start_offset": frontier.log_start_offset,
        "high_watermark": frontier.high_watermark,
        "last_stable_offset": frontier.last_stable_offset,
        "committed_offset": frontier.committed_offset,
        "expired": frontier.expired,
        "records": frontier.records,
        "undecodable": frontier.undecodable,
        "tombstones": frontier.tombstones,
        "unowed": frontier.unowed,
        "first_time_us": frontier.first_time_us,
        "last_time_us": frontier.last_time_us,
        "hidden_start": frontier.hidden_start,
        "horizon_us": frontier.horizon_us,
        "read_through_us": frontier.read_through_us,
        "last_data_us": frontier.last_data_us,
        "newest_event_time_us": frontier.newest_event_time_us,
        "gone_us": frontier.unread_since_us,
        "appended_after_us": frontier.appended_after_us,
        "unprovable_below": frontier.unprovable_below,
        "event_after_us": frontier.event_after_us,
        "pauses": None
        if frontier.pauses is None
        else [{"offset": offset, "until_us": until_us} for offset, until_us in frontier.pauses],
        "pause_us": frontier.pause_us,
        "read_through_before_us": frontier.read_through_before_us,
        "cleanup_policy": frontier.cleanup_policy,
        "compacted_below": frontier.compacted_below,
        "compacted": frontier.compacted,
        "markers": frontier.markers,
        "watermark_us": watermark_us,
    }


def frontier_from(row: Mapping[str, object]) -> tuple[PartitionId, Frontier]:
    """The frontier in a row of the facts table, given as a nested dict."""
    value = row["frontier"]
    assert isinstance(value, dict)
    kept = {name: value[name] for name in value if name != "watermark_us"}
    kept["unread_since_us"] = kept.pop("gone_us")
    if (pauses := kept["pauses"]) is not None:
        kept["pauses"] = tuple((one["offset"], one["until_us"]) for one in pauses)
    topic, number = str(row["topic"]), int(str(row["partition"]))
    return PartitionId(topic, number), Frontier(side=str(row["side"]), topic=topic, partition=number, **kept)


_SUMMARISED: Final = (
    *("kind", "side", "topic", "partition", "status", "records", "first_offset", "first_time_us", "last_time_us"),
    *("newest_event_time_us", "first_event_time_us"),
)


def summaries(facts: pa.Table) -> list[PartitionSummary]:
    """A summary of fact rows per partition, in the order of topic and partition."""
    # Only the columns needed are selected, so that lists of ids are not copied.
    facts = facts.select(_SUMMARISED).filter(pc.field("kind") == Kind.FACT.value)
    groups = facts.group_by(["topic", "partition", "side", "status"]).aggregate(
        [("records", "sum"), ("newest_event_time_us", "max"), ("first_time_us", "min"), ("last_time_us", "max")]
    )
    by_partition: dict[PartitionId, list[dict[str, Any]]] = {}
    for row in groups.to_pylist():
        by_partition.setdefault(PartitionId(row["topic"], row["partition"]), []).append(row)
    first_events = _first_events(facts)
    return [_summary(partition, rows, first_events.get(partition)) for partition, rows in sorted(by_partition.items())]


def _summary(partition: PartitionId, rows: Sequence[Mapping[str, Any]], first_event_us: int | None) -> PartitionSummary:
    """Summarise the ``rows`` of a partition, one per side and status."""
    records = dict.fromkeys((UNDECODABLE, TOMBSTONE, UNEXAMINED, UNOWED), 0)
    for row in rows:
        records[row["status"]] = records.get(row["status"], 0) + (row["records_sum"] or 0)
    is_input = any(row["side"] == Side.INPUT.value for row in rows)

    def known(name: str) -> Iterable[int]:
        return (row[name] for row in rows if row[name] is not None)

    return PartitionSummary(
        partition_id=partition,
        records=sum(records.values()) - records[UNEXAMINED],
        unexamined=records[UNEXAMINED],
        undecodable=records[UNDECODABLE],
        tombstones=records[TOMBSTONE],
        unowed=records[UNOWED],
        newest_event_time_us=max(known("newest_event_time_us_max"), default=None) if is_input else None,
        first_event_time_us=first_event_us if is_input else None,
        first_time_us=min(known("first_time_us_min"), default=None),
        last_time_us=max(known("last_time_us_max"), default=None),
    )


def _first_events(facts: pa.Table) -> dict[PartitionId, int]:
    """Return the event time at the lowest decodable offset of each partition for which it was requested."""
    if facts["first_event_time_us"].null_count == facts.num_rows:
        return {}
    decoded = facts.filter(pc.field("status").isin(WITH_A_CELL)).sort_by("first_offset")
    # With threads the order of rows would be lost.
    groups = decoded.group_by(["topic", "partition"], use_threads=False).aggregate([("first_event_time_us", "first")])
    found = ((row["topic"], row["partition"], row["first_event_time_us_first"]) for row in groups.to_pylist())
    return {PartitionId(topic, partition): first_us for topic, partition, first_us in found if first_us is not None}
