"""Positions of undecodable records, and which of them are settled (SEMANTICS 4.12).

One table: partition -> cause -> stretches of offsets. New records are `HIDDEN`. A settlement moves them to its cause,
if records that it depends on are read again it moves them back, and a log that is recreated drops them.

    facts, undecodable rows ──▶ absorb ─▶ hidden ──settle (ack: a mark in the facts)──▶ settled by an operator
    dead letters' names     ──▶ waiting ──answer (a function of the facts)──────────▶ settled by a dead letter
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
"""Limit per partition and cause. Beyond it neighbouring stretches are joined, and are then settled only together. It is
also the limit of dead letters whose input record is not known: the oldest one then stays hidden."""
REASONS_MAX: Final = 100
"""Operators' reasons that a partition keeps. Earlier settlements are then kept together."""
EARLIER: Final = "earlier settlements"
MARK: Final = "settled "
"""Prefix of the mark of a `Settlement`."""
LOG_RESET: Final = "anew "
"""Prefix of the mark of a partition whose log was recreated or cut back, with the first offset concerned."""
REREAD: Final = "reread "
"""Prefix of the mark of topics that are read again from their start because their fields were corrected."""
_COLUMNS: Final = ("batch", "side", "topic", "partition", "key", "first_offset", "last_offset", "records", "stretches")

Position = tuple[PartitionId, int]


class Stretch(NamedTuple):
    """Undecodable records from offset ``first`` to ``last``, both inclusive, and their number."""

    first: int
    last: int
    records: int

    @property
    def is_full(self) -> bool:
        """Whether every offset is an undecodable record."""
        return self.records == self.last - self.first + 1


Stretches = tuple[Stretch, ...]


class Cause(NamedTuple):
    """Why records are settled. ``topic``: the topic on whose records it depends; None if an operator settled them."""

    topic: str | None
    reason: str


HIDDEN: Final = None
"""The cause of records that are not settled."""


@dataclass(frozen=True)
class Settlement:
    """Records of a partition that an operator settled. ``batch``: the newest batch at the time of the `ack`."""

    partition_id: PartitionId
    stretches: Stretches
    reason: str
    batch: int = -1

    @property
    def records(self) -> int:
        """The number of settled records."""
        return sum(stretch.records for stretch in self.stretches)

    def to_json(self) -> dict[str, Any]:
        """JSON values for a mark or for a line of the journal."""
        where = {
            "topic": self.partition_id.topic,
            "partition": self.partition_id.partition,
            "stretches": self.stretches,
        }
        return {**where, "batch": self.batch, "reason": self.reason}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Settlement:
        """The settlement from the values of `to_json`. Raises KeyError, TypeError or ValueError."""
        stretches = tuple(Stretch(*map(int, stretch)) for stretch in kept["stretches"])
        partition = PartitionId(str(kept["topic"]), int(kept["partition"]))
        return cls(partition, stretches, str(kept["reason"]), int(kept["batch"]))

    def to_mark(self) -> str:
        """The text of a mark row."""
        return MARK + json.dumps(self.to_json(), sort_keys=True)


