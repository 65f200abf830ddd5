"""Totals over the cells of a state: those in memory, and those that retention has dropped.

Each number is declared once, as a field of `CellTotals`: its fold, and what a judged cell adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from validator.core.fit import Fit
from validator.model.arrays import Bools, Ints
from validator.reconcile.cells import Columns
from validator.reconcile.facts import Side
from validator.reconcile.judge import CONTRIBUTIONS, EXCESS, INCORRECT, RESULTS, VIOLATIONS, Judged
from validator.reconcile.quantities import NET, SIDES

Name = tuple[str, ...]
"""A field of `CellTotals`, followed by the keys of the number in it."""


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the events of an input topic, or of the contributions in the results of an output topic. They are kept
    only if there are several inputs or outputs: for a single one the totals are enough. The same counts are kept for
    the ids in late records, and for those in rejected records.

    - ``read``: events that were read, contributions in results, or ids in the late or rejected records.
    - ``matched``: events that are in results, contributions that are proven to match events, or ids that belong to an
      event of the record's cell.
    - ``outstanding``: events that would be missing once due; always 0 for results, late and rejected records.
    - ``undecided``: events, contributions or ids that may match, but are not proven to.
    - ``outside``: ids that are not among ``read``. For late and rejected records: those whose cell is out of scope and
      has no event; a wrong time may have put these records in that cell. For results: those whose cell is out of scope
      and has an event. Results that newer ones have replaced stay in ``read`` or ``outside``.
    - ``claimed``: contributions in results that do not match because other output topics carry their ids in the same
      cell. ``lasting``: those of ``matched`` that no result of another topic can claim any more.
    """

    read: int = 0
    matched: int = 0
    outstanding: int = 0
    undecided: int = 0
    outside: int = 0
    lasting: int = 0
    claimed: int = 0

    def plus(self, other: TopicCounts, times: int = 1) -> TopicCounts:
        """Return the sum of both, ``other`` multiplied by ``times``."""
        return TopicCounts(*(getattr(self, it.name) + times * getattr(other, it.name) for it in fields(self)))

    @property
    def right(self) -> int:
        """Contributions in results that match. A topic that repeats ids of other topics may have a wrong field: then
        only those count that no other topic can claim any more."""
        return self.lasting if self.claimed else self.matched

    @property
    def unmatched_aside(self) -> int:
        """Ids in late or rejected records that are not proven to match. The first match ends the doubt about those out
        of scope."""
        return self.read - self.matched + (0 if self.matched else self.outside)


class JudgedCells(NamedTuple):
    """Some cells and their verdicts. ``on_record``: the counts of `VIOLATIONS` that count as recorded. ``non_cells``:
    as in `Columns`."""

    cells: Columns
    it: Judged
    on_record: Mapping[str, Ints]
    non_cells: Bools | None

    def counts(self, names: tuple[str, ...]) -> dict[str, Ints]:
        """Return the counts of these classes."""
        return {name: self.it.counts[name] for name in names}

    @property
    def suspected(self) -> dict[str, Ints]:
        """The violations that are not on record, by class."""
        # SEMANTICS 4.18: they stay suspected in the totals of retired cells.
        return {name: np.maximum(self.it.counts[name] - self.on_record[name], 0) for name in VIOLATIONS}

    @property
    def overdrawn(self) -> Ints:
        """Whether a key has more removed rows of a table than added ones: 0 or 1."""
        if not self.cells.oracle.reads.signed:
            return np.zeros(len(self.it.in_scope), dtype=np.int64)
        return (self.it.in_scope & (self.cells[NET] < 0)).astype(np.int64)

    @property
    def settled(self) -> Bools:
        """The settled cells in scope."""
        return self.it.settled & self.it.in_scope

    def any_of(self, names: tuple[str, ...]) -> Bools:
        """Return the cells with a violation of one of these classes on record."""
        found: Bools = np.logical_or.reduce([self.on_record[name] > 0 for name in names])
        return found

    @property
    def events(self) -> dict[str, Ints]:
        """The events that each row counts, by what became of them."""
        events, in_scope = self.records(Side.INPUT), self.it.in_scope
        return {
            "settled": np.where(in_scope & self.it.settled, events, 0),
            "open": np.where(in_scope & ~self.it.settled, events, 0),
            "out_of_scope": np.where(in_scope, 0, events),
        }

    def records(self, *sides: Side) -> Ints:
        """Return the records of these sides that each row counts."""
        return np.asarray(sum(self.cells[f"{SIDES[side]}_records"] for side in sides))


Share = Callable[[JudgedCells], Any]
"""What each of some cells adds to a total: an array, or a mapping of such arrays by name."""


