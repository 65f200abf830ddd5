"""Passthrough and filter on a real broker: events and results by hand, `validate --once`, exact counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, click, iso, pipeline, read_report, spark
from tests.tiers import first_of
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.publish import explain
from validator.stream.sidecar import Sidecar

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

EVENTS: Final = range(1, 61)
"""One event per second: six buckets of ten seconds."""
PASSED: Final = "passthrough"
FILTERED: Final = "{kind: filter, bucket: 10s, where: {path: status, one_of: [paid, 2]}}"
BOUNDED: Final = "{kind: filter, bucket: 10s, where: {path: total, at_least: 10, below: 50}}"


def event(number: int) -> str:
    status: object = ("paid", "open", 2)[number % 3]
    return click(number, number, f"k{number % 2}", status=status, total=number + 0.5)


def result(number: object, seconds: float, key: str) -> str:
    return json.dumps({"page": key, "at": iso(seconds), "id": number})


def answer(number: int) -> str:
    return result(number, number, f"k{number % 2}")


def validate(pipeline: Pipeline, oracle: str, state: str, *more: str) -> Run:
    """Run `validate --once` on a new state."""
    name = pipeline.name
    set_aside = "{id: clickId, key: page, event_time: clickTimestamp}"
    config = loads(
        EXAMPLES["filter"],
        pipeline.folder,
        [
            f"pipeline={name}",
            f"kafka.bootstrap_servers={pipeline.servers}",
            f"inputs=[{{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}]",
            f"outputs=[{{topic: {name}-out, evidence: id, fields: {{key: page, event_time: at, id: id}}}}]",
            f"late=[{{topic: {name}-late, fields: {set_aside}}}]",
            f"oracle={oracle}",
            f"state.path={pipeline.state(state)}",
            "metrics.port=0",
            *more,
        ],
        {},
    )
    said: list[str] = []
    status = Sidecar(config, once=True, say=said.append, session=pipeline.spark).run()
    report = read_report(pipeline.state(state))
    assert report is not None, said
    return Run(status, report, said)


def passed(oracle: str) -> list[int]:
    """Return the events that need a result."""
    if oracle == FILTERED:
        return [number for number in EVENTS if number % 3 != 1]
    return [number for number in EVENTS if oracle != BOUNDED or 10 <= number + 0.5 < 50]


def complete(pipeline: Pipeline, owed: Sequence[int]) -> None:
    """Write the events, and the results of a correct engine."""
    pipeline.create(inputs=2, outputs=2)
    for partition in (0, 1):
        pipeline.clicks(*(event(number) for number in EVENTS if number % 2 == partition), partition=partition)
        pipeline.answers(*(answer(number) for number in owed if number % 2 == partition), partition=partition)


@pytest.mark.parametrize("oracle", first_of([FILTERED, f"{{kind: {PASSED}}}", "{kind: map, bucket: 1s}", BOUNDED]))
def test_a_passthrough_passes_and_each_of_its_deviations_is_counted(
    pipeline: Pipeline, oracle: str, capsys: pytest.CaptureFixture[str]
) -> None:
    owed = passed(oracle)
    others = [number for number in EVENTS if number not in owed]
    complete(pipeline, owed)
    if others:
        # The engine sets the event aside before it evaluates the condition.
        aside = json.dumps({"clickId": others[0], "page": f"k{others[0] % 2}", "clickTimestamp": iso(others[0])})
        pipeline.put(pipeline.late, aside, aside)
    run = validate(pipeline, oracle, "perfect")
    assert run.counts() == {"expected": len(owed), "processed": len(owed)}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["correct"] == len(owed)
    assert run.report["inputs"]["read"] == len(EVENTS)
    assert run.report["coverage"]["complete"]

    # One more event is lost, one answered twice, one has another key, one another bucket, and one is invented.
    more = [(100, 70.0), (101, 71.0), (102, 72.0), (103, 73.0)]
    pipeline.clicks(*(click(number, at, "k0", status="paid", total=20) for number, at in more))
    doubled = result(101, 71.0, "k0")
    pipeline.answers(doubled, doubled, result(102, 72.0, "k9"), result(103, 95.0, "k0"), result("ghost", 74.0, "k0"))
    wrong: dict[str, Any] = {"duplicate": 1, "misplaced": 2, "missing": 3, "unknown_id": 1}
    if others:
        pipeline.answers(result(others[0], others[0], f"k{others[0] % 2}"))
        wrong["misplaced"] += 1
    run = validate(pipeline, oracle, "broken")
    assert run.counts() == {"expected": len(owed) + 4, "processed": len(owed) + 1, **wrong}
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))
    assert {name: n for name, n in run.report["violations"]["confirmed"].items() if n} == wrong
    if others:
        capsys.readouterr()
        assert explain.run(pipeline.state("broken"), str(others[0])) == 0
        said = capsys.readouterr().out
        assert f"input event from {pipeline.input}-{others[0] % 2}" in said
        assert "condition of the oracle" in said
        assert "misplaced confirmed" in said


@pytest.mark.full
def test_an_event_without_the_field_of_the_condition_leaves_the_verdict_unknown(pipeline: Pipeline) -> None:
    complete(pipeline, passed(FILTERED))
    pipeline.clicks(click(200, 61, "k0"), click(201, 62, "k0", status={"is": "paid"}))
    pipeline.answers(result(200, 61, "k0"))
    run = validate(pipeline, FILTERED, "state")
    assert run.report["inputs"]["undecodable"] == 2
    assert run.counts("unknown_id", "missing") == {"unknown_id": 1, "missing": 0}
    assert run.report["violations"]["confirmed"]["unknown_id"] == 0
    assert run.verdicts == ("unknown", "unknown", "unknown")


@pytest.mark.full
def test_a_header_that_only_the_condition_reads_is_decoded(pipeline: Pipeline) -> None:
    pipeline.create()
    for number in EVENTS:
        header = [("kind", b"good" if number % 2 else b"bad")]
        pipeline._producer.produce(pipeline.input, event(number), partition=0, headers=header)
    pipeline.answers(*(answer(number) for number in EVENTS if number % 2))
    assert pipeline._producer.flush(30) == 0
    run = validate(pipeline, "{kind: filter, where: {path: $header.kind, one_of: [good]}}", "state")
    assert run.counts() == {"expected": 30, "processed": 30}
    assert run.status == 0
