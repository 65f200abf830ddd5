"""The rows of a table: any order of absorbing gives the same rows, and both decoders read them alike."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from validator.codecs.batches import EventBatches, ResultBatches, columns_of
from validator.codecs.columns import DECODED, VERSION
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.arrays import ABSENT
from validator.reconcile.facts import Side, completed
from validator.reconcile.table_rows import Fields, TableRows
from validator.stream.decode import Reader
from validator.stream.sources import readers_of, sources_of
from validator.stream.stage import Stage

pytestmark = pytest.mark.unit

_ORACLE = "oracle={kind: enrichment, values: {tier: level}, table: {topic: rows, fields: FIELDS}}".replace(
    "FIELDS", "{key: $key, event_time: $timestamp}"
)
_OUTPUT = "outputs.0.fields={key: page, event_time: {path: t, unit: ms}, id: a, values: {tier: tier}}"
_TEXTS = ["gold", "", "ü", "10", 10, 10.0, 0.5, True, False, None, -7, "1e3", 2**63, [1], {"a": 1}]


def config() -> Config:
    return loads(EXAMPLES["clickstream"], "/etc", [_ORACLE, _OUTPUT, "outputs.0.evidence=id"], {})


def batch(reader: Reader, values: list[bytes | None], keys: list[str]) -> pa.RecordBatch:
    size = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([0] * size, pa.int32()),
        "offset": pa.array(range(size), pa.int64()),
        "time_us": pa.array(range(size), pa.int64()),
        "key": pa.array([key.encode() for key in keys], pa.binary()),
        "key_size": pa.nulls(size, pa.int32()),
    }
    names = columns_of(reader.decoder)
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def test_arrow_reads_rows_and_what_results_state_as_the_rule_does() -> None:
    it = config()
    sources = sources_of(it)
    output, *_, table = readers_of(it, sources)
    assert [sources[0].side, sources[-1].side] == [Side.OUTPUT, Side.TABLE]
    documents = [json.dumps({"page": "k", "t": 5, "a": i, "tier": text}) for i, text in enumerate(_TEXTS)]
    results = [*documents, json.dumps({"page": "k", "t": 5, "a": 99})]
    assert isinstance(output.batches, ResultBatches)
    found = pa.Table.from_batches(output.batches(iter([batch(output, [one.encode() for one in results], ["k"] * 16)])))
    by_rule = output.batches._decoded(batch(output, [one.encode() for one in results], ["k"] * 16))
    names = ["offset", "status", "values"]
    assert sorted(map(str, found.select(names).to_pylist())) == sorted(map(str, by_rule.select(names).to_pylist()))

    rows: list[bytes | None] = [json.dumps({"level": text}).encode() for text in _TEXTS]
    whole = batch(table, [*rows, b"{}", None, b"{"], ["k"] * (len(rows) + 3))
    assert isinstance(table.batches, EventBatches)
    assert table.batches.plain is not None
    singly = replace(table, batches=replace(table.batches, plain=None))
    facts = [
        pa.concat_tables(Stage([reader], limit_us=0, with_first_event=False).facts(0, iter([whole])))
        for reader in (table, singly)
    ]
    read = [pa.Table.from_batches(reader.batches(iter([whole]))).select(names) for reader in (table, singly)]
    one, two = (sorted(map(str, rows.to_pylist())) for rows in read)
    assert one == two
    sums = [sorted(map(str, part.select(["status", "records", "hash_a", "hash_b"]).to_pylist())) for part in facts]
    assert sums[0] == sums[1]
    # A null value is a row without fields; arrays, objects and what is not JSON do not decode.
    assert {row["status"]: row["records"] for row in facts[0].to_pylist()} == {VERSION: len(_TEXTS), 1: 3}
    stated = {row["offset"]: row["values"] for row in found.to_pylist() if row["status"] == DECODED}
    known = {row["offset"]: row["values"] for row in read[0].to_pylist() if row["status"] is None or not row["status"]}
    assert all(stated[at] == known[at] for at in stated if at in known)


def facts_of(rows: list[tuple[str, int, int, int, int | None]]) -> list[pa.Table]:
    """Fact rows of a table, one each: key, partition, offset, time and field."""
    [*_, table] = readers_of(config(), sources_of(config()))
    found = []
    for key, partition, offset, time_us, field in rows:
        one = batch(table, [json.dumps({"level": field}).encode()], [key]).to_pydict()
        one |= {"partition": [partition], "offset": [offset], "time_us": [time_us]}
        records = pa.RecordBatch.from_pydict(one, schema=batch(table, [b"{}"], [key]).schema)
        grouped = pa.concat_tables(Stage([table], limit_us=0, with_first_event=False).facts(0, iter([records])))
        found.append(completed(grouped, [(Side.TABLE, "rows")], batch=offset, lookup_us=offset, epoch=0))
    return found


def possible(store: TableRows, key: str, start: int, end: int, closed: int = ABSENT) -> frozenset[Fields] | None:
    [found] = store.possible([key], *(np.array([number]) for number in (start, end, closed)))
    return found


def test_rows_are_the_same_in_any_order_of_batches() -> None:
    facts = facts_of([("a", 0, 0, 10, 1), ("b", 0, 1, 50, 2), ("a", 0, 2, 20, 3), ("a", 0, 3, 15, 4)])
    found = set()
    for order in permutations(facts):
        store = TableRows(1, 0, 0)
        for one in order:
            store.absorb(one)
        cells = [(0, 5), (12, 14), (30, 40), (51, 52), (60, 70)]
        found.add(tuple(possible(store, key, *cell) for key in ("a", "b", "c") for cell in cells))
    [one] = found
    of_a = [len(rows or ()) for rows in one[:5]]
    # The second row of a may be read only after that of b, whose time is 50; the third one is not later than it.
    assert of_a == [1, 1, 3, 2, 2]
    assert possible(TableRows(1, 0, 0), "a", 0, 1) == frozenset({(None,)})


def test_a_key_on_two_partitions_is_not_known_and_late_rows_end_nothing() -> None:
    store = TableRows(1, 0, None)
    for one in facts_of([("a", 0, 0, 10, 1), ("a", 0, 5, 20, 2), ("b", 0, 6, 10, 1), ("b", 1, 0, 10, 1)]):
        store.absorb(one)
    assert possible(store, "b", 0, 10) is None
    assert len(possible(store, "a", 30, 40) or ()) == 1
    # The row at offset 5 was read after the closing of the cell.
    assert len(possible(store, "a", 30, 40, closed=4) or ()) == 2
