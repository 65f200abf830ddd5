"""Values that results state beside the ids of their events (SEMANTICS 2.32).

Each result is judged by itself: the aggregates of the events that it names are exact. Fact rows have the fields of each
of their events (`fields_of_events`), so that a repeated, lost or misplaced event needs no special case here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.plain_fields import bools, one_number
from validator.codecs.plain_json import AMOUNT
from validator.model import arrays
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, listed, one_array
from validator.model.stated_values import MODULAR, Function, Values
from validator.model.wording import plural
from validator.reconcile.contributions import INPUT, Gathered, Items
from validator.reconcile.facts import Side
from validator.reconcile.table_rows import Asked, CellsOfRows
from validator.reconcile.values import Aggregate, Answered, wrong_value

_AGGREGATES: Final = {"count": "count", "distinct": "count_distinct", "sum": "sum", "min": "min", "max": "max"}
"""Function of a value -> Arrow's."""
_SHOWN: Final = 3
"""Number of possible rows that a clause names."""


@dataclass(frozen=True)
class Named:
    """The results that name events, and the events of their cells.

    ``cell``, ``partition``, ``offset``: those of each result, which is sorted by them; a partition is a number.
    ``result``, ``group``: of each mention of an id, its result (rising) and the number of its (cell, id).
    ``event_group``, ``event_source``: of each event of an input, that number, and its place among the ids of the facts.
    """

    cell: Ints
    partition: Ints
    offset: Ints
    result: Ints
    group: Ints
    event_group: Ints
    event_source: Ints


def wrong_results(
    named: Named, gathered: Gathered, partitions: Sequence[Ints], values: Values, tolerances: Mapping[str, Decimal]
) -> tuple[Bools, dict[int, str]]:
    """Return which results state a wrong value, and for the first one of each cell what is wrong.

    ``partitions``: the number of the partition of each fact, table by table.
    """
    if not len(named.cell):
        return np.zeros(0, dtype=np.bool_), {}
    size, groups = len(named.cell), int(max(named.group.max(initial=-1), named.event_group.max(initial=-1))) + 1
    judged = np.ones(size, dtype=np.bool_)
    places, texts = _fields(gathered, len(values.paths))
    at = np.full(groups, ABSENT, dtype=np.int64)
    at[named.event_group] = places[named.event_source] if values.paths else 0
    owed = []
    for place in range(len(values.paths)):
        of_group = _same_in_all(texts, places[named.event_source] + place, named.event_group, at)
        mentioned = np.where(of_group[named.group], at[named.group] + place, len(texts) - 1)
        judged[named.result[~of_group[named.group]]] = False
        owed.append(_aggregated(texts.take(pa.array(mentioned)).cast(AMOUNT), named.result))
    # An id that the cell does not expect is misplaced or unknown, whatever the result states.
    judged[named.result[at[named.group] == ABSENT]] = False
    counts, stated, _ = _stated(named, gathered, partitions, len(values.stated))
    events = np.bincount(named.result, minlength=size)
    clauses: dict[int, list[str]] = {}
    if values.count_name is not None:
        for one in np.flatnonzero(judged & (counts != events) & (counts != ABSENT)).tolist():
            clauses[one] = [f"{values.count_name} is {counts[one]} and should be {events[one]}"]
    for i, value in enumerate(values.stated):
        found = owed[value.place]
        suspects = judged
        if value.function != "avg":
            suspects = judged & ~bools(
                pc.fill_null(pc.equal(stated[i], found[_column_of(value.function)]), fill_value=False)
            )
        for one in np.flatnonzero(suspects).tolist():
            many, kinds, total, least, most = (found[name][one].as_py() for name in _AGGREGATES)
            # As many hashes as there are different values.
            sure = Aggregate(int(events[one]), int(many), total, least, most, frozenset(range(int(kinds))))
            answered = Answered((sure,), (), (), all_used=True)
            clause = wrong_value(value, answered, [stated[i][one].as_py()], tolerances.get(value.name))
            if clause is not None:
                clauses.setdefault(one, []).append(clause)
    wrong = np.zeros(size, dtype=np.bool_)
    wrong[list(clauses)] = True
    first = {int(named.cell[one]): "; ".join(clauses[one]) for one in sorted(clauses, reverse=True)}
    return wrong, first


