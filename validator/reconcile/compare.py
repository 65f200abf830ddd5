"""Comparison of cells id by id, if fingerprints disagree (SEMANTICS 2.17). It yields `COMPARED`, and ids as
evidence. The classes of an id are those of the oracle (`validator.oracles.ids`, SEMANTICS 2.2 to 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.codecs.columns import UNOWED
from validator.codecs.plain_fields import one_number
from validator.model import arrays
from validator.model.arrays import Bools, Ints, coded, counts, ints, listed, run_starts, totals
from validator.model.lateness_scope import may_move
from validator.model.pair_rules import NUMBERS, PairRule
from validator.model.stated_values import Stated, Values
from validator.oracles.ids import Flags, IdCounts, IdVerdicts
from validator.oracles.seam import Oracle
from validator.reconcile import beside_ids, splits
from validator.reconcile.cells import STALE, Cells, SomeCells, of_cells
from validator.reconcile.facts import Side
from validator.reconcile.joined_values import OfPairs
from validator.reconcile.judge import Rules, contradicts_its_end
from validator.reconcile.lateness import Reaches
from validator.reconcile.named_by_sums import NAMED_MOST, IdsOfCell, Surplus
from validator.reconcile.quantities import COMPARED, SIDES
from validator.reconcile.unknown_ids import Unknown
from validator.reconcile.values import Aggregate, Answered, wrong_cells

IDS_KEPT: Final = 20
"""Number of ids kept as evidence per violation; further ids are only counted."""
EVIDENCE_KEPT: Final = 10_000
"""Number of violations of each class whose ids a comparison keeps; further violations are only counted."""

_SIDES: Final = tuple(SIDES)
_INPUT, _OUTPUT, _LATE, _REJECTED, _OWES_NOTHING = range(5)

COMPARED_COLUMNS: Final = (
    *("kind", "batch", "side", "topic", "partition", "status", "window_start_us", "key"),
    *("ids", "text_ids", "results", "contributions", "first_offset", "last_offset", "times", "aggregates"),
)
"""The columns of a fact that a comparison needs."""

TopicPartition = tuple[str, int]
"""Topic and partition."""
RequestedIds = tuple[Ints, list[str]]
"""Integer ids and textual ids."""


@dataclass(frozen=True)
class PartitionOffsets:
    """Offsets of an input partition.

    ``committed_offset``: the engine's committed offset (None: not looked up). ``unprovable_below``: answers to events
    below this offset may have expired before they were read (None: there are none). ``has_records``: records were
    written to the partition.
    """

    committed_offset: int | None = None
    unprovable_below: int | None = None
    has_records: bool = True


@dataclass(frozen=True)
class Compared:
    """The result of a comparison of the cells ``rows``.

    ``columns``: those of `COMPARED` except ``version``. ``unknown``, ``unknown_texts``: integer and textual ids
    that no input has. ``evidence``: (row of the cell, class of violation) -> the smallest ids, as texts.
    ``topic_columns``: the columns ``matched/*``, ``lacking/*`` and ``landed/*``.
    """

    rows: Ints
    columns: Mapping[str, Ints]
    unknown: Unknown
    unknown_texts: Unknown
    evidence: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    topic_columns: Mapping[str, Ints] = field(default_factory=dict)


@dataclass(frozen=True)
class _Items:
    """Contributions, one entry each: cell and partition (by number), side, offset, whether the id is a text, and
    the id or the text's number. ``times``: the number of contributions of each entry; None: each is one. ``first``: the
    first of their offsets, if ``offset`` is the last one. ``source``: the index of each entry in the values."""

    cell: Ints
    side: Ints
    partition: Ints
    offset: Ints
    is_text: Ints
    id: Ints
    times: Ints | None = None
    first: Ints | None = None
    source: Ints | None = None

    @property
    def first_offset(self) -> Ints:
        """The first offset of each entry."""
        return self.offset if self.first is None else self.first

    def sorted(self) -> _Items:
        """Return the contributions by cell and id, and within these in the order of (partition, offset)."""
        return self.of(np.lexsort((self.offset, self.partition, self.id, self.is_text, self.cell)))

    def of(self, chosen: Ints | Bools) -> _Items:
        """Return the chosen contributions."""
        columns: dict[str, Any] = {column.name: getattr(self, column.name) for column in fields(self)}
        return replace(self, **{name: column[chosen] for name, column in columns.items() if column is not None})


def compare(
    cells: Cells,
    rows: Ints,
    near: Iterator[pa.Table],
    rules: Rules,
    partition_offsets: Mapping[TopicPartition, PartitionOffsets],
    known: Callable[[RequestedIds], RequestedIds],
    *,
    resolved: Bools | None = None,
) -> Compared:
    """Compare the ids of the cells ``rows``.

    ``near``: tables that contain all facts of these cells (`COMPARED_COLUMNS`), and possibly others. ``known``: returns
    those of the given ids that any input has. ``resolved``: the cells whose results can be judged together; None if
    each result is judged by itself (`Oracle.answers_once`).
    """
    local = {row: i for i, row in enumerate(rows.tolist())}
    gathered = [part for table in near if (part := _facts_of_cells(cells, local, of_cells(table))) is not None]
    if cells.newest is not None:
        # SEMANTICS 2.16: with emission `cumulative` only the newest result of a key counts.
        gathered = [_kept(*part, cells.newest.kept(rows)[0]) for part in gathered]
    states_values = rules.oracle.reads.states_values
    items, texts, named = _counted_items(gathered, rules.oracle) if states_values else _items(gathered)
    checks_values = rules.oracle.checks_values
    if checks_values:
        items = replace(items, source=np.arange(len(items.cell)))
    if cells.newest is not None:
        items = items.of((items.side != _OUTPUT) | (items.offset == cells.newest.kept(rows)[1][items.cell]))
    items = items.sorted()
    size = len(rows)
    starts = run_starts(items.cell, items.is_text, items.id)
    group = np.cumsum(starts) - 1
    firsts = np.flatnonzero(starts)
    flags = _flags(cells, rows, items, named, rules, partition_offsets)
    if rules.oracle.having:
        items, flags = _under_bounds(gathered, items, flags, rules, size)
    if states_values and rules.oracle.stated.count_name is None:
        items = _standing_for_all(items, flags)
    id_counts = _id_counts(items, group, firsts)
    results = _Results.of(items, by_id=rules.oracle.by_id)
    if rules.oracle.states_pairs:
        id_counts = replace(
            id_counts, time_us=_times_of(items, gathered, named, size), result=results.of_items(len(group))
        )
    apart, split = np.zeros(len(items.cell), dtype=np.bool_), dict.fromkeys(splits.FIELDS, np.full(size, arrays.ABSENT))
    if resolved is not None:
        whole = _Compared(items, group, id_counts, results, named)
        excuses = partial(_excuses, cells, named, rules, partition_offsets)
        wrong_ends = resolved & contradicts_its_end(SomeCells(cells, rows))
        apart, split = _wrong_parts(whole, gathered, resolved, wrong_ends, excuses)
    if rules.oracle.states_pairs:
        apart, repeated = rules.oracle.unsound(id_counts, texts)
        flags = replace(flags, repeated=repeated)
    flags = replace(flags, apart=apart)
    ids = rules.oracle.classes(id_counts, flags, texts, collapse=rules.collapse, drops_late=rules.drops_late)
    # Without ids in results, all events of a cell have the same stand-in for an id.
    is_known = np.zeros(len(ids.foreign), dtype=np.bool_) if states_values else _known(ids, texts, known)
    sums = {name: totals(ids.cell, getattr(ids, name), size) for name in _SUMMED}
    for name, set_aside in (("late", id_counts.late), ("rejected", id_counts.rejected)):
        # SEMANTICS 4.23: a late or rejected record matches if its cell has an event with its id, owed or not.
        sums[f"{name}_expected"] = totals(
            id_counts.cell, np.where(id_counts.expected + id_counts.unowed > 0, set_aside, 0), size
        )
    # SEMANTICS 2.2: an id that its cell does not expect is misplaced if any input has it, else unknown.
    foreign_known = np.where(is_known, ids.foreign, 0)
    sums["known"] = totals(ids.cell, foreign_known, size)
    sums["unknown"] = totals(ids.cell, ids.foreign - foreign_known, size)
    sums["foreign"] = totals(ids.cell, ids.foreign, size)
    # SEMANTICS 4.14: a hidden record explains an id, however often an at-least-once engine repeats it.
    sums["incorrect_ids"] = totals(ids.cell, (ids.foreign > 0).astype(np.int64), size)
    inconsistent, beside = np.zeros(len(results.cell), dtype=np.bool_), dict[int, str]()
    if checks_values:
        inconsistent, beside = _inconsistent(gathered, items, group, results, named, rules)
    misplaced, excess = _wrong_results(items, results, group, ids, is_known, flags, inconsistent, size)
    # SEMANTICS 2.11: a result without ids makes no claim, so it is sound.
    sound = cells["results"][rows] - misplaced - excess - counts(results.cell, inconsistent, size)
    # SEMANTICS 2.15: whether its cell is complete decides the class of every sound result.
    lacking = sums["outstanding"] > 0
    wrong, waits = _wrong_values(gathered, items, flags, sums, rules, size)
    are_wrong = np.zeros(size, dtype=np.bool_)
    are_wrong[list(wrong)] = True
    sums |= {
        "correct": np.where(lacking, 0, sound),
        "incomplete": np.where(lacking, sound, 0),
        "excess": excess,
        "misplaced": misplaced,
        "wrong_value": counts(results.cell, inconsistent, size)
        if checks_values
        else np.where(waits, STALE, np.where(are_wrong, sound, 0)),
        **split,
    }
    inputs = cells.inputs if rules.several_inputs else ()
    unknown = (ids.foreign > 0) & ~is_known
    numeric, textual = (np.flatnonzero(unknown & (ids.is_text == kind)) for kind in (0, 1))
    return Compared(
        rows,
        sums,
        unknown=(rows[ids.cell[numeric]], pa.array(ids.id[numeric])),
        unknown_texts=(
            rows[ids.cell[textual]],
            pa.array([texts[code] for code in ids.id[textual].tolist()], pa.string()),
        ),
        evidence=(
            _named_by_sums(gathered, items, sums, wrong, rules, rows)
            if states_values
            else _evidence(ids, is_known, rows, texts)
            | {(int(rows[cell]), "wrong_value"): (clause,) for cell, clause in beside.items()}
        ),
        topic_columns=_input_columns(
            inputs,
            items,
            named,
            id_counts,
            ids,
            size,
            collapse=rules.collapse,
            counts_pairs=rules.oracle.pair_rule is not None,
        )
        | _output_columns(cells.outputs, items, named, id_counts, ids, size),
    )


_EXCUSES: Final = ("dropped_late", "unconsumed", "unprovable", "doubtful", "elsewhere")
_SUMMED: Final = (
    *("expected", "processed", "late", "rejected", "duplicate", "outstanding"),
    *("dropped_late", "unconsumed", "unconsumed_on_time", "unprovable", "doubtful", "elsewhere"),
)


def expanded(cells: Cells, compared: Compared, version: Ints) -> None:
    """Write the result of a comparison into the cells. ``version``: that of each compared cell."""
    cells.put("x_version", compared.rows, version)
    for name in COMPARED:
        if name != "version":
            cells.put(f"x_{name}", compared.rows, compared.columns[name])
    for name, values in compared.topic_columns.items():
        cells.put(name, compared.rows, values)


def _facts_of_cells(cells: Cells, local: Mapping[int, int], facts: pa.Table) -> tuple[pa.Table, Ints] | None:
    """Return the facts of the compared cells and the number of each fact's cell; None if there are no such facts."""
    if not facts.num_rows:
        return None
    windows = ints(facts["window_start_us"])
    compared = np.fromiter(local, dtype=np.int64, count=len(local))
    wanted = np.unique(cells["window_start_us"][compared])
    if not cells.merges:
        facts = facts.filter(pa.array(np.isin(windows, wanted)))
    else:
        facts = facts.filter(pa.array((windows >= wanted[0]) & (windows < cells["end_us"][compared].max())))
    rows = cells.rows_of_facts(facts)
    numbers = np.fromiter((local.get(row, -1) for row in rows.tolist()), dtype=np.int64, count=len(rows))
    mine = numbers >= 0
    return (facts.filter(pa.array(mine)), numbers[mine]) if mine.any() else None


def _kept(facts: pa.Table, cell: Ints, batches: Ints) -> tuple[pa.Table, Ints]:
    """Keep a result only if its batch equals the entry of its cell in ``batches``. Other facts stay."""
    retained = (ints(facts["batch"]) == batches[cell]) | ~arrays.is_one_of(facts["side"], Side.OUTPUT.value)
    return facts.filter(pa.array(retained)), cell[retained]


def _items(gathered: Sequence[tuple[pa.Table, Ints]]) -> tuple[_Items, list[str], list[TopicPartition]]:
    """Return all contributions of the facts, the texts by number, and the partitions by number (sorted)."""
    partitions = _partitions(gathered)
    parts: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []
    texts: list[pa.Array] = []
    waiting: list[tuple[Ints, Ints, Ints, Ints]] = []
    for facts, cell in gathered:
        side, partition = _sides(facts), _partition_numbers(facts, partitions)
        parents, events = listed(facts["ids"])
        of_numbers = [(parents, ints(arrays.field(events, "offset")), ints(arrays.field(events, "id")))]
        parents, events = listed(facts["text_ids"])
        of_texts = [(parents, ints(arrays.field(events, "offset")), arrays.field(events, "id"))]
        parents, results = listed(facts["results"])
        offsets = ints(arrays.field(results, "offset"))
        of_result, ids = listed(arrays.field(results, "ids"))
        of_numbers.append((parents[of_result], offsets[of_result], ints(ids)))
        of_result, ids = listed(arrays.field(results, "text_ids"))
        of_texts.append((parents[of_result], offsets[of_result], ids))
        for rows, offset, numbers in of_numbers:
            parts.append((cell[rows], side[rows], partition[rows], offset, np.zeros_like(numbers), numbers))
        for rows, offset, names in of_texts:
            texts.append(names)
            waiting.append((cell[rows], side[rows], partition[rows], offset))
    codes, named = coded(texts)
    parts += [
        (cell, side, partition, offset, np.ones(len(code), dtype=np.int64), code)
        for (cell, side, partition, offset), code in zip(waiting, codes, strict=True)
    ]
    whole = [np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)]
    return _Items(*(np.asarray(column, dtype=np.int64) for column in whole)), named, partitions


def _counted_items(
    gathered: Sequence[tuple[pa.Table, Ints]], oracle: Oracle
) -> tuple[_Items, list[str], list[TopicPartition]]:
    """As `_items`, for events without ids (evidence `values`): an entry for each fact row of events and for each
    result. If results state pairs, the id says which side an event is of (`validator.oracles.counted_pairs`)."""
    # SEMANTICS 2.23: the events of a cell count as copies of one event, of which a result states a number. An excuse of
    # one event of a row excuses all of them.
    partitions = _partitions(gathered)
    parts: list[tuple[Ints, ...]] = []
    for facts, cell in gathered:
        side, partition = _sides(facts), _partition_numbers(facts, partitions)
        rows = np.flatnonzero(side != _OUTPUT)
        first, last, times = (ints(facts[name])[rows] for name in ("first_offset", "last_offset", "contributions"))
        # SEMANTICS 2.6: the engine may have set aside each of the events that owe nothing: no more than their offsets.
        times = np.where(side[rows] == _OWES_NOTHING, last - first + 1, times)
        parts.append((cell[rows], side[rows], partition[rows], last, times, first))
        rows, results = listed(facts["results"])
        offset, times = ints(arrays.field(results, "offset")), ints(arrays.field(results, "count"), 0)
        parts.append((cell[rows], side[rows], partition[rows], offset, times, offset))
    cell, side, partition, offset, times, first = (
        np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)
    )
    same = np.zeros_like(cell)
    id_ = same
    if (rule := oracle.pair_rule) is not None and len(cell):
        id_ = np.array([rule.number_of(topic) for topic, _ in partitions], dtype=np.int64)[partition]
    return _Items(cell, side, partition, offset, same, id_, times, first, np.arange(len(cell))), [], partitions


def _standing_for_all(items: _Items, flags: Flags) -> _Items:
    """Return the entries of `_counted_items` whose results do not state how many events they used."""
    times = items.times
    assert times is not None, "entries without ids have it"
    # SEMANTICS 2.29: the results of a cell together stand for all of its events that the engine has read and that are
    # not set aside. A result of a cell without events stands for one.
    cells = int(items.cell.max(initial=-1)) + 1
    events, aside, unread = (
        counts(items.cell, mine, cells, times)
        for mine in (
            items.side == _INPUT,
            (items.side == _LATE) | (items.side == _REJECTED),
            (items.side == _INPUT) & flags.unread,
        )
    )
    is_first = np.zeros(len(items.cell), dtype=np.bool_)
    of_output = np.flatnonzero(items.side == _OUTPUT)
    is_first[of_output[np.unique(items.cell[of_output], return_index=True)[1]]] = True
    left = np.maximum(events - unread - aside, 0)[items.cell]
    standing = np.where(events[items.cell] > 0, np.where(is_first, left, 0), 1)
    return replace(items, times=np.where(items.side == _OUTPUT, standing, times))


def _under_bounds(
    gathered: Sequence[tuple[pa.Table, Ints]], items: _Items, flags: Flags, rules: Rules, size: int
) -> tuple[_Items, Flags]:
    """Return the entries of `_counted_items` and their flags, in which a cell without results owes nothing if its
    values may not reach the bounds of all results. If they reach the bounds only with events that the engine has not
    consumed, all events of the cell count as unread; if only with events whose answers may be unread, all count as
    such. ``items``: sorted."""
    # SEMANTICS 2.33: no further event takes one of these values below its bound.
    values, times = rules.oracle.stated, items.times
    assert times is not None, "entries without ids have it"
    of_input, of_aside = items.side == _INPUT, (items.side == _LATE) | (items.side == _REJECTED)
    may_drop = (flags.late | flags.doubtful | flags.elsewhere) & rules.drops_late
    bounded = [(value, bound) for value in values.stated if (bound := values.bound_of(value.name)) is not None]
    known = _Known.of(gathered, items, values, size) if bounded else None
    unanswered = np.bincount(items.cell[_are_answers(items, known, values)], minlength=size) == 0
    unanswered &= np.bincount(items.cell[of_input], minlength=size) > 0

    def reached(sure: Bools) -> Bools:
        found: Bools = unanswered.copy()
        if values.count_name is not None and (bound := values.bound_of(values.count_name)) is not None:
            used, aside = (totals(items.cell[mine], times[mine], size) for mine in (sure, of_aside))
            found &= used - aside >= bound.least_integer
        for value, least in bounded:
            assert known is not None, "values need it"
            for cell in np.flatnonzero(found).tolist():
                number = known.least(cell, value, sure)
                found[cell] = number is not None and least.surely_holds(number)
        return found

    surely = reached(of_input & ~may_drop)
    now = reached(of_input & ~may_drop & ~flags.unread)
    provably = reached(of_input & ~may_drop & ~flags.unread & ~flags.unsure)
    side = np.where(of_input & (unanswered & ~surely)[items.cell], _OWES_NOTHING, items.side)
    unread = flags.unread | (of_input & (surely & ~now)[items.cell])
    # SEMANTICS 3.25: without the events that the engine may never have read, the cell may owe nothing.
    unsure = flags.unsure | (of_input & (surely & ~provably)[items.cell])
    return replace(items, side=side), replace(flags, unread=unread, unsure=unsure)


def _are_answers(items: _Items, known: _Known | None, values: Values) -> Bools:
    """Return which entries are results that state something. A null value that withdraws a result, or that the engine
    writes instead of one (Kafka Streams), does not."""
    assert items.times is not None, "entries without ids have it"
    found: Bools = items.side == _OUTPUT
    if values.count_name is not None:
        return found & (items.times > 0)
    assert known is not None, "only values have bounds"
    assert items.source is not None, "entries without ids have it"
    for i in np.flatnonzero(found).tolist():
        found[i] = any(text is not None for text in known.stored[items.source[i]])
    return found


@dataclass(frozen=True)
class _Known:
    """What the facts have of the values of compared cells. ``items``: sorted; ``starts``: the first one of each cell.
    ``stored``: as `_stored_values` returns it."""

    items: _Items
    starts: Ints
    stored: Sequence[Sequence[Any]]
    hashed: frozenset[int]

    @classmethod
    def of(cls, gathered: Sequence[tuple[pa.Table, Ints]], items: _Items, values: Values, size: int) -> _Known:
        """Return what the facts have."""
        starts = np.searchsorted(items.cell, np.arange(size + 1))
        return cls(items, starts, _stored_values(gathered), values.hashed)

    def entries(self, cell: int, *sides: int) -> list[int]:
        """Return the items of a cell on some sides."""
        return [i for i in range(self.starts[cell], self.starts[cell + 1]) if self.items.side[i] in sides]

    def aggregates(self, chosen: Iterable[int], place: int, at: int | None = None) -> list[Aggregate]:
        """Return the aggregates of a field over the events of each of these items. ``at``: its index in their facts, if
        it is another one than in `Values.paths`."""
        times, source = self.items.times, self.items.source
        assert times is not None, "entries without ids have it"
        assert source is not None, "entries without ids have it"
        is_hashed, index = place in self.hashed, place if at is None else at
        return [Aggregate.of(int(times[i]), self.stored[source[i]][index], is_hashed=is_hashed) for i in chosen]

    def aside(self, cell: int, place: int) -> list[Aggregate]:
        """Return the aggregates over the late and rejected records of a cell."""
        return self.aggregates(self.entries(cell, _LATE, _REJECTED), place)

    def stated(self, cell: int, place: int) -> list[Decimal | None]:
        """Return what the results of a cell state."""
        source = self.items.source
        assert source is not None, "entries without ids have it"
        texts = (self.stored[source[i]][place] for i in self.entries(cell, _OUTPUT))
        return [None if text is None else Decimal(text) for text in texts]

    def surplus(self, cell: int, i: int, values: Values) -> tuple[int, int] | None:
        """Return the sum of integers over the events of a cell, and what the value at an index of `Values.stated` and
        the late and rejected records have above it. None if that is not known."""
        place = values.stated[i].place
        events, aside = self.aggregates(self.entries(cell, _INPUT), place), self.aside(cell, place)
        given = [number or Decimal(0) for number in (*(one.sum for one in aside), *self.stated(cell, i))]
        if any(one.numbers < one.events for one in (*events, *aside)) or any(number != int(number) for number in given):
            return None
        total = sum(int(one.sum or 0) for one in events)
        return total, sum(map(int, given)) - total

    def least(self, cell: int, value: Stated, sure: Bools) -> Fraction | None:
        """Return a number that a value surely reaches if the engine has used the ``sure`` events; None if it may be
        null."""
        used = self.aggregates((i for i in self.entries(cell, _INPUT) if sure[i]), value.place)
        owed = Answered(used, (), self.aside(cell, value.place), all_used=True).owed(value.function)
        return None if owed is None or owed.is_null else owed.low


def _wrong_values(
    gathered: Sequence[tuple[pa.Table, Ints]],
    items: _Items,
    flags: Flags,
    sums: Mapping[str, Ints],
    rules: Rules,
    size: int,
) -> tuple[dict[int, str], Bools]:
    """Return the cells whose results state a wrong value, with what is wrong, and which cells wait for the engine to
    consume their events. ``items``: sorted."""
    values, none = rules.oracle.stated, np.zeros(size, dtype=np.bool_)
    if not rules.oracle.reads.states_values or not values.stated or items.source is None:
        return {}, none
    # SEMANTICS 2.29: a value is judged if every event of the cell is answered, but those that the engine may drop.
    may_drop = (flags.late | flags.doubtful | flags.elsewhere) & rules.drops_late
    dropped = sums["dropped_late"] + sums["doubtful"] + sums["elsewhere"]
    left = sums["outstanding"] - (dropped if rules.drops_late else 0)
    has_results = np.bincount(items.cell[items.side == _OUTPUT], minlength=size) > 0
    judged = has_results & (left == 0) & (sums["duplicate"] + sums["foreign"] == 0) & (sums["expected"] > 0)

    def has(chosen: Bools) -> Bools:
        found: Bools = np.bincount(items.cell, chosen, minlength=size) > 0
        return found

    of_input = items.side == _INPUT
    all_used = sums["outstanding"] == 0
    if values.count_name is None:
        # SEMANTICS 2.29: whether such a result used an event is not known.
        all_used &= ~has(of_input & may_drop)
    # SEMANTICS 2.29: an event that is not consumed, or an answer that may have expired, may be what the value lacks.
    waits = judged & has(of_input & flags.unread)
    judged &= ~waits
    judged &= ~has(of_input & flags.unsure) | (all_used & (values.count_name is not None))
    # SEMANTICS 2.6: an event that owes nothing may be what was set aside.
    judged &= ~(has(items.side == _OWES_NOTHING) & has((items.side == _LATE) | (items.side == _REJECTED)))
    if not judged.any():
        return {}, waits
    known, pair_rule = _Known.of(gathered, items, values, size), rules.oracle.pair_rule

    def answered(cell: int, place: int) -> Answered:
        if pair_rule is not None:
            field = values.place_in_side(place)
            return _answered_pairs(known, cell, place, field, may_drop, pair_rule, all_used=bool(all_used[cell]))
        events = known.entries(cell, _INPUT)
        return Answered(
            known.aggregates((i for i in events if not may_drop[i]), place),
            known.aggregates((i for i in events if may_drop[i]), place),
            known.aside(cell, place),
            all_used=bool(all_used[cell]),
        )

    tolerances = dict(rules.oracle.reads.tolerances)
    return wrong_cells(values, tolerances, np.flatnonzero(judged).tolist(), answered, known.stated), waits


def _answered_pairs(
    known: _Known,
    cell: int,
    place: int,
    field: tuple[str, int],
    may_drop: Bools,
    rule: PairRule,
    *,
    all_used: bool,
) -> Answered:
    """Return the events of one side of a join, by what the results of the cell must have used. ``field``: their side,
    and the index of the field in their facts."""
    times, (side, at) = known.items.times, field
    assert times is not None, "entries without ids have it"
    events = known.entries(cell, _INPUT)
    mine = [i for i in events if known.items.id[i] == NUMBERS[side]]
    others = [i for i in events if known.items.id[i] != NUMBERS[side]]
    most = int(times[others].sum())
    least = most if all_used else int(times[[i for i in others if not may_drop[i]]].sum())
    # SEMANTICS 2.12: left events make as many pairs with one partner as without.
    all_used &= not (rule.may_lack(side) and times[mine].sum() == 1)
    sure = known.aggregates((i for i in mine if not may_drop[i]), place, at)
    free = known.aggregates((i for i in mine if may_drop[i]), place, at)
    return OfPairs(sure, free, (), all_used, *rule.partners(least, most))


def _stored_values(gathered: Sequence[tuple[pa.Table, Ints]]) -> list[list[Any]]:
    """Return what the facts have for each entry of `_counted_items`: aggregates of fields, or stated values."""
    found: list[list[Any]] = []
    for facts, _ in gathered:
        rows = np.flatnonzero(_sides(facts) != _OUTPUT)
        found += facts["aggregates"].take(pa.array(rows)).to_pylist()
        _, results = listed(facts["results"])
        found += arrays.field(results, "values").to_pylist()
    return found


def _sides(facts: pa.Table) -> Ints:
    """Return the number of each fact's side; `_OWES_NOTHING` for events that contribute to no cell."""
    found = np.select([arrays.is_one_of(facts["side"], name.value) for name in _SIDES], range(4), -1)
    found[ints(facts["status"]) == UNOWED] = _OWES_NOTHING
    return found


def _partitions(gathered: Sequence[tuple[pa.Table, Ints]]) -> list[TopicPartition]:
    return sorted({partition for facts, _ in gathered for partition in _topic_partitions(facts)})


def _partition_numbers(facts: pa.Table, partitions: Sequence[TopicPartition]) -> Ints:
    """Return the place of each fact's partition in ``partitions``."""
    number = {partition: i for i, partition in enumerate(partitions)}
    return np.array([number[it] for it in _topic_partitions(facts)], dtype=np.int64)


def _topic_partitions(facts: pa.Table) -> list[TopicPartition]:
    return list(zip(facts["topic"].to_pylist(), facts["partition"].to_pylist(), strict=True))


def _id_counts(items: _Items, group: Ints, firsts: Ints) -> IdCounts:
    size = len(firsts)
    e, p, late, rejected, unowed = (counts(group, items.side == side, size, items.times) for side in range(5))
    return IdCounts(
        cell=items.cell[firsts],
        is_text=items.is_text[firsts],
        id=items.id[firsts],
        expected=e,
        processed=p,
        late=late,
        rejected=rejected,
        unowed=unowed,
        group=group,
        from_input=items.side == _INPUT,
        times=items.times,
    )


def _flags(
    cells: Cells,
    rows: Ints,
    items: _Items,
    named: Sequence[TopicPartition],
    rules: Rules,
    partition_offsets: Mapping[TopicPartition, PartitionOffsets],
) -> Flags:
    late, doubtful, elsewhere, unread, unsure = (np.zeros(len(items.cell), dtype=np.bool_) for _ in range(5))
    # Events of sessions carry what makes them late (`_named_events`).
    if rules.asks_lateness and not cells.merges:
        ends = cells["end_us"][rows][items.cell]
        # SEMANTICS 2.9: an earlier record of an event's own partition makes it late. SEMANTICS 3.26: a hidden one may
        # have.
        late = _past(cells.lateness.proven, ends, items.partition, items.offset, named)
        doubtful = _past(cells.lateness.possible, ends, items.partition, items.offset, named) & ~late
        if rules.looks_elsewhere:
            elsewhere = _past_elsewhere(cells, ends, items, named, rules) & (items.side == _INPUT) & ~late & ~doubtful
        if rules.collapse:
            # SEMANTICS 2.10: the engine has read the first copy before, and must answer it if it was on time.
            late, doubtful, elsewhere = (_of_first_copies(it, items) for it in (late, doubtful, elsewhere))
        elsewhere = elsewhere & ~late & ~doubtful
    for number, partition in enumerate(named):
        offsets = partition_offsets.get(partition, PartitionOffsets())
        mine = items.partition == number
        # SEMANTICS 2.8: at or past the committed offset the engine has read nothing.
        if offsets.committed_offset is not None:
            unread |= mine & (items.offset >= offsets.committed_offset)
        # SEMANTICS 3.24, 3.25: answers to events below this offset may be unread, or the engine never read the events.
        if offsets.unprovable_below is not None:
            unsure |= mine & (items.first_offset < offsets.unprovable_below)
    return Flags(late, doubtful, elsewhere, unread, unsure, np.zeros(len(items.cell), dtype=np.bool_))


def _of_first_copies(condition: Bools, items: _Items) -> Bools:
    """Return, for each event, whether ``condition`` holds for the first copy of its id in its cell and partition. An
    engine that drops repeats has read this copy before the later ones. ``items``: sorted."""
    events = np.flatnonzero(items.side == _INPUT)
    is_first = run_starts(items.cell[events], items.is_text[events], items.id[events], items.partition[events])
    found = np.zeros(len(items.cell), dtype=np.bool_)
    found[events] = condition[events[is_first]][np.cumsum(is_first) - 1]
    return found


def _past(reaches: Reaches, ends: Ints, partition: Ints, offset: Ints, named: Sequence[TopicPartition]) -> Bools:
    """Return which records follow a record of their own partition that passed an instant. ``ends``: the instant of each
    record. ``partition``, ``offset``: their positions."""
    found = np.zeros(len(ends), dtype=np.bool_)
    for number, topic_partition in enumerate(named):
        reached = sorted(reaches.get(topic_partition, {}).items())
        mine = partition == number
        if not reached or not mine.any():
            continue
        ends_past = np.array([end for end, _ in reached], dtype=np.int64)
        # For each of ``ends_past``: the smallest offset of a record that passed this end or a later one.
        past_from = np.minimum.accumulate(np.array([at for _, at in reached], dtype=np.int64)[::-1])[::-1]
        first = np.searchsorted(ends_past, ends[mine])
        from_offset = np.where(first < len(past_from), past_from[np.minimum(first, len(past_from) - 1)], arrays.NEVER)
        # Strictly later: an event does not make itself late.
        found[mine] = offset[mine] > from_offset
    return found


def _past_elsewhere(cells: Cells, ends: Ints, items: _Items, named: Sequence[TopicPartition], rules: Rules) -> Bools:
    """Return which contributions are of a partition beside which another one in the scope of lateness has passed the
    end of the window."""
    if rules.follows_pauses:
        return _past(cells.lateness.paused, ends, items.partition, items.offset, named)
    furthest = cells.lateness.furthest()
    # SEMANTICS 2.26: the engine may have read any record of the other partition first.
    reached = [
        max((end for other, end in furthest.items() if may_move(rules.lateness_scope, partition, other)), default=None)
        for partition in named
    ]
    of_partition = np.array([arrays.ABSENT if end is None else end for end in reached], dtype=np.int64)
    return ends <= of_partition[items.partition]


def _excuses(
    cells: Cells,
    named: Sequence[TopicPartition],
    rules: Rules,
    partition_offsets: Mapping[TopicPartition, PartitionOffsets],
) -> splits.Rules:
    """Return what may excuse a session in parts."""
    gap_us = rules.oracle.merging_gap_us
    assert gap_us is not None, "only cells that merge are answered in parts"
    others = [partition for partition, offsets in partition_offsets.items() if offsets.has_records]
    scope = rules.lateness_scope
    moved = [any(may_move(scope, partition, other) for other in others) for partition in named]

    def is_passed(events: splits.Named, ends_us: Ints) -> Bools:
        # A reach is less by `allowed_lateness`, too; a session may be answered before that time is over.
        ends_us = ends_us - rules.allowed_lateness_us
        return _past(cells.lateness.possible, ends_us, events.partition, events.offset, named)

    return splits.Rules(gap_us, rules.max_disorder_us, is_passed, np.array(moved, dtype=np.bool_))


@dataclass(frozen=True)
class _Compared:
    """What `_id_counts` and `_Results` found in the contributions of the compared cells."""

    items: _Items
    group: Ints
    id_counts: IdCounts
    results: _Results
    named: Sequence[TopicPartition]


def _wrong_parts(
    it: _Compared,
    gathered: Sequence[tuple[pa.Table, Ints]],
    resolved: Bools,
    wrong_ends: Bools,
    excuses: Callable[[], splits.Rules],
) -> tuple[Bools, dict[str, Ints]]:
    """Return which contributions are in results that are not the answer of their session, and `splits.FIELDS`.

    ``resolved``: cells whose results can be judged together. ``wrong_ends``: cells whose result names another end.
    """
    size = len(resolved)
    # SEMANTICS 2.28: only if the result has all events of its session, which decide the session's end.
    answered = it.id_counts.processed + it.id_counts.late + it.id_counts.rejected
    wrong_ends = wrong_ends & (counts(it.id_counts.cell, it.id_counts.expected != answered, size) == 0)
    apart = wrong_ends[it.items.cell] & (it.items.side == _OUTPUT)
    columns = dict.fromkeys(splits.FIELDS, np.full(size, arrays.ABSENT, dtype=np.int64))
    concerned = resolved & (np.bincount(it.results.cell, minlength=size) > 1)
    if concerned.any():
        mine = concerned[it.items.cell[it.results.items]]
        carried = it.results.items[mine]
        mentions = splits.Mentions(it.items.cell[carried], it.group[carried], it.results.number[mine])
        found = splits.splits_of(_named_events(it, gathered, concerned), mentions, size, excuses())
        apart[carried] |= found.apart
        columns |= found.columns
    many = counts(it.items.cell, apart, size)
    return apart, columns | {"apart": np.where(many > 0, many, arrays.ABSENT)}


def _named_events(it: _Compared, gathered: Sequence[tuple[pa.Table, Ints]], concerned: Bools) -> splits.Named:
    """Return the events of the ``concerned`` cells that results name and that one record brought, with their times."""
    dated = _dated_events(gathered, it.named, concerned)
    chosen = (it.id_counts.expected == 1) & (it.id_counts.processed > 0) & concerned[it.id_counts.cell]
    of_events = np.flatnonzero((it.items.side == _INPUT) & chosen[it.group])
    wanted = it.items.of(of_events)
    if not len(of_events) or not len(dated[0]):
        return splits.Named(*(np.empty(0, dtype=np.int64) for _ in range(6)))
    at, known = _places_in(dated, wanted)
    wanted, at, numbered = wanted.of(known), at[known], it.group[of_events[known]]
    found = splits.Named(wanted.cell, numbered, wanted.partition, wanted.offset, dated[3][at], dated[4][at])
    return found.of(np.lexsort((found.offset, found.partition, found.time_us, found.cell)))


def _dated_events(
    gathered: Sequence[tuple[pa.Table, Ints]], named: Sequence[TopicPartition], concerned: Bools
) -> list[Ints]:
    """Return columns of the events of the ``concerned`` cells: cell, partition, offset, time, newest time before."""
    parts = []
    for table, cells in gathered:
        mine = arrays.is_one_of(table["side"], Side.INPUT.value) & concerned[cells]
        facts, cell = table.filter(pa.array(mine)), cells[mine]
        row, events = listed(facts["times"])
        partition = _partition_numbers(facts, named)
        columns = [ints(arrays.field(events, name)) for name in ("offset", "time_us", "before_us")]
        parts.append((cell[row], partition[row], *columns))
    return [np.concatenate([part[i] for part in parts]) for i in range(5)]


def _places_in(dated: Sequence[Ints], wanted: _Items) -> tuple[Ints, Bools]:
    """Return the place of each of the ``wanted`` contributions in `_dated_events`, which is not empty, and whether it
    is there."""
    places = zip(dated[:3], (wanted.cell, wanted.partition, wanted.offset), strict=True)
    numbers = one_number([np.concatenate(both) for both in places])
    have, want = numbers[: len(dated[0])], numbers[len(dated[0]) :]
    order = np.argsort(have, kind="stable")
    at = order[np.minimum(np.searchsorted(have[order], want), len(have) - 1)]
    return at, have[at] == want


def _times_of(
    items: _Items, gathered: Sequence[tuple[pa.Table, Ints]], named: Sequence[TopicPartition], size: int
) -> Ints:
    """Return the time of each contribution that is an event. ``size``: number of compared cells."""
    found, events = np.full(len(items.cell), arrays.ABSENT), np.flatnonzero(items.side == _INPUT)
    if len(events):
        dated = _dated_events(gathered, named, np.ones(size, dtype=np.bool_))
        at, known = _places_in(dated, items.of(events))
        assert known.all(), "the facts of such an oracle have the time of each event"
        found[events] = dated[3][at]
    return found


def _known(ids: IdVerdicts, texts: Sequence[str], known: Callable[[RequestedIds], RequestedIds]) -> Bools:
    """Return which ids are foreign to their cell but known to some input."""
    foreign = ids.foreign > 0
    found = np.zeros(len(foreign), dtype=np.bool_)
    if not foreign.any():
        return found
    numeric, textual = foreign & (ids.is_text == 0), foreign & (ids.is_text == 1)
    names = [texts[code] for code in np.unique(ids.id[textual]).tolist()]
    numbers, some = known((np.unique(ids.id[numeric]), names))
    found[numeric] = np.isin(ids.id[numeric], numbers)
    is_there = set(some)
    found[textual] = [texts[code] in is_there for code in ids.id[textual].tolist()]
    return found


@dataclass(frozen=True)
class _Results:
    """The results with ids, numbered by cell and position.

    ``items``: the contributions in results. ``number``: the result of each of them. ``cell``: that of each result.
    """

    items: Ints
    number: Ints
    cell: Ints

    @classmethod
    def of(cls, items: _Items, *, by_id: bool) -> _Results:
        """Return the results among these contributions. ``by_id``: each mention of an id counts as a result."""
        carried = np.flatnonzero(items.side == _OUTPUT)
        cell, partition, offset = items.cell[carried], items.partition[carried], items.offset[carried]
        order = np.lexsort((offset, partition, cell))
        new = run_starts(cell[order], partition[order], offset[order])
        if by_id:
            new[:] = True
        number = np.empty(len(carried), dtype=np.int64)
        number[order] = np.cumsum(new) - 1
        return cls(carried, number, cell[order][new])

    def of_items(self, many: int) -> Ints:
        """Return the result of each of all ``many`` contributions; -1: it is in none."""
        found = np.full(many, -1, dtype=np.int64)
        found[self.items] = self.number
        return found


def _wrong_results(
    items: _Items,
    results: _Results,
    group: Ints,
    ids: IdVerdicts,
    is_known: Bools,
    flags: Flags,
    inconsistent: Bools,
    size: int,
) -> tuple[Ints, Ints]:
    """Return the numbers of misplaced and of excess results of each cell. A result has the first class that holds.

    Results are ordered by (topic, partition, offset). A result is *misplaced* if it carries an id that its cell does
    not expect and some input has, or was split off. It is *excess* if it carries an id beyond the expected
    multiplicity, counted from the first result, or a pair once more. The others are sound: *incomplete* if the cell
    lacks something, else *correct*. ``flags``: `apart` and `repeated` are used. ``inconsistent``: results of another
    class.
    """
    if not len(results.items):
        return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    groups, is_apart = group[results.items], flags.apart[results.items]
    expected = ids.expected[groups]
    # SEMANTICS 2.15: misplaced comes before excess, and an id raises `p` above `e` from the first result on that has
    # one too many. So the same result has the same class at any cut into batches.
    foreign = ((expected == 0) & is_known[groups]) | is_apart
    times = np.where(is_apart, 0, 1 if items.times is None else items.times[results.items])
    through = np.cumsum(times)
    nth = through - np.maximum.accumulate(np.where(run_starts(groups), through - times, 0))
    surplus = (nth > expected) & (times > 0) if flags.repeated is None else flags.repeated[results.items]
    many = len(results.cell)
    any_foreign = (counts(results.number, foreign, many) > 0) & ~inconsistent
    any_surplus = (counts(results.number, surplus, many) > 0) & ~inconsistent
    return counts(results.cell, any_foreign, size), counts(results.cell, ~any_foreign & any_surplus, size)


def _inconsistent(
    gathered: Sequence[tuple[pa.Table, Ints]],
    items: _Items,
    group: Ints,
    results: _Results,
    named: Sequence[TopicPartition],
    rules: Rules,
) -> tuple[Bools, dict[int, str]]:
    """Return which results state a value that does not follow from their ids, and for each cell what is wrong with the
    first of them. ``items``: sorted, with their ``source``."""
    assert items.source is not None, "values need it"
    order = np.argsort(results.number, kind="stable")
    carried = results.items[order]
    firsts = carried[run_starts(results.number[order])]
    events = np.flatnonzero(items.side == _INPUT)
    given = beside_ids.Named(
        cell=items.cell[firsts],
        partition=items.partition[firsts],
        offset=items.offset[firsts],
        result=results.number[order],
        group=group[carried],
        event_group=group[events],
        event_source=items.source[events],
    )
    partitions = [_partition_numbers(facts, named) for facts, _ in gathered]
    tolerances = dict(rules.oracle.reads.tolerances)
    return beside_ids.wrong_results(given, gathered, partitions, rules.oracle.stated, tolerances)


def _is_of(topic: str, items: _Items, named: Sequence[TopicPartition]) -> Bools:
    """Return which items are from the topic."""
    found: Bools = np.array([partition[0] == topic for partition in named], dtype=np.bool_)[items.partition]
    return found


def _input_columns(
    topics: Sequence[str],
    items: _Items,
    named: Sequence[TopicPartition],
    id_counts: IdCounts,
    ids: IdVerdicts,
    size: int,
    *,
    collapse: bool,
    counts_pairs: bool,
) -> dict[str, Ints]:
    """Return, per cell, how many events of each topic are matched and how many are lacking (`OF_INPUT`).
    ``counts_pairs``: no result says whose events it used."""
    found: dict[str, Ints] = {}
    missing = ids.outstanding - ids.dropped_late - ids.unconsumed - ids.doubtful - ids.elsewhere - ids.unprovable
    for topic in topics:
        of_topic = _is_of(topic, items, named)
        copies = counts(id_counts.group, id_counts.from_input & of_topic, len(id_counts.cell), items.times)
        if counts_pairs:
            # SEMANTICS 2.12: each pair is one of this input, too.
            for name, pairs in (("matched", ids.processed), ("lacking", missing)):
                of_topic_most = totals(ids.cell, copies, size)
                found[f"{name}/{topic}"] = np.minimum(totals(ids.cell, pairs, size), of_topic_most)
            continue
        # SEMANTICS 4.23: results match the events of the other inputs first.
        others = id_counts.expected - copies
        if collapse:
            # SEMANTICS 4.23: an id that other inputs have, too, proves nothing about this input.
            copies = np.where(others == 0, np.minimum(copies, 1), 0)
            others = np.zeros_like(others)
        found[f"matched/{topic}"] = totals(ids.cell, np.clip(ids.processed - others, 0, copies), size)
        found[f"lacking/{topic}"] = totals(ids.cell, np.minimum(missing, copies), size)
    return found


def _output_columns(
    topics: Sequence[str],
    items: _Items,
    named: Sequence[TopicPartition],
    id_counts: IdCounts,
    ids: IdVerdicts,
    size: int,
) -> dict[str, Ints]:
    """Return, per cell, how many contributions of each output topic have landed, and how many have not because other
    topics carry their ids (`OF_OUTPUT`).

    If several topics carry an id, the results of the other topics match its events first: a wrong field may hold ids
    that other topics rightly carry.
    """
    found: dict[str, Ints] = {}
    for topic in topics:
        mine = (items.side == _OUTPUT) & _is_of(topic, items, named)
        carried = counts(id_counts.group, mine, len(id_counts.cell), items.times)
        # SEMANTICS 4.23: results of other topics match first, so a field that holds their ids does not end the doubt.
        others = id_counts.processed - carried
        landed = np.clip(ids.processed - others, 0, carried)
        found[f"landed/{topic}"] = totals(ids.cell, landed, size)
        found[f"claimed/{topic}"] = totals(ids.cell, np.where(others > 0, carried - landed, 0), size)
    return found


def _evidence(
    ids: IdVerdicts, is_known: Bools, rows: Ints, texts: Sequence[str]
) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return the smallest `IDS_KEPT` ids of each violation, for the first `EVIDENCE_KEPT` violations of each class."""
    of_class = {
        # Ids with an excuse are left out. The cell's state decides whether the others are missing.
        "missing": ids.outstanding > ids.dropped_late + ids.unconsumed + ids.doubtful + ids.elsewhere,
        "duplicate": ids.duplicate > 0,
        "misplaced": (ids.foreign > 0) & is_known,
        "unknown_id": (ids.foreign > 0) & ~is_known,
    }
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    for name, concerned in of_class.items():
        chosen = np.flatnonzero(concerned)
        cell = ids.cell[chosen]
        firsts = np.flatnonzero(run_starts(cell))
        starts, ends = firsts[:EVIDENCE_KEPT], np.append(firsts, len(cell))[1:]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=False):
            some = chosen[start : min(end, start + IDS_KEPT)]
            shown = tuple(
                texts[code] if text else str(code)
                for text, code in zip(ids.is_text[some].tolist(), ids.id[some].tolist(), strict=True)
            )
            found[int(rows[cell[start]]), name] = shown
    return found


def _named_by_sums(
    gathered: Sequence[tuple[pa.Table, Ints]],
    items: _Items,
    sums: Mapping[str, Ints],
    wrong: Mapping[int, str],
    rules: Rules,
    rows: Ints,
) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return what is shown of violations without ids: a clause for each wrong value, and the ids of events that explain
    sums modulo 2^64, for the first `EVIDENCE_KEPT` cells. ``items``: sorted."""
    found: dict[tuple[int, str], tuple[str, ...]] = {
        (int(rows[cell]), "wrong_value"): (clause,) for cell, clause in wrong.items()
    }
    values = rules.oracle.stated
    if values.sums_of_ids is None or not rules.oracle.names_events:
        return found
    more = sums["duplicate"] + sums["foreign"] - sums["outstanding"]
    # SEMANTICS 2.34: which events have an excuse is not known.
    excused = sum((sums[name] for name in _EXCUSES), np.zeros_like(more))
    are_wrong = np.zeros(len(rows), dtype=np.bool_)
    are_wrong[list(wrong)] = True
    chosen = np.flatnonzero(np.where(more == 0, are_wrong, (np.abs(more) <= NAMED_MOST) & (excused == 0)))
    chosen = chosen[:EVIDENCE_KEPT]
    if not len(chosen):
        return found
    known = _Known.of(gathered, items, values, len(rows))
    of_sum, of_squares = values.sums_of_ids
    kind = dict(values.digests)[values.stated[of_sum].place].hash
    for cell, (integers, texts) in zip(chosen.tolist(), _ids_of_events(gathered, chosen), strict=True):
        ids = IdsOfCell.of(integers, texts, kind)
        sums_of_ids = known.surplus(cell, of_sum, values)
        squares = None if of_squares is None else known.surplus(cell, of_squares, values)
        if ids is None or sums_of_ids is None or not ids.fit(sums_of_ids[0]):
            continue
        names = ids.explaining(Surplus(int(more[cell]), sums_of_ids[1], None if squares is None else squares[1]))
        if names and more[cell] == 0:
            clause = f"{wrong[cell]}; one lost and one repeated event explain it"
            found[int(rows[cell]), "wrong_value"] = (clause, *names)
        elif names:
            name = "missing" if more[cell] < 0 else "duplicate" if sums["expected"][cell] else "unknown_id"
            found[int(rows[cell]), name] = names
    return found


def _ids_of_events(gathered: Sequence[tuple[pa.Table, Ints]], chosen: Ints) -> Iterator[tuple[Ints, pa.Array]]:
    """Return the integer and the textual ids of the events of each ``chosen`` cell; their numbers rise."""
    parts: dict[str, list[tuple[Ints, pa.Array]]] = {"ids": [], "text_ids": []}
    for facts, cell in gathered:
        mine = np.isin(cell, chosen) & (_sides(facts) == _INPUT)
        some, of = facts.filter(pa.array(mine)), cell[mine]
        for name, found in parts.items():
            rows, events = listed(some[name])
            found.append((of[rows], arrays.field(events, "id")))
    columns = []
    for found in parts.values():
        cells, ids = np.concatenate([cells for cells, _ in found]), pa.concat_arrays([ids for _, ids in found])
        order = np.argsort(cells, kind="stable")
        bounds = [np.searchsorted(cells[order], chosen, side=side) for side in ("left", "right")]
        columns.append((ids.take(pa.array(order)), *bounds))
    (integers, starts, ends), (texts, text_starts, text_ends) = columns
    for i in range(len(chosen)):
        named = texts.slice(text_starts[i], text_ends[i] - text_starts[i])
        yield ints(integers.slice(starts[i], ends[i] - starts[i])), named
