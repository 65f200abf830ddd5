"""Cells of one id each: their keys, the choice of the newest result, and retention."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.fed_run import FedRun
from tests.unit.range_counts import counted
from tests.unit.retained_run import CUMULATIVE, LATER_US, START_US, ListRun, events, results
from validator.codecs.columns import DECODED, TOMBSTONE
from validator.codecs.one_record import joined
from validator.core.judging import new_cells
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import Clock
from validator.model.progress import IngestProgress
from validator.reconcile.by_id import OF_KEY, cell_keys, key_texts, keys_of_cells
from validator.reconcile.cells import Cells
from validator.reconcile.judge import close
from validator.stream.kafka_reading import Range
from validator.stream.workers import FactsRead

ODD = ["", "a", '"', "\\", '\\"', ',"', '","', '"]', "]", "[", "ü\u2028😀", "\n\t\x00\x1f\x7f", "a,b", '["x"]', "0"]


def test_the_key_of_a_cell_is_a_json_array_for_any_texts() -> None:
    pairs = [(key, id_) for key in ODD for id_ in ODD]
    keys = pa.array([key for key, _ in pairs]).dictionary_encode()
    texts, none = pa.array([id_ for _, id_ in pairs]), pa.nulls(len(pairs), pa.int64())
    cells = cell_keys(keys, none, texts, joined=False)
    assert cells.to_pylist() == [joined([key, id_]) for key, id_ in pairs]
    assert keys_of_cells(cells).to_pylist() == [joined([key]) for key, _ in pairs]
    assert key_texts(keys.cast(pa.string()), joined=False).to_pylist() == [joined([key]) for key, _ in pairs]
    several = pa.array([joined([key, "x"]) for key, _ in pairs]).dictionary_encode()
    cells = cell_keys(several, none, texts, joined=True)
    assert cells.to_pylist() == [joined([key, "x", id_]) for key, id_ in pairs]
    assert keys_of_cells(cells).to_pylist() == [joined([key, "x"]) for key, _ in pairs]


def test_an_integer_id_and_the_same_number_as_text_share_a_cell() -> None:
    keys = pa.array(["k", "k"]).dictionary_encode()
    cells = cell_keys(keys, pa.array([7, None], pa.int64()), pa.array([None, "7"]), joined=False)
    assert cells.to_pylist() == ['["k","7"]', '["k","7"]']


def folded(*parts: pa.Table, settling: bool) -> Cells:
    cells = new_cells(CUMULATIVE)
    for part in parts:
        cells.absorb(part)
        if settling:
            close(cells, clock(0))
    close(cells, clock(0))
    return cells


def clock(at_us: int, watermark_us: int | None = None) -> Clock:
    return Clock(at_us, watermark_us, at_us, at_us, at_us, None, None, 0, False, False)


def of_cells(cells: Cells, *names: str) -> dict[tuple[int, str], tuple[int, ...]]:
    starts, keys = cells["window_start_us"].tolist(), cells.keys().to_pylist()
    columns = zip(*(cells[name].tolist() for name in names), strict=True)
    return dict(zip(zip(starts, keys, strict=True), columns, strict=True))


@pytest.mark.full
def test_the_result_that_counts_does_not_depend_on_the_order_of_facts() -> None:
    rng = Random(3)
    for _ in range(60):
        parts = []
        for batch in range(1, 7):
            items: list[tuple[str, list[int] | None]] = []
            for _ in range(rng.randint(0, 4)):
                ids = [rng.randint(1, 4) for _ in range(rng.randint(0, 4))]
                items.append((rng.choice("ab"), rng.choice((ids, ids, None))))
            # Several tasks read a batch, a range of offsets each.
            whole = results(batch, 10 * batch, *items) if items else results(batch, 10 * batch, ("c", [1]))
            parts.append(whole)
        names = ("processed_count", "processed_a", "results", "observed_us", "withdrawn_us", "newest_offset")
        live = folded(*parts, settling=True)
        rng.shuffle(parts)
        again = folded(*parts, settling=False)
        assert of_cells(live, *names) == of_cells(again, *names)
        assert of_cells(live, *names) == of_cells(folded(pa.concat_tables(parts), settling=False), *names)


def test_the_counted_number_of_an_id_rises_with_every_change() -> None:
    cells = new_cells(CUMULATIVE)
    numbers, seen = [], []
    lists: list[list[int] | None] = [[1], [1, 1], [2], [1], None, [], [1]]
    for batch, ids in enumerate(lists, 1):
        cells.absorb(results(batch, 10 * batch, ("k", ids)))
        close(cells, clock(10 * batch))
        row = cells.keys().to_pylist().index('["k","1"]')
        seen.append(int(cells["processed_count"][row]))
        numbers.append(int(cells.facts_version[row]))
    assert seen == [1, 2, 0, 1, 0, 0, 1]
    for (before, now), (earlier, later) in zip(pairwise(seen), pairwise(numbers), strict=True):
        assert later > earlier or (before == now and later == earlier)


@pytest.fixture
def run(tmp_path: Path) -> ListRun:
    """A key with two ids and one with a single id, all of them answered."""
    run = ListRun(tmp_path / "state")
    at = START_US
    run.read(at, events(1, at, (1, "k", at - 9), (2, "k", at - 8), (5, "j", at - 9)), results(1, at, ("k", [1, 2])))
    run.read(at + 1, results(2, at + 1, ("j", [5])))
    return run


def test_retired_ids_are_out_of_scope_when_a_list_names_them_again(run: ListRun) -> None:
    assert run.counts == {"expected": 3, "processed": 3}
    run.read(LATER_US, events(3, LATER_US, (3, "k", LATER_US - 5)))
    run.retire()
    # The row of the key stays with the remaining id.
    assert run.keys == ['["k","3"]', '["k"]']
    # The complete list of the key so far, and a result for a retired id: neither is a violation, even after a restart.
    more = results(4, LATER_US + 1, ("k", [1, 2, 3]), ("j", [5]))
    assert run.read(LATER_US + 1, more) == {"expected": 4, "processed": 4}
    assert run.restarted() == {"expected": 4, "processed": 4}
    assert run.read(LATER_US + 2, results(5, LATER_US + 2, ("k", [3, 3]))) == {
        "expected": 4,
        "processed": 4,
        "duplicate": 1,
    }


def test_the_newest_result_of_a_key_stays_with_its_ids(run: ListRun) -> None:
    """Without the row of its key, an id that was withdrawn long ago would count again."""
    at = START_US + 2
    run.read(at, results(3, at, ("k", None)))
    assert run.counts == {"expected": 3, "processed": 1, "pending": 2}
    # One of the two cells changes once more: a copy of its event is read.
    run.read(LATER_US, events(4, LATER_US, (2, "k", START_US - 8)))
    missing = {"expected": 4, "processed": 1, "pending": 2, "missing": 1}
    assert run.counts == missing
    run.retire()
    assert run.keys == ['["k","2"]', '["k"]']
    assert run.judging.cells["window_start_us"].tolist().count(OF_KEY) == 1
    run.read(LATER_US + 5)
    assert run.counts == {"expected": 4, "processed": 1, "missing": 3}
    assert run.restarted() == run.counts
    assert np.count_nonzero(run.judging.cells["processed_count"]) == 0


def test_a_tombstone_has_no_cell() -> None:
    found = results(1, 10, ("k", None))
    kinds = [(row["status"], row["key"], row["records"]) for row in found.to_pylist()]
    assert sorted(kinds) == [(DECODED, json.dumps(["k"]), 0), (TOMBSTONE, None, 1)]


@pytest.mark.parametrize("key", ["page", "$key"])
def test_a_null_value_whose_key_is_not_known_is_a_doubt_about_losses(key: str, tmp_path: Path) -> None:
    """The engine withdraws the result of key "a" and writes no other. If keys are in values, a null value has none."""
    output = f"outputs.0={{topic: out, emission: cumulative, fields: {{key: {key}, ids: ids}}}}"
    run = FedRun(tmp_path, ("inputs.0.topic=in", output, "late=[]", "oracle={kind: running_aggregate}"))
    withdrawn = ("a" if key == "$key" else None, None)

    def of_batch(ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        given = progress.batch, progress.lookup_us
        facts = pa.concat_tables([events(*given, (1, "a", 3)), results(*given, ("a", [1]), withdrawn)])
        return FactsRead(facts, counted(ranges, facts))

    run.runner._facts = of_batch  # type: ignore[method-assign, assignment]
    run.logs.ends.update({"in": 1, "out": 2})
    run.feed([])
    found = run.end()
    lost = Verdict.UNKNOWN if key == "page" else Verdict.FAIL
    assert found.results["tombstone"] == 1
    assert [found.verdicts[name] for name in Guarantee] == [Verdict.PASS, lost, lost]
    assert ("1 null value on topic out may have withdrawn any result" in "; ".join(found.reasons)) == (key == "page")
