"""Results that could not be decoded, as violations: one per partition of an output, with the offsets of some.

They belong to no cell, so that judging the cells does not tell them; the books count them. Nothing takes one back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import UNDECODABLE
from validator.model.books import Books
from validator.model.classes import ViolationClass
from validator.reconcile.facts import Kind, Side
from validator.reconcile.violations import violation_id
from validator.state.tables import StateTables, Table

_CLASS: Final = ViolationClass.UNDECODABLE.value
_NOTHING: Final = (0, 0)
_OF_FACTS: Final = ("topic", "partition", "first_offset", "last_offset")


class UnreadableResults:
    """Of one state. What was told is read from the violations table once, and when there is something to tell."""

    def __init__(self, tables: StateTables) -> None:
        self._tables = tables
        self._told: dict[str, tuple[int, int]] | None = None

    def moved(self, books: Books, facts: pa.Table | None) -> list[dict[str, Any]]:
        """Rows as `validator.reconcile.violations.moved` gives them, one per partition of which more is known than was
        told. ``facts``: those of the batch that ``books`` stand at. What is given here counts as told."""
        now = {
            f"{place.topic}-{place.partition}": frontier.undecodable
            for place, frontier in sorted(books.frontiers.items())
            if frontier.side == Side.OUTPUT.value and frontier.undecodable
        }
        if not now:
            return []
        if self._told is None:
            self._told = self._told_before()
        told = self._told
        new = {name: count for name, count in now.items() if count > told.get(name, _NOTHING)[0]}
        extents = self._extents(facts, new) if new else {}
        found = []
        for name, count in new.items():
            before, first_us = told.get(name, (0, books.lookup_us))
            told[name] = (count, first_us)
            found.append(_row(name, count, before, extents.get(name), books.lookup_us) | {"first_us": first_us})
        return found

    def _told_before(self) -> dict[str, tuple[int, int]]:
        """Partition -> what was told last, and the instant at which anything was told first."""
        # It only grows, so that the largest count is the newest, and the earliest instant the first.
        told: dict[str, tuple[int, int]] = {}
        columns = ("key", "count", "lookup_us")
        for part in self._tables.scan(Table.VIOLATIONS, columns, ds.field("class") == _CLASS):
            for name, count, at_us in zip(*(part[column].to_pylist() for column in columns), strict=True):
                most, first_us = told.get(name, (count, at_us))
                told[name] = (max(count, most), min(at_us, first_us))
        return told

    def _extents(self, facts: pa.Table | None, names: Collection[str]) -> Mapping[str, tuple[int, int]]:
        """Partition -> first and last offset of what could not be decoded in the batch."""
        found = _extents_in([] if facts is None else [facts.filter(_unreadable(facts))])
        if all(name in found for name in names):
            return found
        # Killed between the facts and the violations: those of all batches, once.
        where = (
            (ds.field("kind") == Kind.FACT.value)
            & (ds.field("side") == Side.OUTPUT.value)
            & (ds.field("status") == UNDECODABLE)
        )
        return _extents_in(self._tables.scan(Table.FACTS, _OF_FACTS, where))


def _unreadable(facts: pa.Table) -> pa.ChunkedArray:
    of_output = pc.and_(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["side"], Side.OUTPUT.value))
    return pc.and_(of_output, pc.equal(facts["status"], UNDECODABLE))


def _extents_in(parts: Iterable[pa.Table]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        for topic, partition, first, last in zip(*(part[name].to_pylist() for name in _OF_FACTS), strict=True):
            name = f"{topic}-{partition}"
            known = found.get(name, (first, last))
            found[name] = (min(first, known[0]), max(last, known[1]))
    return found


def _row(name: str, count: int, told: int, extent: tuple[int, int] | None, lookup_us: int) -> dict[str, Any]:
    offsets = [] if extent is None else sorted(set(extent))
    # Retention may have dropped the facts that knew.
    where = f", for example at offset {' and '.join(map(str, offsets))}" if offsets else ""
    return {
        "violation": violation_id(_CLASS, 0, name),
        "class": _CLASS,
        "window_start_us": None,
        "key": name,
        "state": "confirmed",
        "count": count,
        "confirmed": count - told,
        "stands": count,
        "retracted": 0,
        "provable_us": lookup_us,
        "at_us": lookup_us,
        "ids": [f"{name}@{offset}" for offset in offsets],
        "explanation": f"{count} records of {name} could not be decoded{where}",
    }
