"""Enrichment with a table on a real broker: events, rows and results by hand, `validate --once`, exact counts."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, click, iso, pipeline, read_report, spark
from validator.config.load import loads
from validator.stream.sidecar import Sidecar

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

EVENTS: Final = range(1, 61)
"""One event per second: six buckets of ten seconds."""
CHANGE: Final = 30
"""The second at which the row of k0 changes; that of k2 is removed then."""
_CONFIG: Final = """\
pipeline: {name}
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs:
  - topic: {name}-out
    evidence: id
    fields: {{key: page, event_time: at, id: id, values: {{tier: tier, limit: limit}}}}
oracle:
  kind: enrichment
  table: {{topic: {name}-rows, fields: {{key: $key, event_time: $timestamp}}}}
  values: {{tier: tier, limit: credit.limit}}
  behind: 2s
  ahead: 2s
timing: {{idle_after: 2s, overdue_after: 2s, missing_after: 4s, tick: 300ms}}
state: {{path: {state}}}
metrics: {{port: 0}}
"""
_ROWS: Final[dict[str, list[tuple[int, str | None, float | None]]]] = {
    "k0": [(0, "gold", 10), (CHANGE, "silver", 5.5)],
    "k1": [(0, "gold", 7)],
    "k2": [(0, "iron", 1), (CHANGE, None, None)],
}


def key_of(number: int) -> str:
    return f"k{number % 4}"


def row_of(key: str, at: int) -> tuple[object, object]:
    """The fields that a correct engine states at a second."""
    held = [(tier, limit) for since, tier, limit in _ROWS.get(key, []) if since <= at]
    return held[-1] if held else (None, None)


def result(number: object, at: float, key: str, tier: object, limit: object) -> str:
    """A result; null fields of the table are left out, as by an engine that writes no nulls."""
    fields = {name: value for name, value in (("tier", tier), ("limit", limit)) if value is not None}
    return json.dumps({"page": key, "at": iso(at), "id": number, **fields})


def write(pipeline: Pipeline) -> None:
    """Write the events, the table, and the results of a correct engine."""
    pipeline.create(inputs=2)
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
    pipeline.broker.create_topics({f"{pipeline.name}-rows": 2}, settings)
    for key, rows in _ROWS.items():
        for since, tier, limit in rows:
            value = None if tier is None else json.dumps({"tier": tier, "credit": {"limit": limit}})
            where = int(key[1]) % 2
            pipeline.put(f"{pipeline.name}-rows", value, partition=where, key=key, timestamp_ms=since * 1000 or 1)
    for number in EVENTS:
        pipeline.clicks(click(number, number, key_of(number)), partition=number % 2)
        pipeline.answers(result(number, number, key_of(number), *row_of(key_of(number), number)))


def validate(pipeline: Pipeline, state: str, *more: str) -> Run:
    """Run `validate --once`."""
    text = _CONFIG.format(name=pipeline.name, servers=pipeline.servers, state=pipeline.state(state))
    said: list[str] = []
    config = loads(text, pipeline.folder, more, {})
    status = Sidecar(config, once=True, say=said.append, session=pipeline.spark).run()
    report = read_report(pipeline.state(state))
    assert report is not None, said
    return Run(status, report, said)


def test_each_result_must_state_a_row_that_the_table_had(pipeline: Pipeline) -> None:
    write(pipeline)
    run = validate(pipeline, "perfect")
    assert run.counts() == {"expected": len(EVENTS), "processed": len(EVENTS)}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass")), run.report["reasons"]
    assert run.report["results"]["correct"] == len(EVENTS)
    partitions = run.report["coverage"]["partitions"]
    assert sum(part["records"] for part in partitions if part["role"] == "table") == 5
    assert run.report["coverage"]["complete"]

    # A row of another key; fields of two rows; a row that was replaced long ago; one that comes long after; a row that
    # was removed; a key without a row. And one that was replaced in the same bucket, which may still be used.
    wrong = [(100, 11, "k1", "iron", 1), (101, 41, "k0", "gold", 5.5), (102, 51, "k0", "gold", 10)]
    wrong += [(103, 12, "k0", "silver", 5.5), (104, 52, "k2", "iron", 1), (105, 13, "k3", "gold", 7)]
    for number, at, key, tier, limit in [*wrong, (106, 35, "k0", "gold", 10), (107, 14, "k0", "gold", 10.0)]:
        pipeline.clicks(click(number, at, key))
        pipeline.answers(result(number, at, key, tier, limit))
    pipeline.clicks(click(108, 15, "k1"))
    # An invented result has no event, so that its row is not judged.
    pipeline.answers(result("ghost", 15, "k1", "lead", 0))
    run = validate(pipeline, "broken")
    found = {name: count for name, count in run.report["violations"]["confirmed"].items() if count}
    assert found == {"inconsistent": len(wrong), "missing": 1, "unknown_id": 1}, run.report["reasons"]
    assert run.verdicts == ("fail", "fail", "fail")
    assert "tier and limit are of none of 1 possible row" in json.dumps(violations(pipeline))

    # A restart has the rows again, although the events and results that follow need them.
    pipeline.clicks(click(109, 41, "k0"), click(110, 42, "k0"))
    pipeline.answers(result(109, 41, "k0", "silver", 5.5), result(110, 42, "k0", "iron", 1))
    again = validate(pipeline, "broken")
    assert again.report["violations"]["confirmed"]["inconsistent"] == len(wrong) + 1

    # An inner join owes nothing to events of k3, which has no row: an answer is wrong, its absence no loss. Event 108,
    # of which the key has a row, stays lost, and of event 111 the row was removed before.
    pipeline.clicks(click(111, 44, "k2"), click(112, 45, "k3"))
    without_row = sum(key_of(number) == "k3" for number in EVENTS)
    inner = validate(pipeline, "inner", "oracle.join=inner")
    found = {name: count for name, count in inner.report["violations"]["confirmed"].items() if count}
    assert found == {"inconsistent": len(wrong) + 1 + without_row, "missing": 1, "unknown_id": 1}, inner.report[
        "reasons"
    ]


def violations(pipeline: Pipeline) -> list[object]:
    found: list[object] = json.loads((pipeline.state("broken") / "violations.json").read_text())["violations"]
    return found


def test_rows_that_cannot_be_read_prove_no_wrong_value(pipeline: Pipeline) -> None:
    write(pipeline)
    pipeline.put(f"{pipeline.name}-rows", "{", key="k1", partition=1, timestamp_ms=5000)
    pipeline.clicks(click(100, 11, "k1"))
    pipeline.answers(result(100, 11, "k1", "lead", 0))
    run = validate(pipeline, "state")
    assert run.report["violations"]["confirmed"]["inconsistent"] == 0
    assert run.report["violations"]["suspected"]["inconsistent"] == 1
    assert run.verdicts == ("unknown", "unknown", "unknown")
    assert any("table record" in reason for reason in run.report["reasons"]), run.report["reasons"]
