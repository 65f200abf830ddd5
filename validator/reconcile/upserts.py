"""Facts of records that replace the row of their record key (SEMANTICS 2.35).

A fact row of such an input counts the row of a record, as of any event, and one with the status `REMOVED` what the
record replaces. A task pairs the records of a record key that it has read; the driver adds what their first records
replace of the rows that `validator.reconcile.kept_rows` has.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from validator.codecs.batches import EVENTS, ROW
from validator.codecs.columns import DECODED, REMOVED, UNDECODABLE, VERSION
from validator.codecs.plain_fields import numbers, plain
from validator.model.arrays import Ints, ints, one_array, run_starts
from validator.oracles.seam import Oracle
from validator.reconcile.facts import GROUPED
from validator.reconcile.grouping import dated, facts_of_events
from validator.reconcile.kept_rows import KeptRows
from validator.reconcile.record_groups import Groups
from validator.reconcile.values import columns_of_lists


def facts_of_upserts(
    records: pa.Table, source: int, oracle: Oracle, slack_us: int, limit_us: int, *, with_first_event: bool
) -> pa.Table:
    """Return rows of `EVENTS` with the column `ROW` as `GROUPED`: what the records add, what they replace of each
    other, and the first offset and the newest row of each record key. Arguments as in `facts_of_events`."""
    if not records.num_rows:
        return GROUPED.empty_table()
    records = records.unify_dictionaries().combine_chunks()
    partition, offset, status = (plain(one_array(records[name])) for name in ("partition", "offset", "status"))
    row = plain(one_array(records[ROW]).dictionary_encode().indices)
    # SEMANTICS 2.35: whether the engine uses an undecodable record is not known: it explains any difference.
    at = np.flatnonzero(status != UNDECODABLE)
    order = at[np.lexsort((offset[at], row[at], partition[at]))]
    is_first = run_starts(partition[order], row[order])
    is_last = np.roll(is_first, -1)
    by = order[~is_first]
    replaced = order[np.flatnonzero(~is_first) - 1]
    had = status[replaced] == DECODED
    events = _with_removed(records.select(EVENTS.names), replaced[had], by[had])
    found = [facts_of_events(events, source, oracle, slack_us, limit_us, with_first_event=with_first_event)]
    if len(order):
        newest = records.take(pa.array(order[is_last]))
        found.append(_facts_of_newest(newest, offset[order[is_first]], source, len(oracle.stated.paths)))
    return pa.concat_tables(found)


def _with_removed(records: pa.Table, replaced: Ints, by: Ints) -> pa.Table:
    """Return the records, and what each record of ``by`` removes beside it: the row of the one in ``replaced``."""
    if not len(by):
        return records
    removed = records.take(pa.array(replaced))
    at = records.select(["partition", "offset", "time_us"]).take(pa.array(by))
    columns = {name: at[name] for name in at.column_names}
    # What is removed is not due before what replaces it.
    times = (ints(records["event_time_us"])[of] for of in (replaced, by))
    columns["event_time_us"] = pa.array(np.maximum(*times))
    columns["status"] = pa.array(np.full(len(by), REMOVED, dtype=np.int32))
    removed = pa.table([columns.get(name, removed[name]) for name in records.column_names], schema=records.schema)
    order = np.argsort(np.concatenate([np.arange(records.num_rows), by]), kind="stable")
    return pa.concat_tables([records, removed]).unify_dictionaries().combine_chunks().take(pa.array(order))


def _facts_of_newest(newest: pa.Table, firsts: Ints, source: int, width: int) -> pa.Table:
    """Return the newest row of each record key as `GROUPED`, of status `VERSION`, with its first offset. A key
    without a row has no time."""
    is_row = plain(one_array(newest["status"])) == DECODED
    groups = Groups(newest, [is_row.astype(np.int64)], np.zeros(len(is_row), dtype=np.bool_))
    named = list(GROUPED.field("text_ids").type.value_type)
    rows = pa.StructArray.from_arrays([one_array(newest[ROW]), pa.array(firsts)], fields=named)
    times, _ = numbers(one_array(newest["event_time_us"]))
    every = np.ones_like(is_row)
    columns: dict[str, pa.Array | Ints] = {
        "status": groups.first(np.full(len(is_row), VERSION)),
        "contributions": groups.sum(np.zeros(len(is_row), dtype=np.int64)),
        "text_ids": groups.listed("text_ids", rows, every),
        "times": groups.listed("times", dated(one_array(newest["offset"]), pa.array(times, mask=~is_row)), every),
    }
    if width:
        fields = columns_of_lists(newest["values"], width)
        columns["aggregates"] = groups.fields_of_ids(fields, ~every, every)
    return groups.table(source, columns)


def replaced_facts(
    kept: KeptRows, facts: pa.Table, sources: Mapping[str, int], oracle: Oracle, slack_us: int, limit_us: int
) -> pa.Table:
    """Return as `GROUPED` what the records of one batch replace of rows that their tasks did not read. These rows
    count no record. ``sources``: topic -> its number."""
    found = [GROUPED.empty_table()]
    for topic, events in kept.replaced(facts):
        grouped = facts_of_events(events, sources[topic], oracle, slack_us, limit_us, with_first_event=False)
        at = GROUPED.get_field_index("records")
        none = pa.array(np.zeros(grouped.num_rows, dtype=np.int64))
        found.append(grouped.set_column(at, GROUPED.field(at), none))
    return pa.concat_tables(found)
