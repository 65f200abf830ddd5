"""Comparison of cells id by id, if fingerprints disagree (SEMANTICS 2.17). It yields `COMPARED`, and ids as
evidence. The classes of an id are those of the oracle (`validator.oracles.ids`, SEMANTICS 2.2 to 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from validator.codecs.plain_fields import one_number
from validator.model import arrays
from validator.model.arrays import Bools, Ints, counts, ints, listed, run_starts, totals
from validator.model.frontier import Outages, counted_back_us
from validator.model.lateness_scope import may_move
from validator.oracles.ids import Flags, IdCounts, IdVerdicts
from validator.reconcile import splits
from validator.reconcile.beside_ids import obliging, own_ends
from validator.reconcile.cells import STALE, Cells, SomeCells, of_cells
from validator.reconcile.contributions import (
    INPUT,
    OUTPUT,
    OWES_NOTHING,
    Comparison,
    Gathered,
    Items,
    Results,
    TopicPartition,
    partition_numbers,
)
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.evidence.seam import Examples
from validator.reconcile.facts import Side
from validator.reconcile.judge import Rules, contradicts_its_end, due_base, is_at_rest
from validator.reconcile.lateness import Reaches
from validator.reconcile.quantities import COMPARED, EXCUSES
from validator.reconcile.table_rows import CellsOfRows
from validator.reconcile.unknown_ids import Unknown

COMPARED_COLUMNS: Final = (
    *("kind", "batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "key"),
    *("ids", "text_ids", "results", "contributions", "first_offset", "last_offset", "times", "aggregates"),
)
"""The columns of a fact that a comparison needs."""

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
    evidence: Examples = field(default_factory=dict)
    topic_columns: Mapping[str, Ints] = field(default_factory=dict)


def compare(
    cells: Cells,
    rows: Ints,
    near: Iterator[pa.Table],
    rules: Rules,
    partition_offsets: Mapping[TopicPartition, PartitionOffsets],
    known: Callable[[RequestedIds], RequestedIds],
    *,
    resolved: Bools | None = None,
    outages: Outages = (),
) -> Compared:
    """Compare the ids of the cells ``rows``.

    ``near``: tables that contain all facts of these cells (`COMPARED_COLUMNS`), and possibly others. ``known``: returns
    those of the given ids that any input has. ``resolved``: the cells whose results can be judged together; None if
    each result is judged by itself (`Oracle.answers_once`). ``outages``: time that does not count toward a delay.
    """
    local = {row: i for i, row in enumerate(rows.tolist())}
    gathered = [part for table in near if (part := _facts_of_cells(cells, local, of_cells(table))) is not None]
    if cells.newest is not None:
        # SEMANTICS 2.16: with emission `cumulative` only the newest result of a key counts.
        gathered = [_kept(*part, cells.newest.kept(rows)[0]) for part in gathered]
    evidence = evidence_of(rules.oracle)
    items, texts, named = evidence.items(gathered)
    if cells.newest is not None:
        items = items.of((items.side != OUTPUT) | (items.offset == cells.newest.kept(rows)[1][items.cell]))
    items = items.sorted()
    size = len(rows)
    starts = run_starts(items.cell, items.is_text, items.id)
    group = np.cumsum(starts) - 1
    firsts = np.flatnonzero(starts)
    of_rows = _of_rows(cells, rows)
    if of_rows is not None and rules.oracle.owes_by_rows:
        proven_us = partial(counted_back_us, length_us=rules.missing_after_us, outages=outages)
        items = _owed_by_rows(items, group, ~obliging(of_rows, gathered, *_decided(cells, rows), proven_us))
    dates = _dates_of(items, gathered, named, size) if rules.oracle.states_pairs else None
    flags = _flags(cells, rows, items, named, rules, partition_offsets, dates)
    items, flags = evidence.owed(gathered, items, flags, size, drops_late=rules.drops_late)
    id_counts = _id_counts(items, group, firsts)
    results = Results.of(items, by_id=rules.oracle.by_id)
    if dates is not None:
        untils = own_ends(items, gathered) if rules.oracle.own_end else np.full(len(group), arrays.NEVER)
        id_counts = replace(id_counts, time_us=dates[0], until_us=untils, result=results.of_items(len(group)))
    apart, split = np.zeros(len(items.cell), dtype=np.bool_), dict.fromkeys(splits.FIELDS, np.full(size, arrays.ABSENT))
    whole = Comparison(rows, gathered, items, texts, named, group, id_counts, results, of_rows)
    if resolved is not None:
        excuses = partial(_excuses, cells, named, rules, partition_offsets)
        wrong_ends = resolved & contradicts_its_end(SomeCells(cells, rows))
        apart, split = _wrong_parts(whole, resolved, wrong_ends, excuses)
    if rules.oracle.states_pairs:
        apart, repeated = rules.oracle.unsound(id_counts, texts)
        flags = replace(flags, repeated=repeated)
    flags = replace(flags, apart=apart)
    ids = rules.oracle.classes(id_counts, flags, texts, collapse=rules.collapses_ids, drops_late=rules.drops_late)
    # Without ids in results, all events of a cell have the same stand-in for an id.
    is_known = _known(ids, texts, known) if evidence.names_ids else np.zeros(len(ids.foreign), dtype=np.bool_)
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
    wrong = evidence.wrong_values(whole, flags, sums, drops_late=rules.drops_late)
    misplaced, excess = _wrong_results(whole, ids, is_known, flags, wrong.of_results)
    wrong_results = counts(results.cell, wrong.of_results, size)
    # SEMANTICS 2.11: a result without ids makes no claim, so it is sound.
    sound = cells["results"][rows] - misplaced - excess - wrong_results
    # SEMANTICS 2.15: whether its cell is complete decides the class of every sound result.
    lacking = sums["outstanding"] > 0
    sums |= {
        "correct": np.where(lacking, 0, sound),
        "incomplete": np.where(lacking, sound, 0),
        "excess": excess,
        "misplaced": misplaced,
        "updates": evidence.updates(whole, flags, sums, drops_late=rules.drops_late),
        "wrong_value": np.where(wrong.waits, STALE, np.where(wrong.of_cells, sound, wrong_results)),
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
        evidence=evidence.examples(whole, ids, is_known, sums, wrong),
        topic_columns=_input_columns(inputs, whole, ids, rules) | _output_columns(cells.outputs, whole, ids),
    )


def _of_rows(cells: Cells, rows: Ints) -> CellsOfRows | None:
    """Return what is needed to judge which rows of a table the results of the cells state; None without a table."""
    if cells.table_rows is None:
        return None
    return CellsOfRows(cells.table_rows, cells.keys(rows), cells["window_start_us"][rows], cells["end_us"][rows])


def _decided(cells: Cells, rows: Ints) -> tuple[Ints, Ints]:
    """Return since when the contributions of each cell are due, and the end of the run that decided them; `NEVER`
    without one."""
    some = SomeCells(cells, rows)
    due = np.where(some["closed_us"] == arrays.ABSENT, arrays.NEVER, due_base(some))
    return due, np.where(is_at_rest(some), some["rest_us"], arrays.NEVER)


def _owed_by_rows(items: Items, group: Ints, may_be_silent: Bools) -> Items:
    """Let the events of some cells that nothing answers owe nothing. ``items``: sorted, ``group``: their (cell, id)."""
    optional = (items.side == INPUT) & may_be_silent[items.cell]
    answers = counts(group, (items.side != INPUT) & (items.side != OWES_NOTHING), int(group.max(initial=-1)) + 1)
    nth = np.cumsum(optional) - optional
    nth = nth - nth[np.searchsorted(group, group)]
    return replace(items, side=np.where(optional & (nth >= answers[group]), OWES_NOTHING, items.side))


_OF_IDS: Final = ("expected", "processed", "late", "rejected", "duplicate", "outstanding")
_SUMMED: Final = (*_OF_IDS, *EXCUSES, "unconsumed_on_time")


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


def _id_counts(items: Items, group: Ints, firsts: Ints) -> IdCounts:
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
        from_input=items.side == INPUT,
        times=items.times,
    )


def _flags(
    cells: Cells,
    rows: Ints,
    items: Items,
    named: Sequence[TopicPartition],
    rules: Rules,
    partition_offsets: Mapping[TopicPartition, PartitionOffsets],
    dates: tuple[Ints, Ints] | None,
) -> Flags:
    """``dates``: of oracles whose events are late for themselves and not for a cell, what `_dates_of` returns."""
    late, doubtful, elsewhere, unread, unsure = (np.zeros(len(items.cell), dtype=np.bool_) for _ in range(5))
    # Events of sessions carry what makes them late (`_named_events`).
    if rules.asks_lateness and not cells.merges:
        # SEMANTICS 2.9: an earlier record of an event's own partition makes it late. SEMANTICS 3.26: a hidden one may
        # have.
        if dates is None:
            ends = cells["end_us"][rows][items.cell]
            late = _past(cells.lateness.proven, ends, items.partition, items.offset, named)
        else:
            times_us, before_us = dates
            slack_us = rules.max_disorder_us + rules.allowed_lateness_us
            late = (items.side == INPUT) & (before_us != arrays.ABSENT) & (before_us - slack_us >= times_us)
            # Reaches are on a grid: an event may be late if one is at its place of the grid or later.
            ends = rules.oracle.reaches_us(times_us, 0)
        doubtful = _past(cells.lateness.possible, ends, items.partition, items.offset, named) & ~late
        if rules.looks_elsewhere:
            elsewhere = _past_elsewhere(cells, ends, items, named, rules) & (items.side == INPUT) & ~late & ~doubtful
        if rules.collapses_ids:
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


def _of_first_copies(condition: Bools, items: Items) -> Bools:
    """Return, for each event, whether ``condition`` holds for the first copy of its id in its cell and partition. An
    engine that drops repeats has read this copy before the later ones. ``items``: sorted."""
    events = np.flatnonzero(items.side == INPUT)
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


def _past_elsewhere(cells: Cells, ends: Ints, items: Items, named: Sequence[TopicPartition], rules: Rules) -> Bools:
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


def _wrong_parts(
    it: Comparison,
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
    apart = wrong_ends[it.items.cell] & (it.items.side == OUTPUT)
    columns = dict.fromkeys(splits.FIELDS, np.full(size, arrays.ABSENT, dtype=np.int64))
    concerned = resolved & (np.bincount(it.results.cell, minlength=size) > 1)
    if concerned.any():
        mine = concerned[it.items.cell[it.results.items]]
        carried = it.results.items[mine]
        mentions = splits.Mentions(it.items.cell[carried], it.group[carried], it.results.number[mine])
        found = splits.splits_of(_named_events(it, concerned), mentions, size, excuses())
        apart[carried] |= found.apart
        columns |= found.columns
    many = counts(it.items.cell, apart, size)
    return apart, columns | {"apart": np.where(many > 0, many, arrays.ABSENT)}


def _named_events(it: Comparison, concerned: Bools) -> splits.Named:
    """Return the events of the ``concerned`` cells that results name and that one record brought, with their times."""
    dated = _dated_events(it.gathered, it.named, concerned)
    chosen = (it.id_counts.expected == 1) & (it.id_counts.processed > 0) & concerned[it.id_counts.cell]
    of_events = np.flatnonzero((it.items.side == INPUT) & chosen[it.group])
    wanted = it.items.of(of_events)
    if not len(of_events) or not len(dated[0]):
        return splits.Named(*(np.empty(0, dtype=np.int64) for _ in range(6)))
    at, known = _places_in(dated, wanted)
    wanted, at, numbered = wanted.of(known), at[known], it.group[of_events[known]]
    found = splits.Named(wanted.cell, numbered, wanted.partition, wanted.offset, dated[3][at], dated[4][at])
    return found.of(np.lexsort((found.offset, found.partition, found.time_us, found.cell)))


def _dated_events(gathered: Gathered, named: Sequence[TopicPartition], concerned: Bools) -> list[Ints]:
    """Return columns of the events of the ``concerned`` cells: cell, partition, offset, time, newest time before."""
    parts = []
    for table, cells in gathered:
        mine = arrays.is_one_of(table["side"], Side.INPUT.value) & concerned[cells]
        facts, cell = table.filter(pa.array(mine)), cells[mine]
        row, events = listed(facts["times"])
        partition = partition_numbers(facts, named)
        columns = [ints(arrays.field(events, name)) for name in ("offset", "time_us", "before_us")]
        parts.append((cell[row], partition[row], *columns))
    return [np.concatenate([part[i] for part in parts]) for i in range(5)]


def _places_in(dated: Sequence[Ints], wanted: Items) -> tuple[Ints, Bools]:
    """Return the place of each of the ``wanted`` contributions in `_dated_events`, which is not empty, and whether it
    is there."""
    places = zip(dated[:3], (wanted.cell, wanted.partition, wanted.offset), strict=True)
    numbers = one_number([np.concatenate(both) for both in places])
    have, want = numbers[: len(dated[0])], numbers[len(dated[0]) :]
    order = np.argsort(have, kind="stable")
    at = order[np.minimum(np.searchsorted(have[order], want), len(have) - 1)]
    return at, have[at] == want


def _dates_of(items: Items, gathered: Gathered, named: Sequence[TopicPartition], size: int) -> tuple[Ints, Ints]:
    """Return the time of each contribution that is an event, and the newest time before it in its partition. ``size``:
    number of compared cells."""
    times, before = (np.full(len(items.cell), arrays.ABSENT) for _ in range(2))
    events = np.flatnonzero(items.side == INPUT)
    if len(events):
        dated = _dated_events(gathered, named, np.ones(size, dtype=np.bool_))
        at, known = _places_in(dated, items.of(events))
        assert known.all(), "the facts of such an oracle have the time of each event"
        times[events], before[events] = dated[3][at], dated[4][at]
    return times, before


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


def _wrong_results(it: Comparison, ids: IdVerdicts, is_known: Bools, flags: Flags, wrong: Bools) -> tuple[Ints, Ints]:
    """Return the numbers of misplaced and of excess results of each cell. A result has the first class that holds.

    Results are ordered by (topic, partition, offset). A result is *misplaced* if it carries an id that its cell does
    not expect and some input has, or was split off. It is *excess* if it carries an id beyond the expected
    multiplicity, counted from the first result, or a pair once more. The others are sound: *incomplete* if the cell
    lacks something, else *correct*. ``flags``: `apart` and `repeated` are used. ``wrong``: results of another class.
    """
    items, results, size = it.items, it.results, len(it.rows)
    if not len(results.items):
        return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    groups, is_apart = it.group[results.items], flags.apart[results.items]
    expected = ids.expected[groups]
    # SEMANTICS 2.15: misplaced comes before excess, and an id raises `p` above `e` from the first result on that has
    # one too many. So the same result has the same class at any cut into batches.
    foreign = ((expected == 0) & is_known[groups]) | is_apart
    times = np.where(is_apart, 0, 1 if items.times is None else items.times[results.items])
    through = np.cumsum(times)
    nth = through - np.maximum.accumulate(np.where(run_starts(groups), through - times, 0))
    surplus = (nth > expected) & (times > 0) if flags.repeated is None else flags.repeated[results.items]
    many = len(results.cell)
    any_foreign = (counts(results.number, foreign, many) > 0) & ~wrong
    any_surplus = (counts(results.number, surplus, many) > 0) & ~wrong
    return counts(results.cell, any_foreign, size), counts(results.cell, ~any_foreign & any_surplus, size)


def _is_of(topic: str, it: Comparison) -> Bools:
    """Return which items are from the topic."""
    found: Bools = np.array([partition[0] == topic for partition in it.named], dtype=np.bool_)[it.items.partition]
    return found


def _input_columns(topics: Sequence[str], it: Comparison, ids: IdVerdicts, rules: Rules) -> dict[str, Ints]:
    """Return, per cell, how many events of each topic are matched and how many are lacking (`OF_INPUT`)."""
    found: dict[str, Ints] = {}
    id_counts, size = it.id_counts, len(it.rows)
    missing = ids.outstanding - ids.dropped_late - ids.unconsumed - ids.doubtful - ids.elsewhere - ids.unprovable
    for topic in topics:
        of_topic = _is_of(topic, it)
        copies = counts(id_counts.group, id_counts.from_input & of_topic, len(id_counts.cell), it.items.times)
        if rules.oracle.pair_rule is not None:
            # SEMANTICS 2.12: no result says whose events it used, and each pair is one of this input, too.
            for name, pairs in (("matched", ids.processed), ("lacking", missing)):
                of_topic_most = totals(ids.cell, copies, size)
                found[f"{name}/{topic}"] = np.minimum(totals(ids.cell, pairs, size), of_topic_most)
            continue
        # SEMANTICS 4.23: results match the events of the other inputs first.
        others = id_counts.expected - copies
        if rules.collapses_ids:
            # SEMANTICS 4.23: an id that other inputs have, too, proves nothing about this input.
            copies = np.where(others == 0, np.minimum(copies, 1), 0)
            others = np.zeros_like(others)
        found[f"matched/{topic}"] = totals(ids.cell, np.clip(ids.processed - others, 0, copies), size)
        found[f"lacking/{topic}"] = totals(ids.cell, np.minimum(missing, copies), size)
    return found


def _output_columns(topics: Sequence[str], it: Comparison, ids: IdVerdicts) -> dict[str, Ints]:
    """Return, per cell, how many contributions of each output topic have landed, and how many have not because other
    topics carry their ids (`OF_OUTPUT`).

    If several topics carry an id, the results of the other topics match its events first: a wrong field may hold ids
    that other topics rightly carry.
    """
    found: dict[str, Ints] = {}
    id_counts, size = it.id_counts, len(it.rows)
    for topic in topics:
        mine = (it.items.side == OUTPUT) & _is_of(topic, it)
        carried = counts(id_counts.group, mine, len(id_counts.cell), it.items.times)
        # SEMANTICS 4.23: results of other topics match first, so a field that holds their ids does not end the doubt.
        others = id_counts.processed - carried
        landed = np.clip(ids.processed - others, 0, carried)
        found[f"landed/{topic}"] = totals(ids.cell, landed, size)
        found[f"claimed/{topic}"] = totals(ids.cell, np.where(others > 0, carried - landed, 0), size)
    return found