def own_ends(items: Items, gathered: Gathered) -> Ints:
    """Return the own end of each contribution that is an event (`Oracle.own_end`), `NEVER` of all others."""
    assert items.source is not None, "own ends need it"
    found = np.full(len(items.cell), NEVER)
    places, texts = _fields(gathered, 1)
    events = np.flatnonzero(items.side == INPUT)
    at = places[items.source[events]]
    events, at = events[at != ABSENT], at[at != ABSENT]
    found[events] = ints(texts.take(pa.array(at)).cast(AMOUNT).cast(pa.int64()))
    return found


def wrong_rows(
    named: Named,
    gathered: Gathered,
    partitions: Sequence[Ints],
    values: Values,
    of_rows: CellsOfRows,
) -> tuple[Bools, dict[int, str]]:
    """As `wrong_results`, for results that state fields of a row of a table."""
    size, groups = len(named.cell), int(max(named.group.max(initial=-1), named.event_group.max(initial=-1))) + 1
    if not size:
        return np.zeros(0, dtype=np.bool_), {}
    has_event = np.zeros(groups, dtype=np.bool_)
    has_event[named.event_group] = True
    judged = np.ones(size, dtype=np.bool_)
    # An id that the cell does not expect is misplaced or unknown, whatever the result states.
    judged[named.result[~has_event[named.group]]] = False
    _, stated, lookups = _stated(named, gathered, partitions, len(values.stated))
    asked = of_rows.asked(named.cell, lookups)
    wrong = judged & of_rows.rows.stated_wrongly(asked, np.stack([ints(one.cast(pa.int64())) for one in stated]))
    names = " and ".join(one.name for one in values.stated) + (" is" if len(stated) == 1 else " are")
    firsts = np.flatnonzero(wrong)
    firsts = firsts[np.unique(named.cell[firsts], return_index=True)[1]]
    clauses = (f"{names} of none of {rows}" for rows in _rows_shown(of_rows, asked.of(firsts)))
    return wrong, dict(zip(named.cell[firsts].tolist(), clauses, strict=True))


def obliging(of_rows: CellsOfRows, gathered: Gathered, due: Ints, rest: Ints, proven_us: Callable[[int], int]) -> Bools:
    """Return the cells of whose keys every possible row exists, so that their events owe results. ``due``, ``rest``,
    ``proven_us``: as in `TableRows.may_be_removed`."""
    first = np.full(len(of_rows.starts), NEVER)
    for facts, cell in gathered:
        mine = arrays.is_one_of(facts["side"], Side.INPUT.value)
        np.minimum.at(first, cell[mine], ints(facts["lookup_us"])[mine])
    asked = Asked(of_rows.keys, of_rows.starts, of_rows.ends, first)
    return of_rows.rows.surely_exist(asked) & ~of_rows.rows.may_be_removed(asked, due, rest, proven_us)


def _rows_shown(of_rows: CellsOfRows, asked: Asked) -> list[str]:
    """Return the possible rows of each result, as a clause."""
    found: list[list[str]] = [[] for _ in asked.starts]
    for result, at in of_rows.rows.possible(asked):
        found[result].append("the absence of a row" if at is None else f"{at[0]}-{at[1]} at offset {at[2]}")
    shown = ("; ".join([*rows[:_SHOWN], *(["..."] if len(rows) > _SHOWN else [])]) for rows in found)
    return [f"{plural(len(rows), 'possible row')} ({text})" for rows, text in zip(found, shown, strict=True)]


def _column_of(function: Function) -> str:
    return "sum" if function in MODULAR else function


