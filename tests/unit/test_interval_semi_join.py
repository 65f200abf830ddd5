"""A semi join by the distance of times, from records to verdicts: a left event with a partner owes one result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import log, one
from tests.unit.retained_run import START_US

pytestmark = pytest.mark.unit

EVENT = "{id: n, key: page, event_time: {path: at, unit: us}}"
TEXT = f"""
pipeline: answered
guarantee: exactly_once
kafka: {{bootstrap_servers: "127.0.0.1:9092"}}
state: {{path: state}}
inputs: [{{topic: orders, fields: {EVENT}}}, {{topic: payments, fields: {EVENT}}}]
outputs: [{{topic: paid, evidence: id, fields: {EVENT}}}]
oracle: {{kind: interval_join, join: semi, left: orders, right: payments, after: 10s}}
"""
ORDERS = {1: 0, 2: 1, 3: 20, 4: 40}
"""Id -> second. Orders 1 and 2 have the payments 1 and 2, order 3 has payment 3, order 4 none."""
PAYMENTS = {1: 5, 2: 6, 3: 30, 4: 39}


@pytest.mark.parametrize(
    ("results", "found"),
    [
        ((1, 2, 3), {"processed": 3}),
        ((1, 3), {"processed": 2, "missing": 1}),
        ((1, 2, 2, 3), {"processed": 3, "duplicate": 1}),
        ((1, 2, 3, 4), {"processed": 3, "misplaced": 1}),
        ((1, 2, 3, 9), {"processed": 3, "unknown_id": 1}),
    ],
)
def test_a_left_event_with_partners_owes_one_result(
    results: tuple[int, ...], found: dict[str, int], tmp_path: Path
) -> None:
    def topic(events: list[tuple[int, int]]) -> list[str]:
        return [json.dumps({"n": n, "page": "a", "at": START_US + 1_000_000 * second}) for n, second in events]

    logs = {"orders": topic(list(ORDERS.items())), "payments": topic(list(PAYMENTS.items()))}
    logs["paid"] = topic([(n, ORDERS.get(n, 0)) for n in results])
    shown = judged(TEXT, {name: log(map(one, values)) for name, values in logs.items()}, tmp_path)
    names = ("processed", "missing", "duplicate", "misplaced", "unknown_id")
    assert {name: count for name in names if (count := shown.contributions[name])} == found
