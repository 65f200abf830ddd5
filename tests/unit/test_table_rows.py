"""The rows of a table: any order of absorbing gives the same rows, and both decoders read them alike."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.unit import retained_run
from tests.unit.reconcile_rows import MINUTE_US, fact
from tests.unit.retained_run import RETENTION_US, START_US
from validator.codecs.batches import EventBatches, ResultBatches, columns_of
from validator.codecs.columns import DECODED, VERSION
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.arrays import ABSENT
from validator.oracles.enrichment import Enrichment
from validator.reconcile.facts import FACTS_SCHEMA, Side, completed
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import with_newest_before
from validator.reconcile.table_rows import Asked, TableRows
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


def possible(store: TableRows, key: str, start: int, end: int, lookup: int = 1_000) -> list[int | None]:
    """The offsets of the possible rows, None for the absence of a row."""
    asked = Asked(pa.array([key]), *(np.array([number]) for number in (start, end, lookup)))
    found = [None if at is None else at[2] for _, at in store.possible(asked)]
    return sorted(found, key=lambda one: -1 if one is None else one)


def read_before(facts: pa.Table, before_us: int | None) -> pa.Table:
    """The facts, if their partition had been read through this instant before."""
    return with_newest_before(facts, {} if before_us is None else {("rows", 0): before_us})


def test_rows_are_the_same_in_any_order_of_batches() -> None:
    facts = facts_of([("a", 0, 0, 10, 1), ("b", 0, 1, 50, 2), ("a", 0, 2, 20, 3), ("a", 0, 3, 15, 4)])
    cells = [(0, 5), (12, 14), (30, 40), (51, 52), (60, 70)]
    for order in permutations(facts):
        store = TableRows(1, 0, 0)
        for one in order:
            store.absorb(one)
        # The second row of a may be read only after that of b, whose time is 50; the third one is not later than it.
        assert [possible(store, "a", *cell) for cell in cells] == [[None], [0], [0, 2, 3], [2, 3], [2, 3]]
        assert [possible(store, "b", *cell) for cell in cells] == [[None], [None], [None], [1], [1]]
    assert possible(TableRows(1, 0, 0), "a", 0, 1) == [None]


def test_a_row_counts_only_if_it_may_have_been_appended_before_the_result_was_read() -> None:
    store = TableRows(1, 0, None)
    for one, before_us in zip(facts_of([("a", 0, 0, 10, 1), ("a", 0, 1, 20, 2)]), (None, 7), strict=True):
        store.absorb(read_before(one, before_us))
    # The second row was appended after 7: it neither is possible for a result read by then, nor ends the first row.
    assert possible(store, "a", 30, 40, 7) == [0]
    assert possible(store, "a", 30, 40, 8) == [1]


def test_a_key_on_two_partitions_is_not_judged() -> None:
    store = TableRows(1, 0, None)
    for one in facts_of([("a", 0, 0, 10, 1), ("b", 0, 6, 10, 1), ("b", 1, 0, 10, 1)]):
        store.absorb(one)
    asked = Asked(pa.array(["a", "b", "c"]), np.full(3, 30), np.full(3, 40), np.full(3, 9))
    assert store.stated_wrongly(asked, np.full((1, 3), 5)).tolist() == [True, False, True]
    assert store.scattered == 1


def one_row(offset: int, time_us: int, before_us: int, batch: int = 0) -> pa.Table:
    """A fact row of key a, as `read_before` returns it."""
    row = {"kind": "fact", "status": VERSION, "topic": "rows", "partition": 0, "key": "a", "batch": batch}
    row |= {"times": [{"offset": offset, "time_us": time_us, "before_us": before_us}]}
    row |= {"aggregates": [{"count": None, "sum": str(offset), "min": None, "max": None}]}
    return pa.Table.from_pylist([row], pa.schema([FACTS_SCHEMA.field(name) for name in row]))


def by_definition(
    rows: list[tuple[int, int, int]], behind: int, ahead: int, start: int, lookup: int
) -> list[int | None]:
    """SEMANTICS 2.37 for a cell of width 5; ``rows``: time, newest time of the partition, and read-through time."""
    counting = [row for row in rows if row[2] < lookup]

    def is_over(at: int) -> bool:
        later = counting[at + 1 :]
        time = rows[at][0] if at >= 0 else ABSENT
        return any(one[0] >= time and one[1] < start - behind for one in later)

    found: list[int | None] = [] if is_over(-1) else [None]
    return found + [at for at, one in enumerate(counting) if one[0] <= start + 5 + ahead and not is_over(at)]


def test_possible_rows_are_those_of_the_definition_and_rows_that_leave_concern_no_later_cell() -> None:
    rng = Random(20)
    left = 0
    for _ in range(60):
        times = [rng.randrange(60) if rng.random() < 0.3 else 3 * at for at in range(rng.randrange(1, 25))]
        before = sorted(rng.randrange(40) for _ in times)
        rows = [(time, max(times[: at + 1]), read) for at, (time, read) in enumerate(zip(times, before, strict=True))]
        behind, ahead = rng.choice((0, 3, 9)), rng.choice((0, 4))
        store = TableRows(1, behind, ahead)
        # Each batch reads what was appended since the lookup of the one before.
        of_one = [one_row(at, time, read, read + 1) for at, (time, read) in enumerate(zip(times, before, strict=True))]
        store.absorb(pa.concat_tables(of_one))
        cells = [(rng.randrange(80), rng.randrange(45)) for _ in range(12)]
        for start, lookup in cells:
            owed = by_definition(rows, behind, ahead, start, lookup)
            assert possible(store, "a", start, start + 5, lookup) == owed
        since, batch = cells[0]
        store.forget(since, batch)
        left += len(rows) - len(store)
        assert len(store)
        for start, lookup in cells:
            if start >= since and lookup >= batch:
                owed = by_definition(rows, behind, ahead, start, lookup)
                assert possible(store, "a", start, start + 5, lookup) == owed
    assert left > 100


class _Run(retained_run.Run):
    """Events of one key, of which each has a new row."""

    oracle = Enrichment.model_construct(
        kind="enrichment", bucket=MINUTE_US, values={"tier": "t"}, table=config().oracle.tables[0], behind=0, ahead=0
    )
    rules = Rules(oracle=oracle, overdue_after_us=1, missing_after_us=2)

    def minute(self, at_us: int, stated: int) -> int:
        """Read a row, an event and a result; retire. Return the number of results that state a wrong value."""
        number = self.progress.batch + 1
        start_us = at_us - at_us % MINUTE_US
        row = fact("table", [number], batch=number, lookup_us=at_us)
        row |= {"status": VERSION, "ids": [], "contributions": 0, "window_start_us": None}
        row |= {"times": [{"offset": number, "time_us": start_us, "before_us": at_us - 1}]}
        row |= {"aggregates": [{"count": None, "sum": str(number), "min": None, "max": None}]}
        event, answer = (
            fact(side, [number], batch=number, lookup_us=at_us, window_us=start_us) for side in ("input", "output")
        )
        answer["results"] = [{**answer["results"][0], "values": [str(stated)]}]
        self.batch(at_us, row, event, answer)
        retired = tuple((one.at_us, one.horizon_us) for one in self.retired.retirements)
        self.judging._clock = replace(retained_run.clock(at_us), retired=retired)
        self.retire()
        return self.judging.sums.results["wrong_value"]


def test_memory_has_the_rows_of_cells_that_may_be_judged_and_the_newest_of_each_key(tmp_path: Path) -> None:
    run, minutes = _Run(tmp_path), 4 * RETENTION_US // MINUTE_US
    sizes = []
    for minute in range(minutes):
        assert run.minute(START_US + minute * MINUTE_US, run.progress.batch + 1) == 0
        assert run.judging.cells.table_rows is not None
        sizes.append(len(run.judging.cells.table_rows))
    assert max(sizes) < minutes / 2
    assert run.minute(START_US + minutes * MINUTE_US, 3) == 1