@dataclass
class Positions:
    """Positions of undecodable records of one state, without those of outputs, which are violations.

    - ``by_cause``: the table above.
    - ``accepted_records``: number of settled records, also of logs that were recreated since.
    - ``answers``: late and rejected partitions. Naming a record settles it only if it is none of them, since it may
      answer an event.
    - ``waiting``: dead letter -> the position that it names, if no undecodable record is known there.
    - ``log_resets``: (batch, offset) pairs: this batch found that offsets from there on belong to other records.
    - ``examples``: partition, also of outputs -> offset of a record that does not decode.
    - ``batch``: the newest batch considered.
    """

    by_cause: dict[PartitionId, dict[Cause | None, Stretches]] = field(default_factory=dict)
    accepted_records: dict[PartitionId, int] = field(default_factory=dict)
    answers: set[PartitionId] = field(default_factory=set)
    waiting: dict[Position, Position] = field(default_factory=dict)
    log_resets: dict[PartitionId, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    examples: dict[PartitionId, int] = field(default_factory=dict)
    batch: int = field(default=-1, compare=False)
    _changed: set[PartitionId] = field(default_factory=set, compare=False)
    """Partitions with records that are new, or newly settled, since the last `answer`."""
    _letters: dict[Position, Position] = field(default_factory=dict, compare=False)
    """The part of ``waiting`` that is new since the last `answer`."""
    _considered: int = field(default=0, compare=False)
    """Lines of the operators' journal that `settle` has seen."""

    def hidden(self, partition: PartitionId) -> Stretches:
        """The records of a partition that are not settled."""
        return self.by_cause.get(partition, {}).get(HIDDEN, ())

    def first_hidden(self) -> dict[PartitionId, int]:
        """Partition -> the first record that is not settled."""
        return {partition: kept[0].first for partition in self.by_cause if (kept := self.hidden(partition))}

    def absorb(self, facts: pa.Table) -> None:
        """Add the undecodable records of all fact rows of a batch."""
        examples: dict[PartitionId, int] = {}
        found: dict[PartitionId, list[Stretch]] = {}
        letters: dict[Position, Position] = {}
        for row in _undecodable(facts):
            partition = PartitionId(row["topic"], row["partition"])
            if row["key"] is None:
                # A row's key is the reason why its record was not examined. Such a record is too large for an example.
                examples[partition] = min(examples.get(partition, FOREVER_OFFSET), row["first_offset"])
            if row["side"] == Side.OUTPUT.value:
                continue
            if row["side"] not in (Side.INPUT.value, Side.TABLE.value):
                self.answers.add(partition)
            found.setdefault(partition, []).extend(_stretches(row))
            for naming in row["text_ids"] or () if row["side"] == Side.REJECTED.value else ():
                topic, number, offset = naming["id"].rsplit("/", 2)
                letters[partition, naming["offset"]] = (PartitionId(topic, int(number)), int(offset))
        self.examples |= examples
        for partition, stretches in found.items():
            self._add(partition, HIDDEN, stretches)
        # The order of rows is not that of a restart.
        self._letters |= {letter: letters[letter] for letter in sorted(letters)}
        self.waiting |= self._letters
        for letter in list(self.waiting)[: max(0, len(self.waiting) - STRETCHES_MAX)]:
            del self.waiting[letter]

    def settle(self, journal: Sequence[Settlement]) -> list[Settlement]:
        """Settle what the operators' journal and dead letters state. Returns the new settlements by operators."""
        done = []
        new, self._considered = self._considered, len(journal)
        for line in [
            line for number, line in enumerate(journal) if number >= new or line.partition_id in self._changed
        ]:
            # Offsets of a log that was recreated or cut back after the `ack` belong to other records.
            void = [offset for batch, offset in self.log_resets.get(line.partition_id, ()) if batch > line.batch]
            chosen = split(line.stretches, _from(min(void)))[1] if void else line.stretches
            part = replace(line, stretches=split(self.hidden(line.partition_id), chosen)[0])
            if part.stretches:
                self.apply(part)
                done.append(part)
        self.answer()
        return done

    def apply(self, one: Settlement) -> None:
        """Apply the settlement of a mark."""
        self._settle(one.partition_id, one.stretches, Cause(None, one.reason))
        of_partition = self.by_cause[one.partition_id]
        reasons = [cause for cause in of_partition if cause and cause.topic is None and cause.reason != EARLIER]
        if len(reasons) > REASONS_MAX:
            self._add(one.partition_id, Cause(None, EARLIER), of_partition.pop(reasons[0]))

    def answer(self) -> None:
        """Settle the undecodable input records that dead letters name, and those dead letters.

        An engine that retries writes several of them. They have no other content, so none of them hides anything.
        """
        while self._changed or self._letters:
            named, changed = self._letters, self._changed
            self._letters, self._changed = {}, set()
            named |= {letter: position for letter, position in self.waiting.items() if position[0] in changed}
            found: dict[tuple[PartitionId, Cause], list[Stretch]] = {}
            for (letter, at), (partition, offset) in named.items():
                # A late or rejected record may answer an event, also if a dead letter names it.
                kinds = self.by_cause.get(partition, {}).items()
                if not any(_holds(it, offset) for cause, it in kinds if cause or partition not in self.answers):
                    continue
                self.waiting.pop((letter, at), None)
                of_record, of_letter = f"named by a record on {letter.topic}", "it names an undecodable record"
                found.setdefault((partition, Cause(letter.topic, of_record)), []).append(Stretch(offset, offset, 1))
                found.setdefault((letter, Cause(partition.topic, of_letter)), []).append(Stretch(at, at, 1))
            for (partition, cause), stretches in found.items():
                self._settle(partition, split(self.hidden(partition), sorted(set(stretches)))[0], cause)

    def forget(self, topics: Iterable[str]) -> None:
        """Remove the positions of topics that are read again from their start.

        Records that are settled because of a record on these topics are hidden again: that record may decode now.
        """
        again = set(topics)
        for of_partition in (self.by_cause, self.accepted_records, self.examples):
            for partition in [partition for partition in of_partition if partition.topic in again]:
                del of_partition[partition]
        for partition, causes in self.by_cause.items():
            for cause in [cause for cause in causes if cause is not None and cause.topic in again]:
                stretches = causes.pop(cause)
                self.accepted_records[partition] -= _records(stretches)
                self._add(partition, HIDDEN, stretches)
        self.waiting = {letter: named for letter, named in self.waiting.items() if letter[0].topic not in again}

    def reset_log(self, partition: PartitionId, offset: int, batch: int) -> None:
        """Note that batch ``batch`` found the log of a partition recreated or cut back, from ``offset`` on.

        Offsets from there on belong to other records. Records that were settled there stay counted.
        """
        self.log_resets[partition] = (*self.log_resets.get(partition, ()), (batch, offset))
        for cause, stretches in self.by_cause.get(partition, {}).items():
            self.by_cause[partition][cause] = split(stretches, _from(offset))[1]
        if self.examples.get(partition, -1) >= offset:
            del self.examples[partition]
        self.waiting = {
            letter: named
            for letter, named in self.waiting.items()
            if all(where != partition or at < offset for where, at in (letter, named))
        }

    def unsettled(self, facts: pa.Table) -> pa.Table:
        """``facts``, with undecodable rows of inputs shortened to begin at the first record that no operator settled.

        Rows whose records operators settled completely are left out: the operators vouch that these records did not
        advance an engine's event time. A dead letter proves less: an engine may use the time of an event before it
        rejects the event. Rows that retention folded (`validator.reconcile.lateness.lateness_rows`) count no records
        but have stretches.
        """
        vouched = {
            partition: joined(one for cause, kept in causes.items() if cause and cause.topic is None for one in kept)
            for partition, causes in self.by_cause.items()
        }
        if not any(vouched.values()):
            return facts
        is_bad = pc.and_(pc.equal(facts["status"], UNDECODABLE), pc.equal(facts["side"], Side.INPUT.value))
        rows = pc.indices_nonzero(is_bad.combine_chunks() if isinstance(is_bad, pa.ChunkedArray) else is_bad)
        firsts, keeps = facts["first_offset"].to_pylist(), [True] * facts.num_rows
        few = facts.select([name for name in _COLUMNS if name != "batch"]).take(rows).to_pylist()
        for number, row in zip(rows.to_pylist(), few, strict=True):
            of_partition = vouched.get(PartitionId(row["topic"], row["partition"]))
            if of_partition and (row["records"] or row["stretches"]):  # else: expired offsets
                left = split(joined(_stretches(row)), of_partition)[1]
                keeps[number] = bool(left)
                firsts[number] = left[0].first if left else firsts[number]
        at = facts.schema.get_field_index("first_offset")
        moved = facts.set_column(at, facts.schema.field(at), pa.array(firsts, pa.int64()))
        return moved.filter(pa.array(keeps, pa.bool_()))

    def to_json(self, batch: int) -> dict[str, Any]:
        """JSON values for a mark, with all positions known up to ``batch``."""
        return {
            "batch": batch,
            "by_cause": [
                [p.topic, p.partition, cause, kept]
                for p, causes in self.by_cause.items()
                for cause, kept in causes.items()
            ],
            "settled": [[p.topic, p.partition, count] for p, count in self.accepted_records.items()],
            "answers": [[p.topic, p.partition] for p in sorted(self.answers)],
            "waiting": [
                [p.topic, p.partition, at, q.topic, q.partition, o] for (p, at), (q, o) in self.waiting.items()
            ],
            "log_resets": [[p.topic, p.partition, pairs] for p, pairs in self.log_resets.items()],
            "examples": [[p.topic, p.partition, offset] for p, offset in self.examples.items()],
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Positions:
        """The positions from the values of `to_json`."""
        known = cls(
            accepted_records={PartitionId(t, p): count for t, p, count in kept["settled"]},
            answers={PartitionId(t, p) for t, p in kept["answers"]},
            waiting={(PartitionId(t, p), at): (PartitionId(u, q), o) for t, p, at, u, q, o in kept["waiting"]},
            log_resets={PartitionId(t, p): tuple((b, at) for b, at in pairs) for t, p, pairs in kept["log_resets"]},
            examples={PartitionId(t, p): offset for t, p, offset in kept["examples"]},
            batch=kept["batch"],
        )
        for topic, partition, cause, stretches in kept["by_cause"]:
            of_partition = known.by_cause.setdefault(PartitionId(topic, partition), {})
            of_partition[cause and Cause(*cause)] = tuple(Stretch(*one) for one in stretches)
        return known

    def _add(self, partition: PartitionId, cause: Cause | None, stretches: Iterable[Stretch]) -> None:
        of_partition = self.by_cause.setdefault(partition, {})
        of_partition[cause] = joined((*of_partition.get(cause, ()), *stretches))
        self._changed.add(partition)

    def _settle(self, partition: PartitionId, stretches: Stretches, cause: Cause) -> None:
        if stretches:
            self.by_cause.setdefault(partition, {})[HIDDEN] = split(self.hidden(partition), stretches)[1]
            self._add(partition, cause, stretches)
            self.accepted_records[partition] = self.accepted_records.get(partition, 0) + _records(stretches)


def positions_of(tables: StateTables, known: Positions, where: ds.Expression | None = None) -> Positions:
    """``known`` (from the mark of a retirement, or empty), after it is updated with later rows of the facts table.

    Each batch is repeated as it was: its facts together, then its settlements. ``where``: restricts these rows.
    """
    after = ds.field("batch") > known.batch
    after = after if where is None else after & where
    facts: dict[int, list[pa.Table]] = {}
    bad = (ds.field("kind") == Kind.FACT.value) & (ds.field("status") == UNDECODABLE) & (ds.field("records") > 0)
    for part in tables.scan(Table.FACTS, (*_COLUMNS, "kind", "status", "text_ids"), after & bad):
        for batch in set(part["batch"].to_pylist()):
            facts.setdefault(batch, []).append(part.filter(pc.equal(part["batch"], batch)))
    steps: list[tuple[int, int, Callable[..., None], Any]] = []
    steps += [(batch, 1, known.absorb, (pa.concat_tables(parts),)) for batch, parts in facts.items()]
    for part in tables.scan(Table.FACTS, ("batch", "mark"), after & (ds.field("kind") == Kind.MARK.value)):
        for batch, mark in zip(part["batch"].to_pylist(), part["mark"].to_pylist(), strict=True):
            if mark.startswith(LOG_RESET):
                topic, partition, offset = mark.removeprefix(LOG_RESET).rsplit("/", 2)
                steps.append((batch, 0, known.reset_log, (PartitionId(topic, int(partition)), int(offset), batch)))
            elif mark.startswith(MARK):
                one = Settlement.from_json(json.loads(mark.removeprefix(MARK)))
                steps.append((batch, 2, known.apply, (one,)))
            elif (topics := reread_topics(mark)) is not None:
                steps.append((batch, 4, known.forget, (topics,)))
    steps += [(batch, 3, known.answer, ()) for batch in {batch for batch, *_ in steps}]
    for batch, _, step, given in sorted(steps, key=lambda it: it[:2]):
        step(*given)
        known.batch = max(known.batch, batch)
    return known


def log_reset_mark(partition: PartitionId, offset: int) -> str:
    """The mark of a partition whose log was recreated or cut back from ``offset`` on."""
    return f"{LOG_RESET}{partition.topic}/{partition.partition}/{offset}"


def reread_mark(topics: Sequence[str]) -> str:
    """The mark of topics that are read again."""
    return REREAD + json.dumps(sorted(topics))


def reread_topics(mark: str) -> list[str] | None:
    """The topics of a mark of `reread_mark`; None for other marks."""
    return [str(topic) for topic in json.loads(mark.removeprefix(REREAD))] if mark.startswith(REREAD) else None


def split(stretches: Sequence[Stretch], chosen: Sequence[Stretch]) -> tuple[Stretches, Stretches]:
    """The parts of ``stretches`` inside and outside the offsets of ``chosen``. Both are sorted.

    A stretch that is not full cannot be divided: it is inside only as a whole.
    """
    if not chosen:
        return (), tuple(stretches)
    # Only the stretches that may reach into the chosen offsets are looked at. The one before them may reach into them.
    low = max(0, bisect_right(stretches, (chosen[0].first,)) - 1)
    high = bisect_right(stretches, (chosen[-1].last + 1,))
    inside: list[Stretch] = []
    outside = list(stretches[:low])
    for one in stretches[low:high]:
        begin = max(0, bisect_right(chosen, (one.first,)) - 1)
        ranges = chosen[begin : bisect_right(chosen, (one.last + 1,))]
        if not one.is_full:
            is_inside = any(it.first <= one.first and one.last <= it.last for it in ranges)
            (inside if is_inside else outside).append(one)
            continue
        at = one.first
        for it in ranges:
            first, last = max(at, it.first), min(one.last, it.last)
            if first <= last:
                outside += _full(at, first - 1)
                inside += _full(first, last)
                at = last + 1
        outside += _full(at, one.last)
    return tuple(inside), (*outside, *stretches[high:])


def joined(stretches: Iterable[Stretch]) -> Stretches:
    """The stretches sorted, with adjacent ones joined; at most `STRETCHES_MAX`."""
    found: list[Stretch] = []
    for one in sorted(stretches):
        if found and found[-1].last + 1 == one.first and found[-1].is_full and one.is_full:
            found[-1] = Stretch(found[-1].first, one.last, found[-1].records + one.records)
        else:
            found.append(one)
    while len(found) > STRETCHES_MAX:
        pairs = [found[i : i + 2] for i in range(0, len(found), 2)]
        found = [Stretch(few[0].first, max(one.last for one in few), _records(few)) for few in pairs]
    return tuple(found)


def _full(first: int, last: int) -> Stretches:
    """The stretch of all these offsets; nothing if it is empty."""
    return (Stretch(first, last, last - first + 1),) if first <= last else ()


def _from(offset: int) -> Stretches:
    """All offsets from ``offset`` on."""
    return _full(offset, FOREVER_OFFSET)


def _records(stretches: Iterable[Stretch]) -> int:
    return sum(one.records for one in stretches)


def _holds(stretches: Sequence[Stretch], offset: int) -> bool:
    """Whether the stretches are known to have a record at this offset."""
    at = bisect_right(stretches, (offset + 1,)) - 1
    return at >= 0 and stretches[at].is_full and offset <= stretches[at].last


def _stretches(row: Mapping[str, Any]) -> list[Stretch]:
    """The undecodable records of a fact row. A row of one record, or of adjacent ones, may have no stretches."""
    found = [Stretch(**one) for one in row["stretches"] or ()]
    return found or [Stretch(row["first_offset"], row["last_offset"], row["records"])]


def _undecodable(facts: pa.Table) -> list[dict[str, Any]]:
    bad = pc.and_(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], UNDECODABLE))
    rows: list[dict[str, Any]] = facts.filter(bad).select([*_COLUMNS, "text_ids"]).to_pylist()
    return [row for row in rows if row["records"]]