def _sum(share: Share | None = None, *, of_keys: bool = False, in_memory: bool = False) -> Any:
    """Return a field for a sum. ``share``: None if it is not a sum over cells. ``of_keys``: rows of keys, which are not
    cells, add to it, too. ``in_memory``: only cells in memory count (`CellTotals.with_retired`)."""
    more = {"share": share, "of_keys": of_keys, "in_memory": in_memory}
    return field(default=0, metadata={"fold": _added, **more})


def _each(share: Share, fold: Callable[..., Any] | None = None, *, of_keys: bool = False) -> dict[str, Any]:
    """Return the metadata of a field for sums by name; ``fold``: None if these are numbers."""
    return {"fold": fold or _added_each, "share": share, "of_keys": of_keys}


def _earliest(*, in_memory: bool = False) -> Any:
    """Return a field for the minimum of the known numbers."""
    return field(default=None, metadata={"fold": _earlier, "in_memory": in_memory})


def _latest() -> Any:
    """Return a field for the maximum of the known numbers."""
    return field(default=None, metadata={"fold": _later})


def _added(one: int, other: int, times: int) -> int:
    return one + times * other


def _added_each(one: Mapping[str, int], other: Mapping[str, int], times: int) -> dict[str, int]:
    return {name: one.get(name, 0) + times * other.get(name, 0) for name in dict.fromkeys((*one, *other))}


def _added_topics(
    one: Mapping[str, TopicCounts], other: Mapping[str, TopicCounts], times: int
) -> dict[str, TopicCounts]:
    nothing = TopicCounts()
    return {name: one.get(name, nothing).plus(other.get(name, nothing), times) for name in sorted({*one, *other})}


def _earlier(one: int | None, other: int | None, _: int = 1) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _later(one: int | None, other: int | None, _: int = 1) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)


