"""Lateness in facts: the offset of an input partition after which a window's end was past, or may have been past.

The *reach* of a record is the latest window end that is past, or may be past, because of the record. Only earlier
records of an event's own partition can make the event late to an engine. If the engine could read such a record and the
sidecar could not, the record may have advanced the engine's time to any instant up to `max_ahead` after its batch's
lookup (SEMANTICS 3.26). Facts of such records and of expired offsets therefore have the status undecodable and a
reach. An event further ahead than `max_ahead` does not advance the sidecar's time, but it advances that of an engine
without such a limit: its fact has a reach, and no event time that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import PAUSED, REACH, TOMBSTONE, UNDECODABLE, WITH_A_CELL
from validator.model import arrays
from validator.model.arrays import ABSENT, NEVER, Ints, ints, listed, nullable, one_array, run_starts
from validator.reconcile.facts import Kind, Side

Reaches = dict[tuple[str, int], dict[int, int]]
"""(topic, partition) -> window end -> offset. For records after this offset, the window's end was past."""

POSSIBLE_MAX: Final = 1_000
"""Largest number of possible reaches kept per partition. A broken clock adds one per window, and the watermark passes
none of them."""
_GROUPED_BY: Final = ("topic", "partition", "status", "reach_us")
_COLUMNS: Final = ("kind", "side", *_GROUPED_BY, "first_offset", "newest_event_time_us")


@dataclass
class Lateness:
    """Reaches of input partitions. ``proven``: by events that were read. ``possible``: by records that could not be
    read or were too far ahead. ``paused``: by other partitions, while the engine may have taken this one for idle; the
    offset is the last one before the pause."""

    proven: Reaches = field(default_factory=dict)
    possible: Reaches = field(default_factory=dict)
    paused: Reaches = field(default_factory=dict)

    def absorb(self, facts: pa.Table) -> None:
        """Add the reaches of fact rows; rows of another kind or side have none."""
        reaching = _reaching(facts.select(_COLUMNS))
        for row in reaching.group_by(list(_GROUPED_BY)).aggregate([("first_offset", "min")]).to_pylist():
            reaches = self._of_status(row["status"])
            of_partition = reaches.setdefault((row["topic"], row["partition"]), {})
            reach_us, offset = row["reach_us"], row["first_offset_min"]
            # SEMANTICS 2.9: the first record that passed the end; all later ones of the partition come after it.
            of_partition[reach_us] = min(offset, of_partition.get(reach_us, offset))
        for partition, of_partition in self.paused.items():
            # During a pause each window end has the same offset, and only the latest one matters.
            self.paused[partition] = _needed(of_partition)
        for reaches in (self.possible, self.paused):
            for partition, of_partition in reaches.items():
                if len(of_partition) > POSSIBLE_MAX:
                    reaches[partition] = _coarser(of_partition)

    def _of_status(self, status: int) -> Reaches:
        return {UNDECODABLE: self.possible, PAUSED: self.paused}.get(status, self.proven)

    def adds(self, partition: tuple[str, int], reach_us: int, offset: int) -> bool:
        """Return whether a reach during a pause states more than the known ones of its partition."""
        known = self.paused.get(partition, {})
        return all(end_us < reach_us or offset < at for end_us, at in known.items())

    def furthest(self) -> dict[tuple[str, int], int]:
        """Return the latest window end that each partition has passed, or may have passed."""
        found: dict[tuple[str, int], int] = {}
        for reaches in (self.proven, self.possible):
            for partition, of_partition in reaches.items():
                latest_us = max(of_partition, default=ABSENT)
                found[partition] = max(latest_us, found.get(partition, ABSENT))
        return found

    def forget(self, until_us: int) -> None:
        """Drop window ends up to ``until_us``, which no remaining cell needs."""
        for reaches in (self.proven, self.possible, self.paused):
            for partition, of_partition in reaches.items():
                reaches[partition] = {end: offset for end, offset in of_partition.items() if end > until_us}