def _same_in_all(texts: pa.Array, places: Ints, group: Ints, at: Ints) -> Bools:
    """Return the groups whose events all have the same text, or none. ``places``: that of each event's text. ``at``: a
    place for each group with an event."""
    codes = pc.fill_null(texts.dictionary_encode().indices, -1)
    codes = np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64)[places]
    least, most = np.full(len(at), NEVER, dtype=np.int64), np.full(len(at), ABSENT, dtype=np.int64)
    np.minimum.at(least, group, codes)
    np.maximum.at(most, group, codes)
    same: Bools = (at != ABSENT) & (least == most)
    return same


def _aggregated(column: pa.Array, result: Ints) -> dict[str, pa.Array]:
    """Return the aggregates of a field over the events of each result, by function."""
    table = pa.table({"result": result, "value": column})
    found = table.group_by("result", use_threads=False).aggregate([("value", kind) for kind in _AGGREGATES.values()])
    return {name: found[f"value_{kind}"].combine_chunks().cast(AMOUNT) for name, kind in _AGGREGATES.items()}


def _fields(gathered: Gathered, width: int) -> tuple[Ints, pa.Array]:
    """Return the place of the first field of each id that the facts list, in the order in which a comparison lists
    them, and all fields, after which a null follows. The ids in results have no place."""
    numbers: list[Ints] = []
    of_texts: list[Ints] = []
    flat: list[pa.Array] = []
    start = 0
    for facts, _ in gathered if width else ():
        lists = one_array(facts["aggregates"])
        lengths = ints(pc.fill_null(pc.list_value_length(lists), 0))
        begins = start + np.cumsum(lengths) - lengths
        start += int(lengths.sum())
        flat.append(arrays.field(pc.list_flatten(lists), "sum"))
        parents, names = listed(facts["ids"])[0], listed(facts["text_ids"])[0]
        integers = np.bincount(parents, minlength=facts.num_rows)
        results = listed(facts["results"])[1]
        for found, name, rows, before in (
            (numbers, "ids", parents, np.zeros_like(integers)),
            (of_texts, "text_ids", names, integers),
        ):
            # Events without fields are those of the right side of a join.
            found.append(np.where(lengths[rows] > 0, begins[rows] + width * (before[rows] + _ranks(rows)), ABSENT))
            found.append(np.full(len(listed(arrays.field(results, name))[0]), ABSENT))
    places = np.concatenate([*numbers, *of_texts]) if numbers else np.empty(0, dtype=np.int64)
    return places, pa.concat_arrays([*flat, pa.nulls(1, pa.string())])


def _ranks(rows: Ints) -> Ints:
    """Return the place of each entry among those with the same number. ``rows``: rising."""
    found: Ints = np.arange(len(rows)) - np.searchsorted(rows, rows)
    return found


def _stated(
    named: Named, gathered: Gathered, partitions: Sequence[Ints], width: int
) -> tuple[Ints, list[pa.Array], Ints]:
    """Return the number of events that each result states (`ABSENT`: none), a column for each other value, and the
    lookup of its batch."""
    parts, texts = [], []
    for (facts, cell), partition in zip(gathered, partitions, strict=True):
        rows, results = listed(facts["results"])
        columns = (ints(arrays.field(results, name)) for name in ("offset", "count"))
        parts.append((cell[rows], partition[rows], *columns, ints(facts["lookup_us"])[rows]))
        texts.append(pc.list_flatten(arrays.field(results, "values")))
    cell, partition, offset, counts, lookups = (np.concatenate([part[i] for part in parts]) for i in range(5))
    places = zip((cell, partition, offset), (named.cell, named.partition, named.offset), strict=True)
    numbers = one_number([np.concatenate(both) for both in places])
    have, want = numbers[: len(cell)], numbers[len(cell) :]
    order = np.argsort(have, kind="stable")
    at = order[np.searchsorted(have[order], want)]
    flat = pa.concat_arrays(texts)
    return counts[at], [flat.take(pa.array(at * width + i)).cast(AMOUNT) for i in range(width)], lookups[at]
