"""A semi join by the distance of times on a real broker: results name the events of one side only.

Events and results are written by hand, and counted without the sidecar's code.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, click, pipeline, read_report, spark
from validator.config.load import loads
from validator.state.tables import StateTables, Table
from validator.stream.sidecar import Sidecar

__all__ = ["pipeline", "spark"]
# The first tier has a windowed join.
pytestmark = [pytest.mark.timeout(600), pytest.mark.full]

SECONDS: Final = 60
BEFORE, AFTER = -1, 6
"""Seconds from an order to the first and the last payment that it may have."""
BUCKET: Final = 10
_CONFIG: Final = """\
pipeline: {name}
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs:
  - {{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}
  - {{topic: {name}-payments, fields: {{id: id, key: page, event_time: timestamp}}}}
outputs:
  - {{topic: {name}-out, evidence: id, fields: {{id: id, key: page, event_time: timestamp}}}}
oracle: {{kind: interval_join, join: semi, left: {name}-in, right: {name}-payments, before: 1s, after: 6s, bucket: 10s}}
timing: {{idle_after: 2s, overdue_after: 2s, missing_after: 4s, tick: 300ms}}
state: {{path: {state}}}
metrics: {{port: 0}}
"""
Event = tuple[int, int, str]
"""Id, second, key."""


def events() -> tuple[list[Event], list[Event]]:
    """Orders and payments. Ids of both begin with 1; some orders have several payments."""
    chance = Random(42)
    keys = ["a", "b", "c"]
    orders = [(n, second, chance.choice(keys)) for n, second in enumerate(range(SECONDS), 1)]
    payments = [(n, chance.randrange(SECONDS), chance.choice(keys)) for n in range(1, 19)]
    return orders, sorted(payments, key=lambda payment: payment[1])


def paid(orders: list[Event], payments: list[Event]) -> list[Event]:
    """The orders with a payment, each once."""
    return [
        order for order in orders
        if any(key == order[2] and BEFORE <= at - order[1] <= AFTER for _, at, key in payments)
    ]  # fmt: skip


def validate(pipeline: Pipeline, state: str) -> Run:
    """Run `validate --once`."""
    text = _CONFIG.format(name=pipeline.name, servers=pipeline.servers, state=pipeline.state(state))
    said: list[str] = []
    status = Sidecar(loads(text, pipeline.folder, (), {}), once=True, say=said.append, session=pipeline.spark).run()
    report = read_report(pipeline.state(state))
    assert report is not None, said
    return Run(status, report, said)


def violations(pipeline: Pipeline, state: str) -> Counter[tuple[str, str, int, tuple[str, ...]]]:
    """Class, key, bucket in seconds, and ids of each violation on record."""
    rows = [row for part in StateTables(pipeline.state(state)).scan(Table.VIOLATIONS) for row in part.to_pylist()]
    return Counter(
        (row["class"], row["key"], row["window_start_us"] // 1_000_000, tuple(row["ids"]))
        for row in rows
        for _ in range(row["count"])
    )


def test_a_lost_and_a_repeated_result_of_a_semi_join_are_found(pipeline: Pipeline) -> None:
    pipeline.create(inputs=2, outputs=2)
    payments_topic = f"{pipeline.name}-payments"
    pipeline.broker.create_topics({payments_topic: 2})
    orders, payments = events()
    owed = paid(orders, payments)
    assert len(owed) > 20
    assert len(orders) - len(owed) > 10
    for topic, side in ((pipeline.input, orders), (payments_topic, payments), (pipeline.output, owed)):
        for n, second, key in side:
            pipeline.put(topic, click(n, second, key), partition=n % 2)
    run = validate(pipeline, "correct")
    assert run.counts() == {"expected": len(owed), "processed": len(owed)}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass")), run.report["reasons"]
    assert run.report["coverage"]["complete"]
    assert violations(pipeline, "correct") == Counter()

    # An order with two payments has no result; another one has its only result twice, on both partitions.
    lost, repeated = (SECONDS + 1, SECONDS, "d"), owed[11]
    pipeline.clicks(click(*lost), partition=1)
    pipeline.put(payments_topic, click(101, SECONDS, "d"), click(102, SECONDS + 1, "d"), partition=1)
    pipeline.answers(click(*repeated), partition=1 - repeated[0] % 2)
    run = validate(pipeline, "broken")
    assert run.counts() == {"expected": len(owed) + 1, "processed": len(owed), "missing": 1, "duplicate": 1}
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail")), run.report["reasons"]
    planted = ((lost, "missing"), (repeated, "duplicate"))
    assert violations(pipeline, "broken") == Counter(
        (name, key, second // BUCKET * BUCKET, (str(n),)) for (n, second, key), name in planted
    )
