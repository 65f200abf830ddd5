"""Many keys make no more series than ten: the cost of a scrape does not depend on the number of keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import generate_latest

from tests.unit.judged_run import JudgedRun
from tests.unit.publish_snapshots import config
from tests.unit.reconcile_rows import fact, facts
from validator.model.progress import IngestProgress, TimeRules
from validator.publish.metrics import SnapshotCollector, registry
from validator.stream.reporting import snapshot_of

MANY = 300_000
TWICE_EVERY = 5_000


def served(folder: Path, keys: int) -> tuple[int, int, dict[str, str]]:
    """Lines, bytes and values of a scrape after ``keys`` cells were judged, some of them with an id counted twice."""
    right = fact("output", [7], batch=1, lookup_us=10)
    twice = fact("output", [7, 7], batch=1, lookup_us=10)
    template = facts(fact("input", [7], batch=1, lookup_us=10), right, twice)
    kinds = [0] * keys + [2 if key % TWICE_EVERY == 0 else 1 for key in range(keys)]
    table = template.take(pa.array(kinds))
    names = pa.array([f"customer-{key}" for key in (*range(keys), *range(keys))])
    table = table.set_column(table.schema.get_field_index("key"), "key", names)
    run = JudgedRun(folder)
    run.take(10, table)
    sums = run.judging.sums
    assert (sums.cells_seen, sums.counts["expected"]) == (keys, keys)
    collector = SnapshotCollector("clickstream")
    collector.update(snapshot_of(config(folder), IngestProgress(TimeRules(0, 0)), sums, run.record))
    text = generate_latest(registry(collector)).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return len(lines), len(text), dict(line.rsplit(" ", 1) for line in lines)


@pytest.mark.full
def test_many_keys_make_no_more_series_than_ten(tmp_path: Path) -> None:
    few, few_bytes, _ = served(tmp_path / "few", 10)
    many, many_bytes, values = served(tmp_path / "many", MANY)
    assert values['streamproof_contributions{class="duplicate",pipeline="clickstream"}'] == str(
        float(MANY // TWICE_EVERY)
    )
    assert many == few
    # The same series, with longer numbers.
    assert many_bytes < 1.1 * few_bytes
    assert "customer-" not in "".join(values)
