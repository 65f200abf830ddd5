"""Positions of records that could not be decoded, and which of them are settled (docs/decisions/0099).

A function of the facts table: of undecodable rows, and of the marks that say what was settled. An operator settles with
`ack --position`; a record on a rejected topic settles the undecodable input that it names.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import UNDECODABLE
from validator.model.frontier import PartitionId
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table

STRETCHES_MOST: Final = 10_000
"""Of one partition. Beyond it neighbours are joined, and can then be settled only together."""
SETTLEMENTS_KEPT: Final = 1_000
"""Settlements that a state lists; the counts are of all."""
MARK: Final = "settled "
BY_OPERATOR: Final = "ack"
_COLUMNS: Final = ("batch", "side", "topic", "partition", "key", "first_offset", "last_offset", "records", "stretches")


class Stretch(NamedTuple):
    """Undecodable records from offset ``first`` to ``last``, both included: how many they are."""

    first: int
    last: int
    records: int

    def within(self, first: int, last: int) -> Stretch | None:
        """The part between two offsets. Where not every offset is one of the records: all of it or nothing."""
        if self.records == self.last - self.first + 1:
            low, high = max(self.first, first), min(self.last, last)
            return Stretch(low, high, high - low + 1) if low <= high else None
        return self if first <= self.first and self.last <= last else None


@dataclass(frozen=True)
class Settlement:
    """Undecodable records of one partition that hide nothing. ``by``: `ack`, or the rejected topic that named them."""

    place: PartitionId
    stretches: tuple[Stretch, ...]
    by: str
    reason: str

    @property
    def records(self) -> int:
        """How many they are."""
        return sum(stretch.records for stretch in self.stretches)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a mark, or a line of the journal."""
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "stretches": [list(stretch) for stretch in self.stretches],
            "by": self.by,
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Settlement:
        """The value that `to_json` gave. Raises KeyError, TypeError, ValueError."""
        place = PartitionId(str(kept["topic"]), int(kept["partition"]))
        stretches = tuple(Stretch(*(int(number) for number in stretch)) for stretch in kept["stretches"])
        return cls(place, stretches, str(kept["by"]), str(kept["reason"]))

    def to_mark(self) -> str:
        """Text for a mark row."""
        return MARK + json.dumps(self.to_json(), sort_keys=True)