def _needed(of_partition: dict[int, int]) -> dict[int, int]:
    """Leave out each window end that a later one with a smaller or equal offset covers."""
    found: dict[int, int] = {}
    least = NEVER
    for end in sorted(of_partition, reverse=True):
        if of_partition[end] < least:
            found[end] = least = of_partition[end]
    return found


def _coarser(of_partition: dict[int, int]) -> dict[int, int]:
    """Merge the later half of the window ends into the latest one, with the smallest of their offsets. More events are
    doubtful then, and no violation is confirmed wrongly."""
    ends = sorted(of_partition)
    kept_apart, later = ends[: len(ends) // 2], ends[len(ends) // 2 :]
    return {end: of_partition[end] for end in kept_apart} | {later[-1]: min(of_partition[end] for end in later)}


def with_possible_reaches(facts: pa.Table, hidden_us: int, latest_us: Callable[[Ints], Ints]) -> pa.Table:
    """Return ``facts`` of one batch, with the possible reach of undecodable input records and
    of events too far ahead.

    ``hidden_us``: the reach of a record that could not be read. ``latest_us``: returns the reach of the latest event in
    the windows that start at the given instants.
    """
    of_input = pc.equal(facts["side"], Side.INPUT.value)
    hidden = pc.and_(of_input, pc.equal(facts["status"], UNDECODABLE))
    ahead = pc.and_(of_input, _is_ahead(facts))
    # SEMANTICS 3.26: a hidden record may have had any time up to `max_ahead` after T, an event too far ahead its own.
    reaches = pc.if_else(hidden, pa.scalar(hidden_us, pa.int64()), facts["reach_us"])
    if pc.any(ahead).as_py():
        # SEMANTICS 2.24: the reach of a skipped event is known.
        ahead = pc.and_(ahead, pc.is_null(reaches))
        reaches = pc.if_else(ahead, pa.array(latest_us(ints(facts["window_start_us"], 0))), reaches)
    at = facts.schema.get_field_index("reach_us")
    return facts.set_column(at, facts.schema.field(at), reaches)


def with_newest_before(facts: pa.Table, newest_us: Mapping[tuple[str, int], int]) -> pa.Table:
    """Return ``facts`` of one batch. Each event in the column ``times`` gets the newest event time at a smaller offset
    of its partition, among events that move the watermark. A row of a table gets the entry of its partition.

    ``newest_us``: `IngestProgress.known_before`.
    """
    dated = one_array(facts["times"])
    row, events = listed(dated)
    if not len(row):
        return facts
    # SEMANTICS 3.10: an event too far ahead moves no watermark; its fact row has no newest event time.
    moves = (arrays.is_one_of(facts["side"], Side.INPUT.value) & (ints(facts["newest_event_time_us"]) != ABSENT))[row]
    partitions = list(zip(facts["topic"].to_pylist(), facts["partition"].to_pylist(), strict=True))
    number = {partition: i for i, partition in enumerate(sorted(set(partitions)))}
    of_event = np.array([number[it] for it in partitions], dtype=np.int64)[row]
    offsets, times = ints(arrays.field(events, "offset")), ints(arrays.field(events, "time_us"))
    order = np.lexsort((offsets, of_event))
    firsts = np.flatnonzero(run_starts(of_event[order]))
    moved = np.where(moves, times, ABSENT)[order]
    before = np.empty_like(times)
    for start, end in zip(firsts.tolist(), [*firsts.tolist()[1:], len(order)], strict=True):
        known = newest_us.get(partitions[row[order[start]]], ABSENT)
        newest = np.maximum.accumulate(np.concatenate([[known], moved[start : end - 1]]))
        # An event has an item in each of its cells, and does not precede itself.
        is_first = run_starts(offsets[order[start:end]])
        before[order[start:end]] = newest[is_first][np.cumsum(is_first) - 1]
    found = pa.StructArray.from_arrays(
        [pa.array(offsets), pa.array(times), nullable(before)], fields=list(dated.type.value_type)
    )
    ends = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(dated)))]).astype(np.int32)
    at = facts.schema.get_field_index("times")
    return facts.set_column(at, facts.schema.field(at), pa.ListArray.from_arrays(pa.array(ends), found, dated.type))


