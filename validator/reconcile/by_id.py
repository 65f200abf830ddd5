"""Cells of one id each. A cell's key is made of a record's key and an id; a result is split by the ids that it lists.

Without windows, an event and the results that list its id meet in the cell of its key and its id. The key of such a
cell is the JSON array of the key's texts and the id's text. The cell has no start. The key itself has a row, too
(`OF_KEY`). It is not a cell, but records which result of the key is the newest.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.batches import RESULTS
from validator.codecs.columns import DECODED, TOMBSTONE
from validator.codecs.plain_fields import bools, one_number, plain
from validator.model.arrays import Bools, Ints, listed, one_array
from validator.oracles.seam import Reads

OF_KEY: Final = 0
"""``window_start_us`` of the row of a key itself. In the row of a cell it is null."""

_ODD: Final = r'["\\\x00-\x1f]'
"""The characters that JSON escapes in a text, for RE2."""
_LAST: Final = r',"(?:[^"\\]|\\.)*"\]$'
"""The last text of a JSON array of texts, for RE2. The pattern begins with a comma and a quote. A text never contains
this pair: a quote within a text is escaped."""


def key_texts(keys: pa.Array, *, joined: bool) -> pa.Array:
    """Return keys as JSON arrays. ``joined``: they have several fields, and are therefore JSON arrays already."""
    return keys if joined else pc.binary_join_element_wise("[", _quoted(keys), "]", "")


def cell_keys(keys: pa.DictionaryArray, ids: pa.Array, text_ids: pa.Array, *, joined: bool) -> pa.Array:
    """Return the keys of cells as texts; null if the key is null. In each row ``ids`` or ``text_ids`` is null."""
    heads = pc.utf8_slice_codeunits(key_texts(keys.dictionary, joined=joined), 0, -1).take(keys.indices)
    texts = pc.coalesce(pc.binary_join_element_wise('"', ids.cast(pa.string()), '"', ""), _quoted(text_ids))
    return pc.binary_join_element_wise(heads, ",", texts, "]", "")


def keys_of_cells(keys: pa.Array) -> pa.Array:
    """Return, for each cell, the key of its `OF_KEY` row."""
    return pc.replace_substring_regex(keys, _LAST, "]")


def keyed_events(events: pa.Table, decoded: Bools, reads: Reads) -> pa.Table:
    """Return rows of `EVENTS`, in which decoded events have the keys of their cells."""
    keys = one_array(events["key"].unify_dictionaries())
    found = cell_keys(keys, one_array(events["id"]), one_array(events["text_id"]), joined=reads.joined_keys)
    if not decoded.all():
        found = pc.if_else(pa.array(decoded), found, keys.cast(pa.string()))
    at = events.schema.get_field_index("key")
    return events.set_column(at, events.schema.field(at), _encoded(found))


def keyed_results(results: pa.Table, reads: Reads) -> tuple[pa.Table, Bools]:
    """Return the rows of `RESULTS` split by id, each with the key of its cell; and which of them count a record.

    Each record is counted by exactly one row. If results replace each other, each partition has one row per id, for
    its newest result with the id. Each result, and each tombstone that names a key, then also has an `OF_KEY`
    row, by which the newest result of the key is found. If results add up, only a result without ids has an `OF_KEY`
    row, which counts it.
    """
    status, keys = plain(one_array(results["status"])), one_array(results["key"].unify_dictionaries())
    ids, texts = one_array(results["ids"]), one_array(results["text_ids"])
    (of_ids, numbers), (of_texts, names) = listed(ids), listed(texts)
    listing = np.concatenate([of_ids, of_texts])
    cells = cell_keys(
        keys.take(pa.array(listing)),
        pa.concat_arrays([numbers.cast(pa.int64()), pa.nulls(len(names), pa.int64())]),
        pa.concat_arrays([pa.nulls(len(numbers), pa.string()), names.cast(pa.string())]),
        joined=reads.joined_keys,
    )
    chosen = np.arange(len(listing))
    decoded = status == DECODED
    if reads.replaces:
        chosen = _newest(plain(one_array(results["partition"])), plain(one_array(results["offset"])), listing, cells)
        of_key = decoded | ((status == TOMBSTONE) & bools(keys.is_valid()))
        counted = np.zeros(len(chosen), dtype=np.bool_)
    else:
        lists = np.zeros(len(status), dtype=np.bool_)
        lists[listing] = True
        of_key = decoded & ~lists
        counted = np.zeros(len(chosen), dtype=np.bool_)
        counted[np.unique(listing, return_index=True)[1]] = True
    named, others = np.flatnonzero(of_key), np.flatnonzero(~decoded)
    rows = np.concatenate([listing[chosen], named, others])
    sizes = (len(chosen), len(named), len(others))
    parents = key_texts(keys.dictionary, joined=reads.joined_keys).take(keys.indices.take(pa.array(named)))
    # A tombstone is counted by a row of its own, without a key.
    kept = pc.if_else(pa.array(status[others] == TOMBSTONE), pa.scalar(None, pa.string()), _texts(keys, others))
    is_number = chosen < len(numbers)
    columns = {
        "status": np.concatenate([np.full(sizes[0] + sizes[1], DECODED), status[others]]),
        "window_start_us": pa.array(np.full(len(rows), OF_KEY), mask=np.repeat([True, False, True], sizes)),
        "window_end_us": pa.nulls(len(rows), pa.int64()),
        "key": _encoded(pa.concat_arrays([cells.take(pa.array(chosen)), parents, kept])),
        "ids": _lists(np.append(is_number, np.zeros(len(rows) - sizes[0], np.bool_)), numbers, chosen[is_number]),
        "text_ids": _lists(
            np.append(~is_number, np.zeros(len(rows) - sizes[0], np.bool_)), names, chosen[~is_number] - len(numbers)
        ),
        **{name: one_array(results[name]).take(pa.array(rows)) for name in ("partition", "offset", "time_us")},
        "count": pa.nulls(len(rows), pa.int64()),
        "values": pa.nulls(len(rows), RESULTS.field("values").type),
    }
    arrays = [pa.array(column) if isinstance(column, np.ndarray) else column for column in columns.values()]
    by_name = dict(zip(columns, arrays, strict=True))
    table = pa.table([by_name[field.name].cast(field.type) for field in RESULTS], schema=RESULTS)
    return table, np.concatenate([counted, decoded[named], np.ones(len(others), dtype=np.bool_)])


def _newest(partitions: Ints, offsets: Ints, listing: Ints, cells: pa.Array) -> Ints:
    """For each partition and cell, return the numbers of the newest result's entries. ``listing``: the
    result of each entry."""
    if not len(listing):
        return listing
    group = one_number([partitions[listing], plain(cells.dictionary_encode().indices)])
    _, group = np.unique(group, return_inverse=True)
    newest = np.full(int(group.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(newest, group, offsets[listing])
    return np.flatnonzero(offsets[listing] == newest[group])


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings, not restricted to ASCII. The few that need escapes are encoded one by one."""
    found = pc.binary_join_element_wise('"', texts, '"', "")
    odd = pc.fill_null(pc.match_substring_regex(texts, _ODD), False)
    if not pc.any(odd).as_py():
        return found
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(found, odd, pa.array(escaped, pa.string()))


def _texts(keys: pa.DictionaryArray, rows: Ints) -> pa.Array:
    return keys.dictionary.take(keys.indices.take(pa.array(rows)))


def _encoded(texts: pa.Array) -> pa.DictionaryArray:
    return texts.dictionary_encode().cast(RESULTS.field("key").type)


def _lists(has: Bools, items: pa.Array, chosen: Ints) -> pa.ListArray:
    """Return lists with one item in the rows for which ``has`` holds, and empty lists in the others."""
    ends = np.zeros(len(has) + 1, dtype=np.int32)
    np.cumsum(has, out=ends[1:])
    return pa.ListArray.from_arrays(pa.array(ends), items.take(pa.array(chosen)))
