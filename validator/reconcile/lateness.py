"""What facts say of lateness: after which offset of an input partition a window's end was past, or may have been.

An engine is late by its own partition at most. What it has read there and we could not may have moved its time on to
any instant up to `max_ahead` after the batch that met it (docs/decisions/0092): such rows of the facts table, and those
of offsets that had expired, are undecodable and have a reach all the same. An event that is further ahead than that
moved our time not at all, and that of an engine without such a limit all the way: its row has a reach, and no event
time that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import DECODED, REACH, UNDECODABLE, UNOWED
from validator.model.arrays import Ints, ints
from validator.reconcile.facts import Kind, Side

Reaches = dict[tuple[str, int], dict[int, int]]
"""(topic, partition) -> window end -> offset; what comes after it found that end past."""

POSSIBLE_MOST: Final = 1_000
"""Of one partition: a clock gone mad makes a new one with each window, and none of them is ever past."""
_SAID: Final = ("topic", "partition", "status", "reach_us")
_TOLD: Final = ("kind", "side", *_SAID, "first_offset", "newest_event_time_us")


@dataclass
class Lateness:
    """``proven``: by events that were read; ``possible``: by records that could not be, or were too far ahead."""

    proven: Reaches = field(default_factory=dict)
    possible: Reaches = field(default_factory=dict)

    def absorb(self, facts: pa.Table) -> None:
        """Take what fact rows say; rows of another kind or side say nothing."""
        told = _reaching(facts.select(_TOLD))
        for row in told.group_by(list(_SAID)).aggregate([("first_offset", "min")]).to_pylist():
            reaches = self.possible if row["status"] == UNDECODABLE else self.proven
            of_place = reaches.setdefault((row["topic"], row["partition"]), {})
            reach_us, offset = row["reach_us"], row["first_offset_min"]
            of_place[reach_us] = min(offset, of_place.get(reach_us, offset))
        for place, of_place in self.possible.items():
            if len(of_place) > POSSIBLE_MOST:
                self.possible[place] = _coarser(of_place)

    def forget(self, until_us: int) -> None:
        """Let go of window ends up to ``until_us``: nobody asks for them again."""
        for reaches in (self.proven, self.possible):
            for place, of_place in reaches.items():
                reaches[place] = {end: offset for end, offset in of_place.items() if end > until_us}


def _coarser(of_place: dict[int, int]) -> dict[int, int]:
    """The later half as one: all of it may have been past since the first of them. It doubts more, and accuses none."""
    ends = sorted(of_place)
    kept_apart, later = ends[: len(ends) // 2], ends[len(ends) // 2 :]
    return {end: of_place[end] for end in kept_apart} | {later[-1]: min(of_place[end] for end in later)}


def doubting(facts: pa.Table, hidden_us: int, latest_us: Callable[[Ints], Ints]) -> pa.Table:
    """``facts`` of one batch, whose undecodable input records, and events too far ahead, have the reach that they may
    have had. ``hidden_us``: that of what could not be read. ``latest_us``: that of the latest event in windows that
    start at given instants."""
    of_input = pc.equal(facts["side"], Side.INPUT.value)
    hidden = pc.and_(of_input, pc.equal(facts["status"], UNDECODABLE))
    ahead = pc.and_(of_input, _is_ahead(facts))
    reaches = pc.if_else(hidden, pa.scalar(hidden_us, pa.int64()), facts["reach_us"])
    if pc.any(ahead).as_py():
        reaches = pc.if_else(ahead, pa.array(latest_us(ints(facts["window_start_us"], 0))), reaches)
    at = facts.schema.get_field_index("reach_us")
    return facts.set_column(at, facts.schema.field(at), reaches)


def hole(topic: str, partition: int, before_offset: int, reach_us: int) -> dict[str, Any]:
    """Columns of a fact row for offsets of an input partition, all of them before ``before_offset``, that were gone
    before they could be read. It counts no record."""
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


def kept(facts: pa.Table, until_us: int) -> Iterable[dict[str, Any]]:
    """Rows without records that say of lateness what ``facts`` did, of window ends after ``until_us``; the batch and
    instant of each are those of some of its facts.

    A row of records that were read has a last offset, and is void when they are read again; one of a hole has none.
    That of undecodable records has their stretches, by which an operator settles them.
    """
    is_bad = pc.and_(pc.equal(facts["status"], UNDECODABLE), pc.is_valid(facts["last_offset"]))
    known = pc.or_(pc.greater(facts["records"], 0), pc.is_valid(facts["stretches"]))
    reaching = _reaching(facts.append_column("has_positions", pc.and_kleene(is_bad, known)))
    reaching = reaching.filter(pa.array(ints(reaching["reach_us"]) > until_us))
    reaching = reaching.append_column("was_read", pc.is_valid(reaching["last_offset"]))
    stretches = _stretches(reaching.filter(reaching["has_positions"]))
    folds = [("first_offset", "min"), ("last_offset", "max"), ("batch", "max"), ("lookup_us", "max")]
    for row in reaching.group_by([*_SAID, "was_read", "has_positions"]).aggregate(folds).to_pylist():
        is_hole = row["status"] == UNDECODABLE
        of_place = (row["topic"], row["partition"], row["reach_us"])
        yield {
            **hole(row["topic"], row["partition"], row["first_offset_min"] + 1, row["reach_us"]),
            "status": UNDECODABLE if is_hole else REACH,
            "stretches": stretches[of_place] if row["has_positions"] else None,
            "last_offset": row["last_offset_max"],
            "batch": row["batch_max"],
            "lookup_us": row["lookup_us_max"],
        }


def _stretches(facts: pa.Table) -> dict[tuple[str, int, int], list[dict[str, int]]]:
    """(topic, partition, reach) -> where the undecodable records of these rows are, in their order."""
    found: dict[tuple[str, int, int], list[dict[str, int]]] = {}
    columns = ("topic", "partition", "reach_us", "first_offset", "last_offset", "records", "stretches")
    for row in facts.select(columns).to_pylist():
        whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
        of_place = found.setdefault((row["topic"], row["partition"], row["reach_us"]), [])
        of_place += row["stretches"] or whole
    return {place: sorted(of_place, key=lambda one: one["first"]) for place, of_place in found.items()}


def _reaching(facts: pa.Table) -> pa.Table:
    """The rows of inputs that have a reach; events too far ahead are undecodable there."""
    fact, of_input = pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["side"], Side.INPUT.value)
    facts = facts.filter(pc.and_(pc.and_(fact, of_input), pc.is_valid(facts["reach_us"])))
    at = facts.schema.get_field_index("status")
    said = pc.if_else(_is_ahead(facts), pa.scalar(UNDECODABLE, facts.schema.field(at).type), facts["status"])
    return facts.set_column(at, facts.schema.field(at), said)


def _is_ahead(facts: pa.Table) -> pa.ChunkedArray:
    """Which rows of inputs are of events further ahead than `max_ahead` (`validator.reconcile.grouping`)."""
    of_events = pc.is_in(facts["status"], pa.array([DECODED, UNOWED], facts["status"].type))
    return pc.and_(of_events, pc.is_null(facts["newest_event_time_us"]))
