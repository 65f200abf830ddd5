"""Decoded records to fact rows, in arrays: the records that one Spark task has read, grouped by cell.

Facts are additive, so a cell can have rows of several tasks (docs/decisions/0005-one-stage-to-facts.md).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import CONTRIBUTING, DECODED, SKIPPED, TOMBSTONE, UNDECODABLE, UNOWED, VERSION, list_of
from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
from validator.codecs.plain_fields import bools, numbers, plain
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, one_array, run_starts
from validator.oracles.seam import Oracle
from validator.reconcile import by_id, by_key
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.evidence.seam import EventIds
from validator.reconcile.facts import GROUPED
from validator.reconcile.record_groups import Groups
from validator.reconcile.values import columns_of_lists, texts_of


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
    if oracle.reads.several_of_record:
        # A record has a row for each of its words, or for each event of its change.
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
    groups = Groups(events, [given, of_cell, of_reach], once)
    ids, are_integers = numbers(one_array(events["id"]))
    texts = one_array(events["text_id"])
    are_texts = bools(texts.is_valid())
    contributing = np.isin(given, CONTRIBUTING).astype(np.int64)
    evidence = evidence_of(oracle)
    # The ids of events that have none are all the same: their number says everything.
    named = are_integers if evidence.names_events else np.zeros_like(are_integers)
    has_integers = groups.any(named)
    columns = {
        "status": groups.first(np.where(given == SKIPPED, UNOWED, given)),
        "window_start_us": pa.array(groups.first(starts), mask=~groups.first(decoded & (starts != ABSENT))),
        "reach_us": pa.array(groups.first(reaches), mask=~groups.first(reaching)),
        "contributions": groups.sum(contributing),
        **evidence.of_events(groups, events, EventIds(ids, are_integers, texts, are_texts), contributing),
        # Either all events of a group count, or none does.
        "newest_event_time_us": pa.array(groups.largest(times), mask=~groups.first(moving)),
        "min_id": pa.array(groups.smallest(np.where(named, ids, NEVER)), mask=~has_integers),
        "max_id": pa.array(groups.largest(np.where(named, ids, ABSENT)), mask=~has_integers),
        "ids": groups.listed("ids", pa.array(ids), named),
        "text_ids": groups.listed("text_ids", texts, are_texts),
        "stretches": groups.stretches(given == UNDECODABLE),
    }
    if oracle.ends_after_us is not None:
        columns["earliest_us"] = pa.array(groups.smallest(times), mask=~groups.first(decoded))
        columns["latest_us"] = pa.array(groups.largest(times), mask=~groups.first(decoded))
    if oracle.dates_events:
        columns["times"] = groups.listed("times", dated(one_array(events["offset"]), pa.array(times)), decoded)
    if with_first_event:
        limits_us = limits_us if event_rows is None else limits_us[event_rows]
        first_us = np.minimum(groups.at_first_offset(times), groups.at_first_offset(limits_us))
        columns["first_event_time_us"] = pa.array(first_us, mask=~groups.first(decoded))
    return groups.table(source, columns)


def facts_of_rows(rows: pa.Table, source: int, oracle: Oracle) -> pa.Table:
    """Return rows of a table, in the form of `validator.codecs.batches.EVENTS`, as `GROUPED`: a row per partition,
    status and key."""
    if not rows.num_rows:
        return GROUPED.empty_table()
    given = plain(one_array(rows["status"]))
    groups = Groups(rows, [given])
    decoded = given == DECODED
    times, _ = numbers(one_array(rows["event_time_us"]))
    columns = columns_of_lists(rows["values"], len(oracle.stated.paths))
    none = np.zeros_like(decoded)
    found = {
        "status": groups.first(np.where(decoded, VERSION, given)),
        "contributions": groups.sum(np.zeros_like(times)),
        # A second reading compares these sums.
        "hash_a": groups.sum(hash_a(times) * decoded),
        "hash_b": groups.sum(hash_b(text_numbers(_texts_of_rows(columns))) * decoded),
        "times": groups.listed("times", dated(one_array(rows["offset"]), pa.array(times)), decoded),
        "aggregates": groups.fields_of_ids(columns, decoded, none),
        "stretches": groups.stretches(given == UNDECODABLE),
    }
    return groups.table(source, found)


def _texts_of_rows(columns: list[pa.Array]) -> pa.Array:
    """Return the fields of each row as one text."""
    texts = [pc.coalesce(column.cast(pa.string()), pa.scalar("-")) for column in columns]
    return pc.binary_join_element_wise(*texts, " ") if len(texts) > 1 else texts[0]


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
    groups = Groups(results, [status, has_start.astype(np.int64), starts, *of_stretch], once)
    if oracle.reads.replaces and not oracle.by_id:
        results = _without_replaced(results, groups)
    ids, texts = one_array(results["ids"]), one_array(results["text_ids"])
    counts = one_array(results["count"])
    values = one_array(results["values"])
    stated_texts = pa.ListArray.from_arrays(_rebased(values), texts_of(values.flatten()), list_of(pa.string()))
    claims = pa.StructArray.from_arrays(
        [one_array(results["offset"]), one_array(results["time_us"]), ids, texts, counts, stated_texts],
        fields=list(GROUPED.field("results").type.value_type),
    )
    stated = evidence_of(oracle).of_results(groups, results, status == DECODED)
    columns = {
        "status": groups.first(status),
        "window_start_us": pa.array(groups.first(starts), mask=~groups.first(has_start)),
        **{name: groups.sum(column) for name, column in stated._asdict().items()},
        "results": groups.listed("results", claims, status == DECODED),
        **_named_ends(groups, results, oracle),
        "stretches": groups.stretches(status == UNDECODABLE),
    }
    return groups.table(source, columns)


def _without_replaced(results: pa.Table, groups: Groups) -> pa.Table:
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


def dated(offsets: pa.Array, times: pa.Array) -> pa.StructArray:
    """Return one item of the column ``times`` per record."""
    fields = list(GROUPED.field("times").type.value_type)
    return pa.StructArray.from_arrays([offsets, times, pa.nulls(len(offsets), pa.int64())], fields=fields)


def _named_ends(groups: Groups, results: pa.Table, oracle: Oracle) -> dict[str, pa.Array]:
    """Return the latest end that the results of each group name; nothing if ends need no check."""
    ends, known = numbers(one_array(results["window_end_us"]))
    if not oracle.answers_once or not known.any():
        return {}
    return {"latest_us": pa.array(groups.largest(np.where(known, ends, ABSENT)), mask=~groups.any(known))}