@dataclass(frozen=True)
class CellTotals:
    """Totals over all cells after a batch.

    - ``on_record``: violation class -> contributions on record.
    - ``unproven``: violation class -> contributions that were suspected when their cell was retired, and stay
      suspected even after the doubt has ended. They are not on record, and are never confirmed.
    - ``carried``, ``outside``: contributions in results, as in `Judged`. ``matched``: those of ``carried`` that are
      proven to match events.
    - ``cells_sampled``: cells whose fingerprints agree and whose ids were compared nevertheless. A cell that left
      memory and returned counts once more. ``cells_refuted``: those of them whose ids differ.
    - ``cells_estimated``: cells whose counts are estimates, because their ids are not compared yet.
    - ``cells_in_excess``, ``cells_missing``: cells with a violation of `EXCESS`, and with a missing contribution.
    - ``incorrect_ids``: ids that are misplaced or unknown, once per cell; at least 1 for a cell that has any.
    - ``doubtful``: contributions that stay overdue, since they may rightly have been dropped as late. ``elsewhere``:
      the same because of records of other partitions. ``apart``, ``ends_right``, ``ends_wrong``, ``unproven_splits``:
      as in `Judged`. ``split_us``: the shortest pause at which a session was split wrongly. ``kept_us``: the longest
      pause within a result, known once a session was split or left memory (`validator.core.split_sessions`).
    - ``joined``: misplaced contributions in results that answer several sessions at once. ``joined_us``: the longest
      pause between such sessions. ``parted_us``: the shortest pause before a session with a result of its own.
    - ``unconsumed_overdue``: unconsumed contributions that have been due for `missing_after`, or were outstanding at
      the end of an earlier run with `--once`. ``blocked_overdue``: blocked ones that have been due for `missing_after`.
      ``unconsumed_due_us``, ``blocked_due_us``: since when the first of them is due. ``unconsumed``, ``blocked``: the
      same contributions, due or not.
    - ``held_long``: contributions in answers of the cells in memory that an open transaction of an input has kept
      unresolved for `missing_after`.
    - ``unconsumed_retired``, ``blocked_retired``: the contributions of ``*_overdue`` whose cells retention has dropped.
      ``unconsumed``, ``blocked`` and the ``*_overdue`` numbers do not include them.
    - ``changed``: verdicts that the batch changed.
    - ``keys_scattered``: keys with results on several partitions, so that the newest result of the key is unknown.
    - ``rows_scattered``: keys with rows of a table on several partitions, whose order is unknown. ``rows_unordered``:
      those of tables whose rows count.
    - ``cells_several``: cells as in `Judged.several`. ``cells_updated``: those of them with ``updates``, the results of
      `Judged.updates`.
    - ``cells_undecided``: cells retired before the class of each contribution was decided
      (`validator.stream.retention`).
    - ``events``: settled, open, out_of_scope -> input records that cells count. ``answers``: output, late and rejected
      records that they count (`validator.model.coverage`).
    - ``fit``: what the sample of events shows while there are violations; None for the totals of some cells.
    - ``inputs``: counts by input topic; empty for a single input. ``outputs``: counts by output topic; empty for a
      single output. ``set_aside``: counts by side (late, rejected).
    """

    counts: dict[str, int] = field(default_factory=dict, metadata=_each(lambda of: of.counts(CONTRIBUTIONS)))
    results: dict[str, int] = field(default_factory=dict, metadata=_each(lambda of: of.counts(RESULTS)))
    on_record: dict[str, int] = field(default_factory=dict, metadata=_each(lambda of: of.on_record))
    unproven: dict[str, int] = field(default_factory=dict, metadata=_each(lambda of: of.suspected))
    matched: int = _sum(lambda of: of.it.matched)
    carried: int = _sum(lambda of: of.it.carried)
    outside: int = _sum(lambda of: of.it.outside)
    cells_seen: int = _sum(lambda of: np.ones_like(of.it.settled))
    cells_closed: int = _sum(lambda of: of.it.closed)
    cells_verified: int = _sum(lambda of: of.settled & of.it.closed & ~of.it.violated)
    cells_violated: int = _sum(lambda of: of.it.violated)
    cells_in_excess: int = _sum(lambda of: of.any_of(EXCESS))
    cells_missing: int = _sum(lambda of: of.on_record["missing"] > 0)
    incorrect_ids: int = _sum(lambda of: np.where(of.any_of(INCORRECT), np.maximum(of.it.incorrect_ids, 1), 0))
    cells_settled: int = _sum(lambda of: of.it.settled)
    cells_estimated: int = _sum(lambda of: of.it.estimated, in_memory=True)
    cells_sampled: int = _sum(lambda of: of.it.refuted | (of.it.agrees & of.it.compared))
    cells_refuted: int = _sum(lambda of: of.it.refuted)
    cells_several: int = _sum(lambda of: of.it.several)
    cells_updated: int = _sum(lambda of: of.it.updates != 0)
    updates: int = _sum(lambda of: np.abs(of.it.updates))
    cells_undecided: int = _sum()
    doubtful: int = _sum(lambda of: of.it.doubtful)
    elsewhere: int = _sum(lambda of: of.it.elsewhere)
    apart: int = _sum(lambda of: of.it.apart)
    ends_right: int = _sum(lambda of: of.it.ends_right)
    ends_wrong: int = _sum(lambda of: of.it.ends_wrong)
    unproven_splits: int = _sum(lambda of: of.it.unproven_splits)
    split_us: int | None = _earliest()
    kept_us: int | None = _latest()
    joined: int = _sum()
    joined_us: int | None = _latest()
    parted_us: int | None = _earliest()
    unconsumed_overdue: int = _sum(lambda of: of.it.unconsumed_overdue, in_memory=True)
    unconsumed_due_us: int | None = _earliest(in_memory=True)
    blocked_overdue: int = _sum(lambda of: of.it.blocked_overdue, in_memory=True)
    blocked_due_us: int | None = _earliest(in_memory=True)
    held_long: int = _sum(lambda of: of.it.held_long, in_memory=True)
    unconsumed: int = _sum()
    blocked: int = _sum()
    unconsumed_retired: int = _sum()
    blocked_retired: int = _sum()
    keys_scattered: int = _sum(
        lambda of: np.zeros_like(of.it.scattered) if of.non_cells is None else of.non_cells & of.it.scattered,
        of_keys=True,
    )
    changed: int = _sum(in_memory=True)
    settled_expected: int = _sum(lambda of: np.where(of.settled, of.it.counts["expected"], 0))
    # SEMANTICS 6.1: late and rejected events are handled.
    settled_handled: int = _sum(
        lambda of: np.where(of.settled, sum(of.it.counts[name] for name in ("processed", "late", "rejected")), 0)
    )
    settled_exact: int = _sum(
        lambda of: np.where(of.settled, np.maximum(of.it.counts["processed"] - of.it.counts["duplicate"], 0), 0)
    )
    # SEMANTICS 2.35: keys of which more rows were removed than added.
    overdrawn: int = _sum(lambda of: of.overdrawn)
    # SEMANTICS 5.1: the row of a key, which is not a cell, counts records, too.
    events: dict[str, int] = field(default_factory=dict, metadata=_each(lambda of: of.events, of_keys=True))
    answers: int = _sum(lambda of: of.records(Side.OUTPUT, Side.LATE, Side.REJECTED), of_keys=True)
    inputs: dict[str, TopicCounts] = field(
        default_factory=dict, metadata=_each(lambda of: of.it.by_input, _added_topics)
    )
    outputs: dict[str, TopicCounts] = field(
        default_factory=dict, metadata=_each(lambda of: of.it.by_output, _added_topics)
    )
    set_aside: dict[str, TopicCounts] = field(
        default_factory=dict, metadata=_each(lambda of: of.it.by_set_aside, _added_topics)
    )
    rows_scattered: int = _sum()
    rows_unordered: int = _sum()
    fit: Fit | None = None

    def violations(self, name: str) -> int:
        """Return how many contributions, or results, are violations of the class ``name`` now."""
        return self.counts[name] if name in self.counts else self.results.get(name, 0)

    def plus(self, other: CellTotals) -> CellTotals:
        """Return the totals over the cells of both: an operation that is associative and commutative."""
        return self._with(other, 1)

    def minus(self, other: CellTotals) -> CellTotals:
        """Return the totals without those of ``other``, which are a part of them. Minima and maxima stay."""
        return self._with(other, -1)

    def _with(self, other: CellTotals, times: int) -> CellTotals:
        folds = {it.name: it.metadata["fold"] for it in fields(self) if it.metadata}
        return CellTotals(
            **{name: fold(getattr(self, name), getattr(other, name), times) for name, fold in folds.items()}
        )

    def with_due_since(self, unconsumed_us: int | None, blocked_us: int | None) -> CellTotals:
        """Return the totals with earlier due instants, if the given ones are earlier than the known ones.

        ``unconsumed_us``: due instant of contributions that the engine has not consumed. ``blocked_us``: of those that
        an open transaction holds back.
        """
        return replace(
            self,
            unconsumed_due_us=_earlier(self.unconsumed_due_us, unconsumed_us),
            blocked_due_us=_earlier(self.blocked_due_us, blocked_us),
        )

    def with_retired(self, retired: CellTotals) -> CellTotals:
        """Return the totals over the cells in memory (``self``) and ``retired`` ones, which can no longer change.

        The numbers of unconsumed and blocked contributions are those of the cells in memory.
        """
        in_memory = {it.name: getattr(self, it.name) for it in fields(self) if it.metadata.get("in_memory")}
        return replace(
            self.plus(retired),
            **in_memory,
            unconsumed=self.counts["unconsumed"],
            blocked=self.counts["blocked"],
            unconsumed_retired=retired.unconsumed_overdue,
            blocked_retired=retired.blocked_overdue,
        )

    def to_json(self) -> dict[str, object]:
        """Return plain values for a mark in the facts table."""
        return asdict(replace(self, fit=None))

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> CellTotals:
        """Return the value that `to_json` saved."""
        topics = {
            name: {part: TopicCounts(**counts) for part, counts in kept[name].items()}
            for name in ("inputs", "outputs", "set_aside")
        }
        return cls(**{**kept, **topics})

    @classmethod
    def empty(cls) -> CellTotals:
        """Return the totals over no cells."""
        nothing = dict.fromkeys(VIOLATIONS, 0)
        return cls(dict.fromkeys(CONTRIBUTIONS, 0), dict.fromkeys(RESULTS, 0), nothing, nothing)


