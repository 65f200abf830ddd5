"""Undecodable results as violations: one per partition of an output topic, with two of the offsets.

These results belong to no cell, so judging the cells does not report them. The frontiers count them. While the
configuration is in doubt the violations are suspected, like those of other classes. If the topic is read again from
its start, because its fields were corrected, suspected violations are retracted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import UNDECODABLE
from validator.model.classes import ViolationClass
from validator.model.progress import IngestProgress
from validator.model.violation import Violation, state_of, violation_id
from validator.model.wording import plural
from validator.reconcile.facts import Kind, Side
from validator.state.recorded_violations import growth_of
from validator.state.tables import StateTables, Table

_CLASS: Final = ViolationClass.UNDECODABLE.value
_FACT_COLUMNS: Final = ("topic", "partition", "first_offset", "last_offset")


class _Recorded(NamedTuple):
    """The recorded violation of a partition.

    ``records``: undecodable results. ``confirmed``: those of them that are confirmed. ``first_us``: instant since which
    there are any.
    """

    records: int
    confirmed: int
    first_us: int


class UnreadableResults:
    """The undecodable results of one state. The recorded ones are read from the violations table once."""

    def __init__(self, tables: StateTables) -> None:
        self._tables = tables
        self._recorded: dict[str, _Recorded] | None = None

    def changed_violations(
        self,
        progress: IngestProgress,
        facts: pa.Table | None,
        *,
        suspected: Collection[str] = (),
        withdrawn: Collection[str] = (),
    ) -> list[Violation]:
        """The changed violations: one per partition whose number of undecodable or confirmed results changed since it
        was recorded. They count as recorded then.

        ``facts``: those of the batch of ``progress``. ``suspected``: topics of which no further result is confirmed.
        ``withdrawn``: topics of which no result is confirmed any more.
        """
        partitions = {
            str(partition): (partition.topic, frontier.undecodable)
            for partition, frontier in sorted(progress.frontiers.items())
            if frontier.side == Side.OUTPUT.value
        }
        if self._recorded is None:
            self._recorded = self._read_recorded()
        moves: dict[str, tuple[_Recorded, _Recorded]] = {}
        for name, (topic, count) in partitions.items():
            before = self._recorded.get(name, _Recorded(0, 0, progress.lookup_us))
            sure = 0 if topic in withdrawn else min(before.confirmed, count) if topic in suspected else count
            now = _Recorded(count, sure, before.first_us if before.records else progress.lookup_us)
            if now[:2] != before[:2]:
                moves[name] = before, now
        new = [name for name, (before, now) in moves.items() if now.records > before.records]
        extents = self._extents(facts, new) if new else {}
        found = []
        for name, (before, now) in moves.items():
            self._recorded[name] = now
            found.append(_violation(name, now, before, extents.get(name), progress.lookup_us))
        return found

    def _read_recorded(self) -> dict[str, _Recorded]:
        """Partition -> its violation as recorded in the violations table."""
        rows: dict[str, list[tuple[int, int, int, int]]] = {}
        columns = ("key", "batch", "count", "lookup_us")
        for part in self._tables.scan(
            Table.VIOLATIONS, (*columns, "confirmed", "retracted"), ds.field("class") == _CLASS
        ):
            grown = growth_of(part).tolist()
            for name, *row in zip(*(part[column].to_pylist() for column in columns), grown, strict=True):
                rows.setdefault(name, []).append(tuple(row))
        recorded = {}
        for name, of_partition in rows.items():
            first_us = 0
            before = 0
            for _, count, lookup_us, _ in sorted(of_partition):
                first_us, before = (lookup_us if not before else first_us), count
            recorded[name] = _Recorded(before, sum(row[3] for row in of_partition), first_us)
        return recorded

    def _extents(self, facts: pa.Table | None, names: Collection[str]) -> Mapping[str, tuple[int, int]]:
        """Partition -> first and last offset of undecodable results, in ``facts`` or (after a kill) in all batches."""
        found = _extents_in([] if facts is None else [facts.filter(_unreadable(facts))])
        if all(name in found for name in names):
            return found
        # After a kill between the commits of facts and violations, the offsets of all batches are read once.
        where = (
            (ds.field("kind") == Kind.FACT.value)
            & (ds.field("side") == Side.OUTPUT.value)
            & (ds.field("status") == UNDECODABLE)
        )
        return _extents_in(self._tables.scan(Table.FACTS, _FACT_COLUMNS, where))


def _unreadable(facts: pa.Table) -> pa.ChunkedArray:
    of_output = pc.and_(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["side"], Side.OUTPUT.value))
    return pc.and_(of_output, pc.equal(facts["status"], UNDECODABLE))


def _extents_in(parts: Iterable[pa.Table]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        for topic, partition, first, last in zip(*(part[name].to_pylist() for name in _FACT_COLUMNS), strict=True):
            name = f"{topic}-{partition}"
            known = found.get(name, (first, last))
            found[name] = (min(first, known[0]), max(last, known[1]))
    return found


def _violation(
    name: str, now: _Recorded, before: _Recorded, extent: tuple[int, int] | None, lookup_us: int
) -> Violation:
    offsets = [] if extent is None else sorted(set(extent))
    # Retention may have dropped the facts with the offsets.
    where = f", for example at offset {' and '.join(map(str, offsets))}" if offsets else ""
    doubt = "; the configuration of the topic is in doubt" if now.confirmed < now.records else ""
    explanation = f"{plural(now.records, 'record')} of {name} could not be decoded{where}{doubt}"
    return Violation(
        id=violation_id(_CLASS, 0, name),
        violation_class=_CLASS,
        state=state_of(now.records, now.confirmed),
        window_start_us=None,
        key=name,
        count=now.records,
        ids=tuple(f"{name}@{offset}" for offset in offsets),
        first_us=now.first_us,
        changed_us=lookup_us,
        explanation=explanation if now.records else "the fields of the topic were corrected, and it is read again",
        confirmed=max(0, now.confirmed - before.confirmed),
        retracted=max(0, before.confirmed - now.confirmed),
        confirmed_now=now.confirmed,
        provable_us=lookup_us,
        at_us=lookup_us,
    )
