"""Decoded records to fact rows, in arrays: the records that one Spark task has read, grouped by cell.

Facts are additive, so a cell can have rows of several tasks (docs/decisions/0005-one-stage-to-facts.md).
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import DECODED, SKIPPED, TOMBSTONE, UNDECODABLE, UNOWED, list_of
from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
from validator.codecs.plain_fields import bools, numbers, one_number, plain
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, one_array, run_starts
from validator.model.stated_values import ADDED
from validator.oracles.seam import Oracle
from validator.reconcile import by_id, by_key
from validator.reconcile.facts import GROUPED
from validator.reconcile.values import fields_of_events, fingerprints, partial_aggregates, texts_of

Values = TypeVar("Values", Ints, Bools)

_DIGIT: Final = 16
"""Bits per pass of the radix sort."""


def facts_of_events(
    events: pa.Table, source: int, oracle: Oracle, slack_us: int, limit_us: int, *, with_first_event: bool
) -> pa.Table:
    """Return rows of `validator.codecs.batches.EVENTS` as `GROUPED`: a row per partition, status, cell and reach.

    ``slack_us``: disorder plus allowed lateness, for ``reach_us``. Events later than ``limit_us`` do not count toward
    ``newest_event_time_us`` and ``reach_us``: a broken clock must not close every cell. ``with_first_event`` also keeps
    the event time at the first offset, at most ``limit_us``: the horizon needs it once per partition, and a broken
    clock must not put every cell out of scope.
    """
    if not events.num_rows:
        return GROUPED.empty_table()
    times, has_time = numbers(one_array(events["event_time_us"]))
    given, is_given = numbers(one_array(events["status"]))
    given = np.where(is_given, given, np.where(has_time, DECODED, UNDECODABLE))
    tombstone = given == TOMBSTONE
    decoded = has_time & ~tombstone
    reaches = oracle.reaches_us(times, slack_us)
    # SEMANTICS 2.24: the engine may have read the time of what it ignores, so that later events may be late.
    reaching = (decoded & (times <= limit_us)) | (tombstone & has_time)
    limits_us = np.broadcast_to(limit_us, len(times))
    if oracle.by_id:
        events = by_id.keyed_events(events, decoded, oracle.reads)
    event_rows, starts = oracle.assigned(times)
    once = None
    if oracle.reads.explodes:
        # A record has a row for each of its words.
        once = run_starts(*(plain(one_array(events[name])) for name in ("partition", "offset")))
    if event_rows is not None:
        is_first = once
        event_rows, starts, once = _with_all(event_rows, starts, decoded)
        once = once if is_first is None else once & is_first[event_rows]
        events = events.take(pa.array(event_rows))
        times, reaches, given = times[event_rows], reaches[event_rows], given[event_rows]
        decoded, reaching = decoded[event_rows], reaching[event_rows]
    # Grid numbers are small, unlike instants.
    of_cell = np.where(decoded, (starts - starts.min()) // oracle.grid_us, 0)
    of_reach = np.where(reaching, (starts - reaches) // oracle.grid_us, -1)
    of_reach = np.where(reaching, of_reach - of_reach.min(initial=0), -1)
    # SEMANTICS 2.24: what the engine ignores need not have moved its time, so it moves no watermark.
    moving = reaching & decoded & (given != SKIPPED)
    groups = _Groups(events, [given, of_cell, of_reach], once)
    ids, are_integers = numbers(one_array(events["id"]))
    texts = one_array(events["text_id"])
    are_texts = bools(texts.is_valid())
    hashed = ids
    if are_texts.any():
        hashed = np.where(are_integers, ids, 0)
        hashed[are_texts] = text_numbers(texts.drop_null() if texts.null_count else texts)
    contributing = (given == DECODED).astype(np.int64)
    # The ids of events that have none are all the same: their number says everything.
    named = are_integers if oracle.names_events else np.zeros_like(are_integers)
    has_integers = groups.any(named)
    columns = {
        "status": groups.first(np.where(given == SKIPPED, UNOWED, given)),
        "window_start_us": pa.array(groups.first(starts), mask=~groups.first(decoded & (starts != ABSENT))),
        "reach_us": pa.array(groups.first(reaches), mask=~groups.first(reaching)),
        "contributions": groups.sum(contributing),
        **(
            _of_addends(groups, events, oracle)
            if oracle.reads.states_values
            else {
                "hash_a": groups.sum(hash_a(hashed) * contributing),
                "hash_b": groups.sum(hash_b(hashed) * contributing),
            }
        ),
        # Either all events of a group count, or none does.
        "newest_event_time_us": pa.array(groups.largest(times), mask=~groups.first(moving)),
        "min_id": pa.array(groups.smallest(np.where(named, ids, NEVER)), mask=~has_integers),
        "max_id": pa.array(groups.largest(np.where(named, ids, ABSENT)), mask=~has_integers),
        "ids": groups.listed("ids", pa.array(ids), named),
        "text_ids": groups.listed("text_ids", texts, are_texts),
        **_of_each_event(groups, events, oracle, are_integers, are_texts),
        "stretches": groups.stretches(given == UNDECODABLE),
    }
    if oracle.ends_after_us is not None:
        columns["earliest_us"] = pa.array(groups.smallest(times), mask=~groups.first(decoded))
        columns["latest_us"] = pa.array(groups.largest(times), mask=~groups.first(decoded))
    if oracle.dates_events:
        columns["times"] = groups.listed("times", _dated(one_array(events["offset"]), pa.array(times)), decoded)
    if with_first_event:
        limits_us = limits_us if event_rows is None else limits_us[event_rows]
        first_us = np.minimum(groups.at_first_offset(times), groups.at_first_offset(limits_us))
        columns["first_event_time_us"] = pa.array(first_us, mask=~groups.first(decoded))
    return groups.table(source, columns)


def _of_addends(groups: _Groups, events: pa.Table, oracle: Oracle) -> dict[str, pa.Array | Ints]:
    """Return the columns that say what the results of each group may state (SEMANTICS 2.29)."""
    columns = _columns_of_lists(events["values"], len(oracle.stated.paths))
    if not columns:
        nothing = groups.sum(np.zeros(events.num_rows, dtype=np.int64))
        return {"hash_a": nothing, "hash_b": nothing}
    aggregates, sums = groups.aggregates(columns, oracle.stated.hashed)
    of_sums = [sums[one.place] if one.function in ADDED else None for one in oracle.stated.stated]
    hashes = fingerprints(of_sums, len(aggregates))
    return {"aggregates": aggregates, "hash_a": hashes[0], "hash_b": hashes[1]}


def _of_each_event(
    groups: _Groups, events: pa.Table, oracle: Oracle, are_integers: Bools, are_texts: Bools
) -> dict[str, pa.Array]:
    """Return the fields of each event on which values depend that results state beside ids (SEMANTICS 2.32)."""
    if not oracle.checks_values or not oracle.stated.paths:
        return {}
    columns = _columns_of_lists(events["values"], len(oracle.stated.paths))
    return {"aggregates": groups.fields_of_ids(columns, are_integers, are_texts)}


def _columns_of_lists(lists: pa.ChunkedArray, width: int) -> list[pa.Array]:
    """Return lists of ``width`` items each as so many columns."""
    items, rows = one_array(lists).flatten(), np.arange(len(lists)) * width
    return [items if width == 1 else items.take(pa.array(rows + i)) for i in range(width)]


def _with_all(event_rows: Ints, starts: Ints, decoded: Bools) -> tuple[Ints, Ints, Bools]:
    """Return the contributions of decoded events, and one entry for each record without a contribution: that record was
    read, too. The third array is true at the first entry of each record: that entry counts the record."""
    contributes = decoded[event_rows]
    event_rows, starts = event_rows[contributes], starts[contributes]
    missed = np.ones(len(decoded), dtype=np.bool_)
    missed[event_rows] = False
    event_rows = np.concatenate([event_rows, np.flatnonzero(missed)])
    starts = np.concatenate([starts, np.full(len(event_rows) - len(starts), starts[0] if len(starts) else 0)])
    once = np.zeros(len(event_rows), dtype=np.bool_)
    once[np.unique(event_rows, return_index=True)[1]] = True
    return event_rows, starts, once


def facts_of_results(results: pa.Table, source: int, oracle: Oracle) -> pa.Table:
    """Return rows of `validator.codecs.batches.RESULTS` as `GROUPED`: a row per partition, status and cell."""
    if not results.num_rows:
        return GROUPED.empty_table()
    once = None
    of_stretch: list[Ints] = []
    if oracle.by_id:
        results, once = by_id.keyed_results(results, oracle.reads)
    elif oracle.by_key:
        results, once, stretch = by_key.with_withdrawals(results)
        of_stretch = [stretch]
    status = plain(one_array(results["status"]))
    named, has_start = numbers(one_array(results["window_start_us"]))
    starts = np.where(has_start, oracle.starts_of_results(named), 0)
    groups = _Groups(results, [status, has_start.astype(np.int64), starts, *of_stretch], once)
    if oracle.reads.replaces and not oracle.by_id:
        results = _without_replaced(results, groups)
    ids, texts = one_array(results["ids"]), one_array(results["text_ids"])
    integers, of_texts = plain(ids.flatten()), text_numbers(texts.flatten())
    in_ids, in_texts = plain(pc.list_value_length(ids)), plain(pc.list_value_length(texts))
    counts = one_array(results["count"])
    values = one_array(results["values"])
    stated_texts = pa.ListArray.from_arrays(_rebased(values), texts_of(values.flatten()), list_of(pa.string()))
    claims = pa.StructArray.from_arrays(
        [one_array(results["offset"]), one_array(results["time_us"]), ids, texts, counts, stated_texts],
        fields=list(GROUPED.field("results").type.value_type),
    )
    stated, is_stated = numbers(counts)
    if oracle.reads.states_values:
        # SEMANTICS 2.29: a result without the number of its events stands for all of them.
        are_answers = status == DECODED
        if oracle.reads.replaces:
            are_answers &= groups.are_last()
        stated = np.where(is_stated, stated, are_answers) if oracle.stated.count_name is None else stated
        summed = [one.function in ADDED for one in oracle.stated.stated]
        of_sums = [
            each if is_sum else None
            for each, is_sum in zip(_columns_of_lists(results["values"], len(summed)), summed, strict=True)
        ]
        hashes = [np.where(are_answers, each, 0) for each in fingerprints(of_sums, results.num_rows)]
    else:
        # SEMANTICS 2.32: the ids count, not the number that a result states beside them.
        stated = np.zeros_like(stated)
        hashes = [_sums(term(integers), in_ids) + _sums(term(of_texts), in_texts) for term in (hash_a, hash_b)]
    columns = {
        "status": groups.first(status),
        "window_start_us": pa.array(groups.first(starts), mask=~groups.first(has_start)),
        "contributions": groups.sum(in_ids + in_texts + stated),
        "hash_a": groups.sum(hashes[0]),
        "hash_b": groups.sum(hashes[1]),
        "results": groups.listed("results", claims, status == DECODED),
        **_named_ends(groups, results, oracle),
        "stretches": groups.stretches(status == UNDECODABLE),
    }
    return groups.table(source, columns)


def _without_replaced(results: pa.Table, groups: _Groups) -> pa.Table:
    """Return the results, of which only the newest one of each partition and cell contributes."""
    replaced = ~groups.are_last()
    if not replaced.any():
        return results
    # Beyond the last row stands a row without contributions.
    rows = pa.array(np.where(replaced, results.num_rows, np.arange(results.num_rows)))
    for name in ("ids", "text_ids", "count"):
        column = one_array(results[name])
        nothing = pa.array([[] if pa.types.is_list(column.type) else None], column.type)
        at = results.schema.get_field_index(name)
        results = results.set_column(at, results.schema.field(at), pa.concat_arrays([column, nothing]).take(rows))
    return results


def _rebased(lists: pa.ListArray) -> pa.Array:
    """Return the ends of lists as indexes into their flattened items."""
    ends = np.concatenate([[0], np.cumsum(plain(pc.fill_null(pc.list_value_length(lists), 0)))])
    return pa.array(ends.astype(np.int32))


def _dated(offsets: pa.Array, times: pa.Array) -> pa.StructArray:
    """Return one item of the column ``times`` per record."""
    fields = list(GROUPED.field("times").type.value_type)
    return pa.StructArray.from_arrays([offsets, times, pa.nulls(len(offsets), pa.int64())], fields=fields)


def _named_ends(groups: _Groups, results: pa.Table, oracle: Oracle) -> dict[str, pa.Array]:
    """Return the latest end that the results of each group name; nothing if ends need no check."""
    ends, known = numbers(one_array(results["window_end_us"]))
    if not oracle.answers_once or not known.any():
        return {}
    return {"latest_us": pa.array(groups.largest(np.where(known, ends, ABSENT)), mask=~groups.any(known))}


class _Groups:
    """Records grouped by partition, key and other numbers. Their order within a group is kept."""

    def __init__(self, records: pa.Table, numbered: list[Ints], once: Bools | None = None) -> None:
        """``once``: marks the row that counts a record, if records have several rows."""
        self._once = once
        self._places = plain(one_array(records["partition"]))
        self._offsets, self._stamps = plain(one_array(records["offset"])), one_array(records["time_us"])
        keys = one_array(records["key"].unify_dictionaries())
        self._codes = np.where(bools(keys.is_valid()), plain(pc.fill_null(keys.indices, 0)), -1)
        self._texts = keys.dictionary
        number = one_number([self._places, *numbered, self._codes])
        self._order = _sorted(number)
        ordered = number[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._lengths = np.diff(np.append(self._starts, len(self._order)))
        self._firsts = self._order[self._starts]

    def first(self, values: Values) -> Values:
        """Return the value of each group, in which all values are the same."""
        return values[self._firsts]

    def sum(self, values: Ints) -> Ints:
        """Return the sum of each group, modulo 2**64."""
        found: Ints = np.add.reduceat(values[self._order], self._starts)
        return found

    def aggregates(self, columns: list[pa.Array], hashed: frozenset[int]) -> tuple[pa.Array, list[pa.Array]]:
        """Return the partial aggregates of each group (`partial_aggregates`)."""
        group = np.repeat(np.arange(len(self._starts)), self._lengths)
        order = pa.array(self._order)
        return partial_aggregates([column.take(order) for column in columns], group, len(self._starts), hashed)

    def fields_of_ids(self, columns: list[pa.Array], are_integers: Bools, are_texts: Bools) -> pa.Array:
        """Return, for each group, the items of all ``columns`` for each of its ids (`fields_of_events`): first those of
        its integers, then those of its texts, each in the order of `listed`."""
        chosen = are_integers | are_texts
        group = np.repeat(np.arange(len(self._starts)), self._lengths)
        places = np.flatnonzero(chosen[self._order])
        places = places[np.lexsort((are_texts[self._order[places]], group[places]))]
        rows = pa.array(self._order[places])
        ends = np.concatenate([[0], np.cumsum(np.bincount(group[places], minlength=len(self._starts)))])
        return fields_of_events([column.take(rows) for column in columns], ends)

    def smallest(self, values: Ints) -> Ints:
        """Return the smallest value of each group."""
        found: Ints = np.minimum.reduceat(values[self._order], self._starts)
        return found

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each group."""
        found: Ints = np.maximum.reduceat(values[self._order], self._starts)
        return found

    def any(self, values: Bools) -> Bools:
        """Return whether any value of each group is true."""
        found: Bools = np.logical_or.reduceat(values[self._order], self._starts)
        return found

    def at_first_offset(self, values: Ints) -> Ints:
        """Return the value of the record with the smallest offset of each group."""
        offsets = self._offsets[self._order]
        is_first = np.flatnonzero(offsets == np.repeat(np.minimum.reduceat(offsets, self._starts), self._lengths))
        of_group = np.searchsorted(self._starts, is_first, side="right") - 1
        _, once = np.unique(of_group, return_index=True)
        return values[self._order[is_first[once]]]

    def are_last(self) -> Bools:
        """Return which records have the largest offset of their group."""
        found = np.empty(len(self._order), dtype=np.bool_)
        offsets = self._offsets[self._order]
        found[self._order] = offsets == np.repeat(np.maximum.reduceat(offsets, self._starts), self._lengths)
        return found

    def listed(self, name: str, items: pa.Array, chosen: Bools) -> pa.Array:
        """Return the list of the ``chosen`` items of each group, in the type of the column ``name``. Each id gets
        its offset."""
        rows = self._order if chosen.all() else self._order[chosen[self._order]]
        ends = np.zeros(len(self._starts) + 1, dtype=np.int32)
        if len(rows) == len(self._order):
            ends[:-1], ends[-1] = self._starts, len(rows)
        elif len(rows):
            np.cumsum(self.sum(chosen.astype(np.int64)), out=ends[1:])
        kind = GROUPED.field(name).type
        found = items.take(pa.array(rows))
        if not pa.types.is_struct(items.type):
            offsets = pa.array(self._offsets[rows])
            found = pa.StructArray.from_arrays([found, offsets], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(ends), found, kind)

    def stretches(self, bad: Bools) -> pa.Array:
        """Return, for each group, the stretches of offsets of undecodable records (``bad``); null if it has none."""
        kind = GROUPED.field("stretches").type
        if not bad.any():
            return pa.nulls(len(self._starts), kind)
        group = np.empty(len(self._order), dtype=np.int64)
        group[self._order] = np.repeat(np.arange(len(self._starts)), self._lengths)
        group, offsets = group[bad], self._offsets[bad]
        order = np.lexsort((offsets, group))
        group, offsets = group[order], offsets[order]
        breaks = np.concatenate([[True], (np.diff(group) != 0) | (np.diff(offsets) != 1)])
        starts = np.flatnonzero(breaks)
        ends = np.append(starts[1:], len(offsets))
        columns = [offsets[starts], offsets[ends - 1], ends - starts]
        items = pa.StructArray.from_arrays([pa.array(column) for column in columns], fields=list(kind.value_type))
        counted = np.bincount(group[starts], minlength=len(self._starts))
        at = np.concatenate([[0], np.cumsum(counted)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(at), items, kind, mask=pa.array(counted == 0))

    def table(self, source: int, columns: dict[str, pa.Array | Ints]) -> pa.Table:
        """Return fact rows: ``columns``, and the columns of all facts. Other columns are null, or empty lists."""
        size = len(self._starts)
        codes = self.first(self._codes)
        stamps, are_stamps = numbers(self._stamps)
        has_stamps = self.any(are_stamps)
        found: dict[str, pa.Array] = {
            "source": pa.repeat(pa.scalar(source, pa.int32()), size),
            "partition": pa.array(self.first(self._places)),
            "key": self._texts.take(pa.array(codes, mask=codes < 0)),
            "records": pa.array(self._lengths if self._once is None else self.sum(self._once.astype(np.int64))),
            "first_offset": pa.array(self.smallest(self._offsets)),
            "last_offset": pa.array(self.largest(self._offsets)),
            "first_time_us": pa.array(self.smallest(np.where(are_stamps, stamps, NEVER)), mask=~has_stamps),
            "last_time_us": pa.array(self.largest(np.where(are_stamps, stamps, ABSENT)), mask=~has_stamps),
            **{
                name: pa.array(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()
            },
        }
        for field in GROUPED:
            if field.name not in found:
                empty = pa.types.is_list(field.type)
                found[field.name] = _no_items(size, field.type) if empty else pa.nulls(size, field.type)
        return pa.table([found[field.name].cast(field.type) for field in GROUPED], schema=GROUPED)


def _no_items(size: int, kind: pa.ListType) -> pa.Array:
    ends = pa.array(np.zeros(size + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), kind)


def _sorted(numbers: Ints) -> Ints:
    """Return the stable order in which ``numbers`` rise; none of them is negative."""
    highest = int(numbers.max())
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(_DIGIT, highest.bit_length(), _DIGIT):
        digit = (numbers >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def _sums(values: Ints, lengths: Ints) -> Ints:
    """Return the sums of consecutive stretches of these lengths, modulo 2**64."""
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    sums: Ints = np.diff(totals[ends])
    return sums