def offset_gap_row(topic: str, partition: int, before_offset: int, reach_us: int) -> dict[str, Any]:
    """Return the columns of a fact row for offsets of an input partition, all of them before ``before_offset``, that
    expired before they were read. The row counts no record."""
    return {
        "kind": Kind.FACT.value,
        "side": Side.INPUT.value,
        "topic": topic,
        "partition": partition,
        "status": UNDECODABLE,
        "reach_us": reach_us,
        "first_offset": before_offset - 1,
        "records": 0,
        "contributions": 0,
    }


def lateness_rows(facts: pa.Table, until_us: int) -> Iterable[dict[str, Any]]:
    """Return what ``facts`` state about lateness for window ends after ``until_us``, as rows that count no record.
    The batch and the instant of each row are those of some of its facts.

    A row of records that were read has a last offset, and is void when the records are read again. A row of expired
    offsets has none. A row of undecodable records has their stretches, by which an operator settles them.
    """
    is_bad = pc.and_(pc.equal(facts["status"], UNDECODABLE), pc.is_valid(facts["last_offset"]))
    known = pc.or_(pc.greater(facts["records"], 0), pc.is_valid(facts["stretches"]))
    reaching = _reaching(facts.append_column("has_positions", pc.and_kleene(is_bad, known)))
    reaching = reaching.filter(pa.array(ints(reaching["reach_us"]) > until_us))
    reaching = reaching.append_column("was_read", pc.is_valid(reaching["last_offset"]))
    stretches = _stretches(reaching.filter(reaching["has_positions"]))
    folds = [("first_offset", "min"), ("last_offset", "max"), ("batch", "max"), ("lookup_us", "max")]
    for row in reaching.group_by([*_GROUPED_BY, "was_read", "has_positions"]).aggregate(folds).to_pylist():
        keeps_status = row["status"] in (UNDECODABLE, PAUSED)
        key = (row["topic"], row["partition"], row["reach_us"])
        yield {
            **offset_gap_row(row["topic"], row["partition"], row["first_offset_min"] + 1, row["reach_us"]),
            "status": row["status"] if keeps_status else REACH,
            "stretches": stretches[key] if row["has_positions"] else None,
            "last_offset": row["last_offset_max"],
            "batch": row["batch_max"],
            "lookup_us": row["lookup_us_max"],
        }


def _stretches(facts: pa.Table) -> dict[tuple[str, int, int], list[dict[str, int]]]:
    """(topic, partition, reach) -> the stretches of the undecodable records of these rows, by first offset."""
    found: dict[tuple[str, int, int], list[dict[str, int]]] = {}
    columns = ("topic", "partition", "reach_us", "first_offset", "last_offset", "records", "stretches")
    for row in facts.select(columns).to_pylist():
        whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
        stretches = found.setdefault((row["topic"], row["partition"], row["reach_us"]), [])
        stretches += row["stretches"] or whole
    return {key: sorted(stretches, key=lambda one: one["first"]) for key, stretches in found.items()}


def _reaching(facts: pa.Table) -> pa.Table:
    """Return the rows of inputs that have a reach. Those of events that move no watermark, and of null values, get the
    status undecodable."""
    fact, of_input = pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["side"], Side.INPUT.value)
    facts = facts.filter(pc.and_(pc.and_(fact, of_input), pc.is_valid(facts["reach_us"])))
    at = facts.schema.get_field_index("status")
    unsure = pc.or_(_is_ahead(facts), pc.equal(facts["status"], TOMBSTONE))
    statuses = pc.if_else(unsure, pa.scalar(UNDECODABLE, facts.schema.field(at).type), facts["status"])
    return facts.set_column(at, facts.schema.field(at), statuses)


def _is_ahead(facts: pa.Table) -> pa.ChunkedArray:
    """Return which rows of inputs are of events that move no watermark: further ahead than `max_ahead`, or skipped
    (`validator.reconcile.grouping`)."""
    of_events = pc.is_in(facts["status"], pa.array(WITH_A_CELL, facts["status"].type))
    return pc.and_(of_events, pc.is_null(facts["newest_event_time_us"]))