@dataclass
class Positions:
    """Of one state. ``hidden``: undecodable records that are not settled. ``gone``: offsets that are; ``vouched``:
    those of them that operators settled. ``settled``: how many records are. ``settlements``: the newest of them.
    ``named``: positions that rejected records name and that hold no undecodable record so far, with the record that
    names each. ``examples``: an offset of a record that did not decode, of outputs too. ``batch``: what is known up to
    here. ``fresh``: partitions with records that came since the last `settle`, and ``taken``: how many of the
    operators' settlements it looked at."""

    hidden: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    gone: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    vouched: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    settled: dict[PartitionId, int] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    named: dict[tuple[PartitionId, int], tuple[PartitionId, int]] = field(default_factory=dict)
    examples: dict[PartitionId, int] = field(default_factory=dict)
    batch: int = -1
    fresh: set[PartitionId] = field(default_factory=set, compare=False)
    taken: int = field(default=0, compare=False)

    def absorb(self, facts: pa.Table) -> None:
        """Take what fact rows say of undecodable records. Those of outputs are violations, and are not settled."""
        for row in _undecodable(facts):
            place = PartitionId(row["topic"], row["partition"])
            if row["key"] is None:
                # Where it has one, it says why the record was not parsed: it is too large to be read again.
                self.examples[place] = row["first_offset"]
            if row["side"] == Side.OUTPUT.value:
                continue
            whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
            found = [Stretch(of["first"], of["last"], of["records"]) for of in row["stretches"] or whole]
            self.hidden[place] = joined((*self.hidden.get(place, ()), *found))
            self.fresh.add(place)
            for naming in row["text_ids"] or () if row["side"] == Side.REJECTED.value else ():
                topic, partition, offset = naming["id"].rsplit("/", 2)
                self.named[PartitionId(topic, int(partition)), int(offset)] = place, naming["offset"]
        while len(self.named) > STRETCHES_MOST:
            self.named.pop(next(iter(self.named)))

    def settle(self, acknowledged: Sequence[Settlement]) -> list[Settlement]:
        """What is to be settled by now, and is not: by operators, and by what rejected records name."""
        fresh, self.fresh = self.fresh, set()
        asked = [one for number, one in enumerate(acknowledged) if number >= self.taken or one.place in fresh]
        self.taken = len(acknowledged)
        found = []
        for one in asked:
            part = self._within_hidden(one)
            if part.stretches:
                self.take(part)
                found.append(part)
        named: dict[tuple[PartitionId, str], list[Stretch]] = {}
        for (place, offset), (namer, at) in list(self.named.items()) if fresh else ():
            if place not in fresh and namer not in fresh:
                continue
            one = Settlement(place, (Stretch(offset, offset, 1),), namer.topic, "")
            if self._within_hidden(one).stretches:
                del self.named[place, offset]
                named.setdefault((place, namer.topic), []).append(Stretch(offset, offset, 1))
                # The record that names it answers nothing else.
                named.setdefault((namer, namer.topic), []).append(Stretch(at, at, 1))
        for (place, topic), stretches in named.items():
            reason = f"named by a record on {topic}" if place.topic != topic else "it names an undecodable record"
            found.append(Settlement(place, joined(stretches), topic, reason))
            self.take(found[-1])
        return found

    def take(self, one: Settlement) -> None:
        """What is settled, as a mark says it."""
        place = one.place
        self.hidden[place] = _less(self.hidden.get(place, ()), sorted(one.stretches))
        self.gone[place] = joined((*self.gone.get(place, ()), *one.stretches))
        if one.by == BY_OPERATOR:
            self.vouched[place] = joined((*self.vouched.get(place, ()), *one.stretches))
        self.settled[place] = self.settled.get(place, 0) + one.records
        self.settlements = [*self.settlements, one][-SETTLEMENTS_KEPT:]

    def forget(self, topics: Iterable[str]) -> None:
        """Topics that are read again from their start: what was said of their positions is void."""
        gone = set(topics)
        self.hidden = {place: kept for place, kept in self.hidden.items() if place.topic not in gone}
        self.gone = {place: kept for place, kept in self.gone.items() if place.topic not in gone}
        self.vouched = {place: kept for place, kept in self.vouched.items() if place.topic not in gone}
        self.settled = {place: count for place, count in self.settled.items() if place.topic not in gone}
        self.named = {at: namer for at, namer in self.named.items() if namer[0].topic not in gone}
        self.settlements = [one for one in self.settlements if one.place.topic not in gone]
        self.examples = {place: offset for place, offset in self.examples.items() if place.topic not in gone}

    def unsettled(self, facts: pa.Table) -> pa.Table:
        """``facts`` in which undecodable rows of inputs begin with the first record that no operator settled.

        Rows of which operators settled all records are left out: these vouch that they moved no engine's time. A
        rejected record that names a position does not: an engine can take the time of an event before it rejects it.
        """
        if not self.vouched:
            return facts
        is_bad = pc.and_(pc.equal(facts["status"], UNDECODABLE), pc.equal(facts["side"], Side.INPUT.value))
        rows = pc.indices_nonzero(is_bad.combine_chunks() if isinstance(is_bad, pa.ChunkedArray) else is_bad)
        firsts, keeps = facts["first_offset"].to_pylist(), [True] * facts.num_rows
        columns = ("topic", "partition", "first_offset", "last_offset", "records", "stretches")
        few = facts.select(columns).take(rows).to_pylist()
        for number, row in zip(rows.to_pylist(), few, strict=True):
            vouched = self.vouched.get(PartitionId(row["topic"], row["partition"]))
            if vouched is None or not row["records"]:
                continue
            whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
            left = joined(Stretch(of["first"], of["last"], of["records"]) for of in row["stretches"] or whole)
            left = _less(left, vouched)
            keeps[number] = bool(left)
            firsts[number] = left[0].first if left else firsts[number]
        at = facts.schema.get_field_index("first_offset")
        moved = facts.set_column(at, facts.schema.field(at), pa.array(firsts, pa.int64()))
        return moved.filter(pa.array(keeps, pa.bool_()))

    def to_json(self, batch: int) -> dict[str, Any]:
        """Plain values for a mark: all that is known up to ``batch``."""
        return {
            "batch": batch,
            "hidden": [[p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.hidden.items())],
            "vouched": [[p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.vouched.items())],
            "gone": [[p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.gone.items())],
            "settled": [[p.topic, p.partition, count] for p, count in sorted(self.settled.items())],
            "settlements": [one.to_json() for one in self.settlements],
            "named": [
                [[p.topic, p.partition, o], [n.topic, n.partition, at]] for (p, o), (n, at) in self.named.items()
            ],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Positions:
        """The value that `to_json` gave."""

        def stretches(name: str) -> dict[PartitionId, tuple[Stretch, ...]]:
            return {PartitionId(t, p): tuple(Stretch(*one) for one in found) for t, p, found in kept[name]}

        return cls(
            hidden=stretches("hidden"),
            gone=stretches("gone"),
            vouched=stretches("vouched"),
            settled={PartitionId(t, p): count for t, p, count in kept["settled"]},
            settlements=[Settlement.from_json(one) for one in kept["settlements"]],
            named={(PartitionId(*at[:2]), at[2]): (PartitionId(*by[:2]), by[2]) for at, by in kept["named"]},
            batch=kept["batch"],
        )

    def _within_hidden(self, one: Settlement) -> Settlement:
        """The part of a settlement that is not settled yet."""
        return replace(one, stretches=within(self.hidden.get(one.place, ()), one.stretches))


def positions_of(tables: StateTables, known: Positions, where: ds.Expression | None = None) -> Positions:
    """``known`` (of retirement, else empty) with what later rows of the facts table say. ``where``: which count."""
    after = ds.field("batch") > known.batch
    after = after if where is None else after & where
    rows: list[tuple[int, int, Any]] = []
    bad = (ds.field("kind") == Kind.FACT.value) & (ds.field("status") == UNDECODABLE) & (ds.field("records") > 0)
    for part in tables.scan(Table.FACTS, (*_COLUMNS, "kind", "status", "text_ids"), after & bad):
        batches = set(part["batch"].to_pylist())
        rows += [(batch, 0, part.filter(pc.equal(part["batch"], batch))) for batch in batches]
    marks = ds.field("kind") == Kind.MARK.value
    for part in tables.scan(Table.FACTS, ("batch", "mark"), after & marks):
        for batch, mark in zip(part["batch"].to_pylist(), part["mark"].to_pylist(), strict=True):
            if mark.startswith(MARK):
                rows.append((batch, 1, Settlement.from_json(json.loads(mark.removeprefix(MARK)))))
            elif (topics := reread_topics(mark)) is not None:
                rows.append((batch, 2, topics))
    says: tuple[Callable[[Any], None], ...] = (known.absorb, known.take, known.forget)
    for _, kind, said in sorted(rows, key=lambda row: row[:2]):
        says[kind](said)
    # A name that was settled is no longer waiting.
    for (place, offset), _ in list(known.named.items()):
        if any(stretch.within(offset, offset) for stretch in known.gone.get(place, ())):
            del known.named[place, offset]
    return known


REREAD: Final = "reread "
"""Prefix of the mark of topics that are read again from their start, since their fields were corrected."""


def reread_mark(topics: Sequence[str]) -> str:
    """The mark of such topics."""
    return REREAD + json.dumps(sorted(topics))


def reread_topics(mark: str) -> list[str] | None:
    """The topics of a mark that `reread_mark` gave; None where it is another mark."""
    return [str(topic) for topic in json.loads(mark.removeprefix(REREAD))] if mark.startswith(REREAD) else None


def within(hidden: Sequence[Stretch], asked: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """The parts of ``hidden`` between the ends of what is asked for; ``hidden`` is in its order."""
    found: list[Stretch] = []
    for one in asked:
        # The one before may reach into it.
        for stretch in hidden[max(0, bisect_right(hidden, (one.first,)) - 1) :]:
            if stretch.first > one.last:
                break
            part = stretch.within(one.first, one.last)
            if part is not None:
                found.append(part)
    return tuple(found)


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """In their order, neighbours without a gap as one; never more than `STRETCHES_MOST`."""
    found: list[Stretch] = []
    for one in sorted(stretches):
        last = found[-1] if found else None
        if last is not None and last.last + 1 == one.first and _is_full(last) and _is_full(one):
            found[-1] = Stretch(last.first, one.last, last.records + one.records)
        else:
            found.append(one)
    while len(found) > STRETCHES_MOST:
        found = [_both(found[i : i + 2]) for i in range(0, len(found), 2)]
    return tuple(found)


def _is_full(one: Stretch) -> bool:
    return one.records == one.last - one.first + 1


def _both(few: Sequence[Stretch]) -> Stretch:
    return Stretch(few[0].first, max(one.last for one in few), sum(one.records for one in few))


def _less(stretches: Sequence[Stretch], taken: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """``stretches`` less the offsets of ``taken``; both in their order."""
    found: list[Stretch] = []
    begin = 0
    for one in stretches:
        while begin < len(taken) and taken[begin].last < one.first:
            begin += 1
        left: Stretch | None = one
        at = begin
        while left is not None and at < len(taken) and taken[at].first <= left.last:
            part = left.within(taken[at].first, taken[at].last)
            at += 1
            if part is None:
                continue
            if left.first < part.first:
                found.append(Stretch(left.first, part.first - 1, part.first - left.first))
            rest = left.last - part.last
            left = Stretch(part.last + 1, left.last, rest) if rest else None
        if left is not None:
            found.append(left)
    return tuple(found)


def _undecodable(facts: pa.Table) -> list[dict[str, Any]]:
    bad = pc.and_(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], UNDECODABLE))
    rows: list[dict[str, Any]] = facts.filter(bad).select([*_COLUMNS, "text_ids"]).to_pylist()
    return [row for row in rows if row["records"]]
