"""Positions of undecodable records, and which of them are settled (SEMANTICS 4.12).

They follow from the facts table: from undecodable rows, and from marks of settlements. An operator settles positions
with `ack --position`. A record on a rejected topic settles the undecodable input record that it names.
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
from validator.model.frontier import FOREVER_OFFSET, PartitionId
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table

STRETCHES_MAX: Final = 10_000
"""Limit per partition. Beyond it neighbouring stretches are joined, and can then be settled only together."""
SETTLEMENTS_KEPT: Final = 1_000
"""Settlements that a state lists. The counts include all."""
MARK: Final = "settled "
"""Prefix of the mark of a `Settlement`."""
BY_OPERATOR: Final = "ack"
ANY_TOPIC: Final = ""
"""Represents a topic that an earlier version did not record."""
_COLUMNS: Final = ("batch", "side", "topic", "partition", "key", "first_offset", "last_offset", "records", "stretches")

Position = tuple[PartitionId, int]


class Stretch(NamedTuple):
    """Undecodable records from offset ``first`` to ``last``, both inclusive, and their number."""

    first: int
    last: int
    records: int

    def within(self, first: int, last: int) -> Stretch | None:
        """The part between two offsets, both inclusive; None if it is empty.

        If not every offset is an undecodable record, the stretch cannot be divided. It is then returned whole, or not
        at all.
        """
        if self.records == self.last - self.first + 1:
            low, high = max(self.first, first), min(self.last, last)
            return Stretch(low, high, high - low + 1) if low <= high else None
        return self if first <= self.first and self.last <= last else None


@dataclass(frozen=True)
class Settlement:
    """Settled undecodable records of one partition: they explain no violation and leave no verdict unknown.

    ``rejected``: the topic of the records that named them; None if an operator settled them. ``about``: if the
    settled records are of a rejected topic, the topic of the records that they name. ``batch``: the newest batch
    at the time of the operator's `ack`; -1 in a line of an earlier version.
    """

    place: PartitionId
    stretches: tuple[Stretch, ...]
    reason: str
    rejected: str | None = None
    about: str | None = None
    batch: int = -1

    @property
    def records(self) -> int:
        """The number of settled records."""
        return sum(stretch.records for stretch in self.stretches)

    @property
    def by(self) -> str:
        """`ack`, or the rejected topic (whose name may also be `ack`)."""
        return BY_OPERATOR if self.rejected is None else self.rejected

    @property
    def is_by_operator(self) -> bool:
        """Whether an operator vouches that these records did not advance an engine's event time.

        Such a settlement changes the lateness that facts prove.
        """
        return self.rejected is None

    @property
    def depends_on_topic(self) -> str | None:
        """The topic on whose records the settlement depends, or `ANY_TOPIC`; None if an operator settled them."""
        if self.rejected is None or self.place.topic != self.rejected:
            return self.rejected
        return ANY_TOPIC if self.about is None else self.about

    def to_json(self) -> dict[str, Any]:
        """JSON values for a mark or for a line of the journal."""
        return {
            "topic": self.place.topic,
            "partition": self.place.partition,
            "stretches": [list(stretch) for stretch in self.stretches],
            "by": self.by,
            "rejected": self.rejected,
            "about": self.about,
            "batch": self.batch,
            "reason": self.reason,
        }

    @classmethod
    def of_mark(cls, mark: str) -> Settlement | None:
        """The settlement of a mark of `to_mark`; None for other marks."""
        return cls.from_json(json.loads(mark.removeprefix(MARK))) if mark.startswith(MARK) else None

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Settlement:
        """The settlement from the values of `to_json`. Raises KeyError, TypeError or ValueError."""
        place = PartitionId(str(kept["topic"]), int(kept["partition"]))
        stretches = tuple(Stretch(*(int(number) for number in stretch)) for stretch in kept["stretches"])
        by = str(kept["by"])
        # An earlier version did not distinguish an operator from a rejected topic named `ack`.
        rejected = kept.get("rejected", None if by == BY_OPERATOR else by)
        return cls(place, stretches, str(kept["reason"]), rejected, kept.get("about"), int(kept.get("batch", -1)))

    def to_mark(self) -> str:
        """The text of a mark row."""
        return MARK + json.dumps(self.to_json(), sort_keys=True)


@dataclass
class Positions:
    """Positions of undecodable records of one state.

    ``hidden``: records that are not settled. ``settled_stretches``: settled ones. ``settled_by_operator``: those that
    operators settled. ``settled_by_topic``: the other settled ones, by the topic on which their settlement depends.
    ``settled``: number of settled records. ``settlements``: the newest settlements. ``named``: position -> the rejected
    records that name it, for positions without an undecodable record so far. ``log_resets``: pairs
    (batch, offset). That batch found the log recreated or cut back, so offsets from there on belong to other records.
    ``answers``: late and rejected partitions with undecodable records.
    ``examples``: for each partition, also of outputs, the offset of a record that does not decode. ``batch``: the
    newest batch considered. ``fresh``: partitions with new undecodable records since the last `settle`.
    ``considered``: number of operators' settlements that the last `settle` considered.
    """

    hidden: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    settled_stretches: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    settled_by_operator: dict[PartitionId, tuple[Stretch, ...]] = field(default_factory=dict)
    settled_by_topic: dict[tuple[PartitionId, str], tuple[Stretch, ...]] = field(default_factory=dict)
    settled: dict[PartitionId, int] = field(default_factory=dict)
    settlements: list[Settlement] = field(default_factory=list)
    named: dict[Position, tuple[Position, ...]] = field(default_factory=dict)
    log_resets: dict[PartitionId, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    examples: dict[PartitionId, int] = field(default_factory=dict)
    answers: set[PartitionId] = field(default_factory=set)
    batch: int = field(default=-1, compare=False)
    fresh: set[PartitionId] = field(default_factory=set, compare=False)
    considered: int = field(default=0, compare=False)

    def absorb(self, facts: pa.Table) -> None:
        """Add the undecodable records of fact rows. Undecodable results are violations and cannot be settled."""
        newest: dict[PartitionId, tuple[int, int]] = {}
        for row in _undecodable(facts):
            place = PartitionId(row["topic"], row["partition"])
            if row["key"] is None:
                # A row's key is the reason why its record was not examined. Such a record is too large for an example.
                at = (-row["batch"], row["first_offset"])
                newest[place] = min(newest.get(place, at), at)
            if row["side"] == Side.OUTPUT.value:
                continue
            if row["side"] != Side.INPUT.value:
                self.answers.add(place)
            whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
            found = [Stretch(of["first"], of["last"], of["records"]) for of in row["stretches"] or whole]
            self.hidden[place] = joined((*self.hidden.get(place, ()), *found))
            self.fresh.add(place)
            for naming in row["text_ids"] or () if row["side"] == Side.REJECTED.value else ():
                topic, partition, offset = naming["id"].rsplit("/", 2)
                self._name((PartitionId(topic, int(partition)), int(offset)), (place, naming["offset"]))
        self.examples |= {place: offset for place, (_, offset) in newest.items()}
        names = sum(map(len, self.named.values()))
        while names > STRETCHES_MAX:
            names -= len(self.named.pop(next(iter(self.named))))

    def settle(self, acknowledged: Sequence[Settlement]) -> list[Settlement]:
        """Apply and return the new settlements: those of operators, and those by rejected records.

        ``acknowledged``: all settlements in the operators' journal.
        """
        fresh, self.fresh = self.fresh, set()
        chosen = [one for number, one in enumerate(acknowledged) if number >= self.considered or one.place in fresh]
        self.considered = len(acknowledged)
        found = []
        for one in chosen:
            part = self._within_hidden(one)
            if part.stretches:
                self.apply(part)
                found.append(part)
        named: dict[tuple[PartitionId, str, str | None], list[Stretch]] = {}
        for (place, offset), namers in list(self.named.items()) if fresh else ():
            if place not in fresh and not any(namer in fresh for namer, _ in namers):
                continue
            # A late or rejected record may answer an event, also if another rejected record names it.
            is_hidden = place not in self.answers and _holds(self.hidden, place, offset)
            if not is_hidden and not _holds(self.settled_stretches, place, offset):
                continue
            del self.named[place, offset]
            if is_hidden:
                named.setdefault((place, namers[0][0].topic, None), []).append(Stretch(offset, offset, 1))
            for namer, at in namers:
                # The naming record has no other content, so it is settled as well.
                if _holds(self.hidden, namer, at):
                    named.setdefault((namer, namer.topic, place.topic), []).append(Stretch(at, at, 1))
        for (place, topic, about), stretches in named.items():
            reason = f"named by a record on {topic}" if about is None else "it names an undecodable record"
            found.append(Settlement(place, joined(stretches), reason, topic, about))
            self.apply(found[-1])
        return found

    def apply(self, one: Settlement) -> None:
        """Apply a settlement."""
        place = one.place
        self.hidden[place] = _less(self.hidden.get(place, ()), sorted(one.stretches))
        self.settled_stretches[place] = joined((*self.settled_stretches.get(place, ()), *one.stretches))
        if one.depends_on_topic is None:
            self.settled_by_operator[place] = joined((*self.settled_by_operator.get(place, ()), *one.stretches))
        else:
            self.settled_by_topic[place, one.depends_on_topic] = joined(
                (*self.settled_by_topic.get((place, one.depends_on_topic), ()), *one.stretches)
            )
        self.settled[place] = self.settled.get(place, 0) + one.records
        self.settlements = [*self.settlements, one][-SETTLEMENTS_KEPT:]

    def forget(self, topics: Iterable[str]) -> None:
        """Remove the positions of topics that are read again from their start.

        Records that were settled because a record of these topics named them are hidden again, since the naming record
        may decode now.
        """
        again = set(topics)
        for (place, topic), stretches in list(self.settled_by_topic.items()):
            if topic in again or topic == ANY_TOPIC:
                del self.settled_by_topic[place, topic]
                self.hidden[place] = joined((*self.hidden.get(place, ()), *stretches))
                self.settled_stretches[place] = _less(self.settled_stretches.get(place, ()), stretches)
                self.settled[place] -= sum(stretch.records for stretch in stretches)
        self.settlements = [
            one
            for one in self.settlements
            if one.place.topic not in again and one.depends_on_topic not in {*again, ANY_TOPIC}
        ]
        for of_place in (self.hidden, self.settled_stretches, self.settled_by_operator, self.settled, self.examples):
            for place in [place for place in of_place if place.topic in again]:
                del of_place[place]
        self.settled_by_topic = {key: kept for key, kept in self.settled_by_topic.items() if key[0].topic not in again}
        self._keep_names(lambda _, namer: namer[0].topic not in again)

    def reset_log(self, place: PartitionId, offset: int, batch: int) -> None:
        """Note that batch ``batch`` found the log of a partition recreated or cut back, from ``offset`` on.

        Offsets from there on belong to other records. Records that were settled there stay counted.
        """
        self.log_resets[place] = (*self.log_resets.get(place, ()), (batch, offset))
        for of_place in (self.hidden, self.settled_stretches, self.settled_by_operator):
            if place in of_place:
                of_place[place] = _less(of_place[place], (_from(offset),))
        for key in [key for key in self.settled_by_topic if key[0] == place]:
            self.settled_by_topic[key] = _less(self.settled_by_topic[key], (_from(offset),))
        if self.examples.get(place, -1) >= offset:
            del self.examples[place]
        self._keep_names(lambda *ends: all(where != place or at < offset for where, at in ends))

    def _name(self, position: Position, namer: Position) -> None:
        namers = self.named.get(position, ())
        if namer not in namers:
            self.named[position] = (*namers, namer)

    def _keep_names(self, retained: Callable[[Position, Position], bool]) -> None:
        """Keep only those pairs of position and naming record for which ``retained`` returns True."""
        names = [(position, namer) for position, namers in self.named.items() for namer in namers]
        self.named = {}
        for position, namer in names:
            if retained(position, namer):
                self._name(position, namer)

    def unsettled(self, facts: pa.Table) -> pa.Table:
        """``facts``, with undecodable rows of inputs shortened to begin at the first record that no operator settled.

        Rows whose records operators settled completely are left out: the operators vouch that these records did not
        advance an engine's event time. A rejected record that names a position proves less: an engine may use the time
        of an event before it rejects the event. Rows that retention folded
        (`validator.reconcile.lateness.lateness_rows`) count no records but have stretches.
        """
        if not self.settled_by_operator:
            return facts
        is_bad = pc.and_(pc.equal(facts["status"], UNDECODABLE), pc.equal(facts["side"], Side.INPUT.value))
        rows = pc.indices_nonzero(is_bad.combine_chunks() if isinstance(is_bad, pa.ChunkedArray) else is_bad)
        firsts, keeps = facts["first_offset"].to_pylist(), [True] * facts.num_rows
        columns = ("topic", "partition", "first_offset", "last_offset", "records", "stretches")
        few = facts.select(columns).take(rows).to_pylist()
        for number, row in zip(rows.to_pylist(), few, strict=True):
            settled_by_operator = self.settled_by_operator.get(PartitionId(row["topic"], row["partition"]))
            if settled_by_operator is None or not (row["records"] or row["stretches"]):
                # Expired offsets, or a row that an earlier version folded.
                continue
            whole = [{"first": row["first_offset"], "last": row["last_offset"], "records": row["records"]}]
            left = joined(Stretch(of["first"], of["last"], of["records"]) for of in row["stretches"] or whole)
            left = _less(left, settled_by_operator)
            keeps[number] = bool(left)
            firsts[number] = left[0].first if left else firsts[number]
        at = facts.schema.get_field_index("first_offset")
        moved = facts.set_column(at, facts.schema.field(at), pa.array(firsts, pa.int64()))
        return moved.filter(pa.array(keeps, pa.bool_()))

    def to_json(self, batch: int) -> dict[str, Any]:
        """JSON values for a mark, with all positions known up to ``batch``."""
        return {
            "batch": batch,
            "hidden": [[p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.hidden.items())],
            "vouched": [
                [p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.settled_by_operator.items())
            ],
            "gone": [
                [p.topic, p.partition, [list(s) for s in kept]] for p, kept in sorted(self.settled_stretches.items())
            ],
            "answers": [[p.topic, p.partition] for p in sorted(self.answers)],
            "settled": [[p.topic, p.partition, count] for p, count in sorted(self.settled.items())],
            "settlements": [one.to_json() for one in self.settlements],
            "named": [
                [[p.topic, p.partition, o], [n.topic, n.partition, at]]
                for (p, o), namers in self.named.items()
                for n, at in namers
            ],
            "tied": [
                [p.topic, p.partition, t, [list(s) for s in kept]]
                for (p, t), kept in sorted(self.settled_by_topic.items())
            ],
            "anew": [
                [p.topic, p.partition, [list(at) for at in found]] for p, found in sorted(self.log_resets.items())
            ],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Positions:
        """The positions from the values of `to_json`."""

        def stretches(name: str) -> dict[PartitionId, tuple[Stretch, ...]]:
            return {PartitionId(t, p): tuple(Stretch(*one) for one in found) for t, p, found in kept[name]}

        known = cls(
            hidden=stretches("hidden"),
            settled_stretches=stretches("gone"),
            settled_by_operator=stretches("vouched"),
            settled={PartitionId(t, p): count for t, p, count in kept["settled"]},
            settlements=[Settlement.from_json(one) for one in kept["settlements"]],
            log_resets={
                PartitionId(t, p): tuple((at[0], at[1]) for at in found) for t, p, found in kept.get("anew", ())
            },
            answers={PartitionId(*place) for place in kept.get("answers", ())},
            batch=kept["batch"],
        )
        for at, by in kept["named"]:
            known._name((PartitionId(*at[:2]), at[2]), (PartitionId(*by[:2]), by[2]))
        if "tied" in kept:
            known.settled_by_topic = {
                (PartitionId(t, p), on): tuple(Stretch(*one) for one in found) for t, p, on, found in kept["tied"]
            }
        else:
            # An earlier version did not record `tied`: settlements that are not an operator's may depend on any topic.
            left = {
                place: _less(found, known.settled_by_operator.get(place, ()))
                for place, found in known.settled_stretches.items()
            }
            known.settled_by_topic = {(place, ANY_TOPIC): found for place, found in left.items() if found}
        return known

    def _within_hidden(self, one: Settlement) -> Settlement:
        """The part of an operator's settlement whose records are not settled yet.

        If the log was recreated or cut back after the `ack`, offsets there belong to other records and are left out.
        """
        void = [_from(offset) for batch, offset in self.log_resets.get(one.place, ()) if batch > one.batch]
        stretches = _less(one.stretches, (min(void),)) if void else one.stretches
        return replace(one, stretches=within(self.hidden.get(one.place, ()), stretches))


def positions_of(tables: StateTables, known: Positions, where: ds.Expression | None = None) -> Positions:
    """``known`` (from the mark of a retirement, or empty), after it is updated with later rows of the facts table.

    ``where``: restricts these rows.
    """
    after = ds.field("batch") > known.batch
    after = after if where is None else after & where
    rows: list[tuple[int, int, Any]] = []
    bad = (ds.field("kind") == Kind.FACT.value) & (ds.field("status") == UNDECODABLE) & (ds.field("records") > 0)
    for part in tables.scan(Table.FACTS, (*_COLUMNS, "kind", "status", "text_ids"), after & bad):
        batches = set(part["batch"].to_pylist())
        rows += [(batch, 1, part.filter(pc.equal(part["batch"], batch))) for batch in batches]
    marks = ds.field("kind") == Kind.MARK.value
    for part in tables.scan(Table.FACTS, ("batch", "mark"), after & marks):
        for batch, mark in zip(part["batch"].to_pylist(), part["mark"].to_pylist(), strict=True):
            if (settled := Settlement.of_mark(mark)) is not None:
                rows.append((batch, 2, settled))
            elif (topics := reread_topics(mark)) is not None:
                rows.append((batch, 3, topics))
            elif mark.startswith(LOG_RESET):
                topic, partition, offset = mark.removeprefix(LOG_RESET).rsplit("/", 2)
                rows.append((batch, 0, (PartitionId(topic, int(partition)), int(offset), batch)))
    says: tuple[Callable[[Any], None], ...] = (
        lambda what: known.reset_log(*what), known.absorb, known.apply, known.forget
    )  # fmt: skip
    for batch, kind, mark in sorted(rows, key=lambda row: row[:2]):
        says[kind](mark)
        known.batch = max(known.batch, batch)
    return known


LOG_RESET: Final = "anew "
"""Prefix of the mark of a partition whose log was recreated or cut back, with the first offset concerned."""


def log_reset_mark(place: PartitionId, offset: int) -> str:
    """The mark of a partition whose log was recreated or cut back from ``offset`` on."""
    return f"{LOG_RESET}{place.topic}/{place.partition}/{offset}"


REREAD: Final = "reread "
"""Prefix of the mark of topics that are read again from their start because their fields were corrected."""


def reread_mark(topics: Sequence[str]) -> str:
    """The mark of topics that are read again."""
    return REREAD + json.dumps(sorted(topics))


def reread_topics(mark: str) -> list[str] | None:
    """The topics of a mark of `reread_mark`; None for other marks."""
    return [str(topic) for topic in json.loads(mark.removeprefix(REREAD))] if mark.startswith(REREAD) else None


def within(hidden: Sequence[Stretch], chosen: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """The parts of ``hidden``, which is sorted, that lie within the ``chosen`` stretches."""
    found: list[Stretch] = []
    for one in chosen:
        # The previous stretch may extend into the range.
        for stretch in hidden[max(0, bisect_right(hidden, (one.first,)) - 1) :]:
            if stretch.first > one.last:
                break
            part = stretch.within(one.first, one.last)
            if part is not None:
                found.append(part)
    return tuple(found)


def joined(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """The stretches sorted, with adjacent ones joined; at most `STRETCHES_MAX`."""
    found: list[Stretch] = []
    for one in sorted(stretches):
        last = found[-1] if found else None
        if last is not None and last.last + 1 == one.first and _is_full(last) and _is_full(one):
            found[-1] = Stretch(last.first, one.last, last.records + one.records)
        else:
            found.append(one)
    while len(found) > STRETCHES_MAX:
        found = [_both(found[i : i + 2]) for i in range(0, len(found), 2)]
    return tuple(found)


def _from(offset: int) -> Stretch:
    """All offsets from ``offset`` on."""
    return Stretch(offset, FOREVER_OFFSET, FOREVER_OFFSET - offset + 1)


def _holds(stretches: Mapping[PartitionId, Sequence[Stretch]], place: PartitionId, offset: int) -> bool:
    """Whether the stretches are known to have a record at this position."""
    return bool(within(stretches.get(place, ()), [Stretch(offset, offset, 1)]))


def _is_full(one: Stretch) -> bool:
    return one.records == one.last - one.first + 1


def _both(few: Sequence[Stretch]) -> Stretch:
    return Stretch(few[0].first, max(one.last for one in few), sum(one.records for one in few))


def _less(stretches: Sequence[Stretch], taken: Sequence[Stretch]) -> tuple[Stretch, ...]:
    """``stretches`` without the offsets of ``taken``. Both must be sorted."""
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
