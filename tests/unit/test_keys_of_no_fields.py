"""A key of no fields: one result for all events, such as a global count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.local_run import _batches, judged
from tests.unit.retained_run import START_US
from validator.codecs.batches import EventBatches
from validator.codecs.one_record import Record
from validator.config.load import InvalidConfigError, loads
from validator.model.classes import Verdict
from validator.stream.decode import event_reader

HEAD = """
pipeline: clicks
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
state: {path: state}
"""
RUNNING = """
inputs: [{topic: clicks, fields: {key: [], event_time: {path: at, unit: us}}}]
outputs: [{topic: totals, emission: cumulative, evidence: values, fields: {key: [], values: {n: n, sum: sum}}}]
oracle: {kind: running_aggregate, values: {n: count, sum: sum(cost)}}
"""
WINDOWS = """
inputs: [{topic: clicks, fields: {key: [], event_time: {path: at, unit: us}}}]
outputs: [{topic: totals, evidence: values, fields: {key: [], window_start: {path: start, unit: us}, values: {n: n}}}]
oracle: {kind: tumbling_window, size: 1s, values: {n: count}}
"""
WITH_IDS = """
inputs: [{topic: clicks, fields: {id: id, key: [], event_time: {path: at, unit: us}}}]
outputs: [{topic: totals, emission: EMISSION, fields: {key: [], ids: ids}}]
oracle: {kind: running_aggregate}
"""


def records(*values: dict[str, object] | None) -> list[Record]:
    return [
        Record(None if value is None else json.dumps(value).encode(), offset=n, timestamp_us=START_US)
        for n, value in enumerate(values)
    ]


CLICKS = records(*({"id": n, "at": START_US + n * 300_000, "cost": n} for n in range(7)))
TOTALS = [{"n": n + 1, "sum": n * (n + 1) // 2} for n in range(7)]
COUNTS = [{"start": START_US + second * 1_000_000, "n": n} for second, n in enumerate((4, 3))]
LISTS: list[dict[str, object] | None] = [{"ids": [*range(n + 1)]} for n in range(7)]


@pytest.mark.parametrize(
    ("settings", "results", "counts", "said"),
    [
        (RUNNING, TOTALS, {"expected": 7, "processed": 7}, Verdict.PASS),
        (RUNNING, TOTALS[:6], {"expected": 7, "processed": 6, "missing": 1}, Verdict.FAIL),
        (RUNNING, [*TOTALS, {"n": 8, "sum": 21}], {"expected": 7, "processed": 7, "duplicate": 1}, Verdict.FAIL),
        # What is wrong in the only key may be the configuration.
        (RUNNING, [*TOTALS, {"n": 7, "sum": 22}], {"expected": 7, "processed": 7}, Verdict.UNKNOWN),
        (RUNNING, [*TOTALS, None], {"expected": 7, "missing": 7}, Verdict.UNKNOWN),
        (WINDOWS, COUNTS, {"expected": 7, "processed": 7}, Verdict.PASS),
        (WINDOWS, COUNTS[1:], {"expected": 7, "processed": 3, "missing": 4}, Verdict.FAIL),
        (WINDOWS, [*COUNTS, COUNTS[0]], {"expected": 7, "processed": 7, "duplicate": 4}, Verdict.FAIL),
        (WITH_IDS.replace("EMISSION", "cumulative"), LISTS, {"expected": 7, "processed": 7}, Verdict.PASS),
        (WITH_IDS.replace("EMISSION", "cumulative"), LISTS[:6], {"processed": 6, "missing": 1}, Verdict.FAIL),
        (WITH_IDS.replace("EMISSION", "final"), LISTS[-1:], {"expected": 7, "processed": 7}, Verdict.PASS),
        (WITH_IDS.replace("EMISSION", "final"), LISTS[-2:], {"processed": 7, "duplicate": 6}, Verdict.FAIL),
    ],
)
def test_all_events_have_one_result(
    settings: str, results: list[dict[str, object] | None], counts: dict[str, int], said: Verdict, tmp_path: Path
) -> None:
    shown = judged(HEAD + settings, {"clicks": CLICKS, "totals": records(*results)}, tmp_path)
    wanted = {"processed": 0, "missing": 0, "duplicate": 0, **counts}
    assert {name: shown.contributions[name] for name in wanted} == wanted
    assert shown.verdicts[shown.guarantee] is said, shown.reasons


@pytest.mark.parametrize("settings", [RUNNING, WINDOWS, WITH_IDS.replace("EMISSION", "final")])
def test_arrow_reads_such_events_as_the_rule_does(settings: str) -> None:
    config = loads(HEAD + settings, "/etc", (), {})
    batches = event_reader(config.inputs[0], config.oracle, 0, "auto").batches
    assert isinstance(batches, EventBatches)
    odd = records(*({"at": START_US, "cost": cost} for cost in ("x", None, 1.5)), {"cost": 1, "id": "a"})
    both = [
        pa.Table.from_batches([*each(_batches(0, [*CLICKS, *odd]))]).sort_by("offset").to_pylist()
        for each in (batches, replace(batches, plain=None))
    ]
    assert both[0] == both[1]
    assert {row["key"] for row in both[0]} >= {"[]"}


def test_inputs_and_outputs_have_the_same_number_of_fields() -> None:
    with pytest.raises(InvalidConfigError, match="it has 1 field and the key of inputs"):
        loads(HEAD + WINDOWS, "/etc", ["outputs.0.fields.key=page"], {})
    with pytest.raises(InvalidConfigError, match="words are counted only in values, for a key of one field"):
        loads(HEAD + WINDOWS, "/etc", ["inputs.0.explode={}"], {})