def shares(cells: Columns, judged: Judged, on_record: Mapping[str, Ints]) -> dict[Name, Ints]:
    """Return what each of these cells adds to the totals. ``on_record``: the counts of `VIOLATIONS` to add."""
    of = JudgedCells(cells, judged, on_record, cells.non_cells)
    found: dict[Name, Ints] = {}
    for it in fields(CellTotals):
        if (share := it.metadata.get("share")) is None:
            continue
        for name, values in _named((it.name,), share(of)):
            adds_nothing = None if it.metadata["of_keys"] else of.non_cells
            found[name] = values if adds_nothing is None else np.where(adds_nothing, 0, values)
    return found


def _named(name: Name, found: Any) -> Iterator[tuple[Name, Ints]]:
    """Yield the arrays of `Share` with their names."""
    if not isinstance(found, Mapping):
        yield name, found
        return
    for part, values in found.items():
        yield from _named((*name, part), values)


def summed(totals: Mapping[Name, int]) -> CellTotals:
    """Return named totals as `CellTotals`. Totals that are not named are 0."""
    found = asdict(CellTotals.empty())
    for name, value in totals.items():
        inner = found
        for part in name[:-1]:
            inner = inner.setdefault(part, {})
        inner[name[-1]] = value
    return CellTotals.from_json(found)
