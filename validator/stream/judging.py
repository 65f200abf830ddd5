"""The cells in memory: folded batch by batch, judged against the clock, the disagreeing ones compared id by id.

Everything here can be dropped and rebuilt from the facts table (`validator.stream.recovery`). No Spark job runs for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.model.books import Books
from validator.model.configuration_doubt import InputCounts
from validator.model.frontier import Clock
from validator.reconcile.arrays import ABSENT, NEVER, Bools, Ints, present
from validator.reconcile.cells import STALE, Cells
from validator.reconcile.compare import AskedIds, Compared, Place, PlaceOffsets, compare, expanded
from validator.reconcile.facts import Side
from validator.reconcile.judge import (
    CONTRIBUTIONS,
    EXCESS,
    RESULTS,
    VIOLATIONS,
    Judged,
    Rules,
    close,
    due_base,
    judge,
    tell_verdicts,
)
from validator.reconcile.unknown_ids import UnknownIds
from validator.reconcile.violations import confirmed_of, tell_violations
from validator.state.known_facts import KnownFacts

COMPARED_AT_ONCE: Final = 4_000_000
"""Contributions whose ids are held in memory together; some 300 bytes each."""


@dataclass(frozen=True)
class Sums:
    """Totals over all cells after a batch. ``on_record``: class of violations -> how much of it is on record;
    ``carried``: contributions in results; ``matched``: those of them that are proven to be those of events.
    ``cells_estimated``: those whose counts are estimates, because their ids are not compared yet.
    ``cells_in_excess``, ``cells_missing``: in how many cells something of `EXCESS` is, or something missing.
    ``doubtful``: contributions that are overdue for good, since they may rightly have been dropped as late.
    ``unconsumed_overdue``, ``blocked_overdue``: those that would be missing, but that the engine has not consumed, or
    that an open transaction may hold; ``unconsumed_due_us``, ``blocked_due_us``: since when the first of them is due;
    ``unconsumed``, ``blocked``: these, due or not. ``unconsumed_retired``, ``blocked_retired``: those that were
    due when retention dropped their cells, and are in none of the others; ``cells_undecided``: retired
    cells that waited in vain for the class of each contribution (`validator.stream.retiring`).
    ``unproven``: class of violations -> how much of what is counted was only suspected when its cell was retired, by a
    doubt whose end proves nothing of it: it is not on record, and is never confirmed. ``inputs``: by topic, where there
    are several.
    """

    counts: dict[str, int]
    results: dict[str, int]
    on_record: dict[str, int] = field(default_factory=dict)
    unproven: dict[str, int] = field(default_factory=dict)
    matched: int = 0
    carried: int = 0
    cells_seen: int = 0
    cells_closed: int = 0
    cells_verified: int = 0
    cells_violated: int = 0
    cells_in_excess: int = 0
    cells_missing: int = 0
    cells_settled: int = 0
    cells_estimated: int = 0
    cells_undecided: int = 0
    doubtful: int = 0
    unconsumed_overdue: int = 0
    unconsumed_due_us: int | None = None
    blocked_overdue: int = 0
    blocked_due_us: int | None = None
    unconsumed: int = 0
    blocked: int = 0
    unconsumed_retired: int = 0
    blocked_retired: int = 0
    changed: int = 0
    settled_expected: int = 0
    settled_handled: int = 0
    settled_exact: int = 0
    inputs: dict[str, InputCounts] = field(default_factory=dict)
    asides: dict[str, InputCounts] = field(default_factory=dict)

    def plus(self, other: Sums) -> Sums:
        """The totals over both; what concerns one batch only is this one's."""
        cells = ("seen", "closed", "verified", "violated", "in_excess", "missing", "settled", "undecided")
        whole = [f"cells_{name}" for name in cells]
        others = (
            "matched",
            "carried",
            "settled_expected",
            "settled_handled",
            "settled_exact",
            "doubtful",
            "unconsumed_overdue",
            "blocked_overdue",
        )
        return replace(
            self,
            unconsumed_due_us=_earlier(self.unconsumed_due_us, other.unconsumed_due_us),
            blocked_due_us=_earlier(self.blocked_due_us, other.blocked_due_us),
            counts={name: count + other.counts.get(name, 0) for name, count in self.counts.items()},
            results={name: count + other.results.get(name, 0) for name, count in self.results.items()},
            on_record={name: self.on_record.get(name, 0) + other.on_record.get(name, 0) for name in VIOLATIONS},
            unproven={name: self.unproven.get(name, 0) + other.unproven.get(name, 0) for name in VIOLATIONS},
            inputs=_both(self.inputs, other.inputs),
            asides=_both(self.asides, other.asides),
            **{name: getattr(self, name) + getattr(other, name) for name in (*whole, *others)},
        )

    def beside(self, retired: Sums) -> Sums:
        """The totals over cells in memory (this) and ``retired`` ones, which nothing can move any more: what waits for
        the engine or a transaction is that of the cells in memory."""
        return replace(
            self.plus(retired),
            unconsumed_overdue=self.unconsumed_overdue,
            unconsumed_due_us=self.unconsumed_due_us,
            blocked_overdue=self.blocked_overdue,
            blocked_due_us=self.blocked_due_us,
            unconsumed=self.counts["unconsumed"],
            blocked=self.counts["blocked"],
            unconsumed_retired=retired.unconsumed_overdue,
            blocked_retired=retired.blocked_overdue,
        )

    def to_json(self) -> dict[str, object]:
        """Plain values for a mark in the facts table."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Sums:
        """The value that `to_json` gave."""
        known = {field.name for field in fields(cls)}
        # The mark of an older version does not say what is on record, carried or matched: as much as was counted.
        counted = {name: kept["counts"].get(name, 0) for name in VIOLATIONS}
        matched = kept["counts"].get("processed", 0)
        carried = matched + counted["misplaced"] + counted["unknown_id"]
        return cls(
            **{"on_record": counted, "matched": matched, "carried": carried}
            | {name: value for name, value in kept.items() if name in known}
            | {
                name: {part: InputCounts(**it) for part, it in kept.get(name, {}).items()}
                for name in ("inputs", "asides")
            }
        )

    @classmethod
    def empty(cls) -> Sums:
        """Of no cells."""
        return cls(dict.fromkeys(CONTRIBUTIONS, 0), dict.fromkeys(RESULTS, 0))


def places_of(books: Books, *, tells_unconsumed: bool) -> dict[Place, PlaceOffsets]:
    """Of the input partitions, the offsets that comparing ids asks for."""
    return {
        (place.topic, place.partition): PlaceOffsets(
            committed_offset=frontier.consumed_below if tells_unconsumed else None,
            unprovable_below=frontier.unprovable_below,
        )
        for place, frontier in books.frontiers.items()
        if frontier.side == Side.INPUT.value
    }


def _both(these: Mapping[str, InputCounts], those: Mapping[str, InputCounts]) -> dict[str, InputCounts]:
    nothing = InputCounts()
    return {part: these.get(part, nothing).plus(those.get(part, nothing)) for part in sorted({*these, *those})}


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _went_back(before: Mapping[Place, PlaceOffsets], now: Mapping[Place, PlaceOffsets]) -> bool:
    """Whether the engine has consumed less of a partition than it had: its group was reset, or its offsets expired."""
    return any(
        place in now and (now[place].committed_offset or 0) < (offsets.committed_offset or 0)
        for place, offsets in before.items()
    )


def no_class(sums: Sums) -> frozenset[str]:
    """Nothing is suspected, whatever the totals are: everything could be read."""
    del sums
    return frozenset()


def new_cells() -> Cells:
    """No cells yet."""
    return Cells(VIOLATIONS)


@dataclass
class Judging:
    """The cells of one state and their verdicts after the last batch. ``evidence``: the smallest ids of (cell's row,
    class of violation), of the cells that the last batch compared. ``suspected``: the classes of violations that it
    does not confirm; ``withdrawn``: those of which it takes back what was confirmed. ``lookup_us``: its
    instant. ``sums``: of the cells that it judged; retention may have taken some of these since."""

    known: KnownFacts
    rules: Rules
    cells: Cells = field(default_factory=new_cells)
    judged: Judged | None = None
    evidence: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums.empty)
    retired: Sums = field(default_factory=Sums.empty)
    suspected: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    lookup_us: int = 0
    _places: Mapping[Place, PlaceOffsets] = field(default_factory=dict)
    _unknown: UnknownIds = field(default_factory=UnknownIds)

    def absorb(
        self,
        facts: pa.Table | None,
        clock: Clock,
        places: Mapping[Place, PlaceOffsets],
        *,
        suspects: Callable[[Sums], frozenset[str]] = no_class,
        withdraws: Callable[[Sums], frozenset[str]] = no_class,
    ) -> Sums:
        """Fold ``facts`` of one batch into the cells and judge all of them by ``clock``.

        ``facts`` were appended to the facts table. ``places``: the input partitions of which an offset is known.
        ``suspects``: totals -> the classes of violations that what cannot be read may explain; ``withdraws``: totals ->
        those of which nothing is confirmed any more.
        """
        cells = self.cells
        self._tell()
        self.evidence, self.lookup_us = {}, clock.lookup_us
        if facts is not None:
            self.known.add(facts)
            cells.absorb(facts)
            cells["x_version"][self._unknown.read(facts)] = STALE
        if _went_back(self._places, places):
            # What was consumed is not any more: what rests on it is compared again, as after a restart.
            cells["x_version"][cells["x_outstanding"] > 0] = ABSENT
        self._places = places
        close(cells, clock, self.rules)
        judged = judge(cells, clock, self.rules)
        wanting = np.flatnonzero(judged.wants_expansion | judged.wants_evidence)
        if len(wanting):
            for rows in self._apart(wanting):
                self._compare(rows, judged, places)
            judged = judge(cells, clock, self.rules)
        self.judged = judged
        judged_now = self.sum_of(np.full(len(cells), True))
        self.sums = judged_now.beside(self.retired)
        self.suspected, self.withdrawn = suspects(self.sums), withdraws(self.sums)
        return self.sums

    def judge_recovered(self, books: Books) -> None:
        """Judge by the clock of ``books`` what was recovered, where no batch was judged since: to be shown and graded.

        Nothing counts as told by it: the next batch tells what the derived tables lack.
        """
        if self.judged is None and len(self.cells):
            self.absorb(None, books.clock(), places_of(books, tells_unconsumed=self.rules.tells_unconsumed))
            self.judged = None

    def retire(self, goes: Bools, retired: Sums) -> None:
        """Let the cells for which ``goes`` holds leave memory; ``retired`` are the totals of all that ever left."""
        assert self.judged is not None, "cells were judged before they are retired"
        self._tell()
        self.cells.drop(goes)
        self._unknown.drop(goes)
        # What was judged is told; the next batch judges what stays.
        self.judged = None
        self.retired = retired

    def _tell(self) -> None:
        if self.judged is not None:
            tell_violations(
                self.cells,
                self.judged,
                suspected=self.suspected,
                withdrawn=self.withdrawn,
                lookup_us=self.lookup_us,
            )
            tell_verdicts(self.cells, self.judged)

    def sum_of(self, chosen: Bools, unprovable: frozenset[str] = frozenset()) -> Sums:
        """Totals over some of the judged cells. ``unprovable``: the classes of violations of which what is not
        confirmed in these cells is never to be."""
        it, cells = self.judged, self.cells
        assert it is not None, "cells were judged before they are summed"

        def count(condition: Bools) -> int:
            return int(np.count_nonzero(condition & chosen))

        def total(values: Ints, condition: Bools) -> int:
            return int(values[condition & chosen].sum())

        settled = it.settled & it.in_scope
        closed = cells["closed_us"] != ABSENT
        processed = it.counts["processed"]
        observed = cells["processed_count"] + cells["late_count"] + cells["rejected_count"]
        due = due_base(cells)
        # On record: a new result makes a cell's excess unresolved for a while, and takes nothing back.
        kept = {
            name: confirmed_of(cells, it, name, self.suspected, self.withdrawn)
            if name in unprovable
            else it.on_record[name]
            for name in VIOLATIONS
        }

        def parted(of_parts: Mapping[str, Mapping[str, Ints]]) -> dict[str, InputCounts]:
            return {
                part: InputCounts(**{name: total(values, chosen) for name, values in counts.items()})
                for part, counts in of_parts.items()
            }

        def earliest(condition: Bools) -> int | None:
            return present(due[condition & chosen].min(initial=NEVER))

        return Sums(
            counts={name: total(it.counts[name], chosen) for name in CONTRIBUTIONS},
            results={name: total(it.counts[name], chosen) for name in RESULTS},
            matched=total(it.matched, chosen),
            carried=total(np.where(it.in_scope, cells["processed_count"], 0), chosen),
            cells_seen=count(chosen),
            cells_closed=count(closed),
            cells_verified=count(settled & closed & ~it.violated),
            cells_violated=count(it.violated),
            on_record={name: total(kept[name], chosen) for name in VIOLATIONS},
            unproven={name: total(np.maximum(it.counts[name] - kept[name], 0), chosen) for name in VIOLATIONS},
            cells_in_excess=count(np.logical_or.reduce([kept[name] > 0 for name in EXCESS])),
            cells_missing=count(kept["missing"] > 0),
            cells_settled=count(it.settled),
            cells_estimated=count(it.provisional & (observed > 0) & it.in_scope),
            doubtful=total(it.doubtful, chosen),
            unconsumed_overdue=total(it.unconsumed_overdue, chosen),
            unconsumed_due_us=earliest(it.unconsumed_overdue > 0),
            blocked_overdue=total(it.blocked_overdue, chosen),
            blocked_due_us=earliest(it.blocked_overdue > 0),
            changed=count(it.changed),
            settled_expected=total(it.counts["expected"], settled),
            settled_handled=total(processed + it.counts["late"], settled),
            settled_exact=total(np.maximum(processed - it.counts["duplicate"], 0), settled),
            inputs=parted(it.of_inputs),
            asides=parted(it.of_asides),
        )

    def _compare(self, rows: Ints, judged: Judged, places: Mapping[Place, PlaceOffsets]) -> None:
        compared = self._compared(rows, places, self.known.inputs_with)
        expanded(self.cells, compared, judged.version)
        self._unknown.compared(rows, compared.unknown, compared.unknown_texts)
        self.evidence.update(compared.evidence)

    def _compared(
        self, rows: Ints, places: Mapping[Place, PlaceOffsets], known: Callable[[AskedIds], AskedIds]
    ) -> Compared:
        windows = self.cells["window_start_us"][rows]
        oldest = int(self.cells["first_batch"][rows].min())
        near = self.known.of_windows(oldest, int(windows.min()), int(windows.max()))
        return compare(self.cells, rows, near, self.rules, places, known)

    def foreign_ids(self, chosen: Bools) -> Iterator[AskedIds]:
        """The ids that answers of some of the judged cells carry and that these cells do not expect, of those cells of
        which an input is known to have some; in parts that fit into memory."""
        it = self.judged
        assert it is not None, "cells were judged before their ids are asked for"
        rows = np.flatnonzero(chosen & ((it.on_record["misplaced"] > 0) | (self.cells["x_known"] > 0)))
        asked: list[AskedIds] = []

        def taken(ids: AskedIds) -> AskedIds:
            asked.append(ids)
            return ids

        for part in self._apart(rows) if len(rows) else ():
            self._compared(part, {}, taken)
            yield from asked
            asked.clear()

    def _apart(self, wanting: Ints) -> Iterator[Ints]:
        """The cells in parts whose contributions fit into memory, neighbouring windows together."""
        cells = self.cells
        ordered = wanting[np.argsort(cells["window_start_us"][wanting], kind="stable")]
        sizes = sum(cells[f"{name}_count"][ordered] for name in ("expected", "processed", "late", "rejected"))
        part = np.cumsum(sizes) // COMPARED_AT_ONCE
        yield from np.split(ordered, np.flatnonzero(np.diff(part)) + 1)
