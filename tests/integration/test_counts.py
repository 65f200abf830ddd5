"""Results without ids on a real broker: a count for each window (evidence `values`)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, iso, pipeline, read_report, spark
from tests.tiers import full
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream.sidecar import Sidecar

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

SIZE_SECONDS: Final = 15
TUMBLING: Final = f"{{kind: tumbling_window, size: {SIZE_SECONDS}s, values: {{clicks: count}}}}"
SLIDING: Final = f"{{kind: sliding_window, size: {SIZE_SECONDS}s, slide: 5s, values: {{clicks: count}}}}"
EVENTS: Final = [(f"k{number % 3}", number) for number in range(15, 135)]


def event(key: str, seconds: float) -> str:
    return json.dumps({"page": key, "timestamp": iso(seconds)})


def result(key: str, start: int, count: Any) -> str:
    return json.dumps({"page": key, "windowStart": iso(start), "count": count})


def owed(every_seconds: int) -> Counter[tuple[str, int]]:
    """Return (key, start of the window) -> number of its events."""
    return Counter(
        (key, start)
        for key, seconds in EVENTS
        for start in range(0, seconds + 1, every_seconds)
        if start <= seconds < start + SIZE_SECONDS
    )


def validate(pipeline: Pipeline, oracle: str, state: str) -> Run:
    """Run `validate --once` on a new state."""
    name = pipeline.name
    settings = [
        f"pipeline={name}",
        f"kafka.bootstrap_servers={pipeline.servers}",
        f"inputs.0.topic={name}-in",
        f"outputs.0.topic={name}-out",
        f"late=[{{topic: {name}-late, fields: {{key: page, event_time: timestamp}}}}]",
        f"oracle={oracle}",
        f"state.path={pipeline.state(state)}",
        "metrics.port=0",
    ]
    config = loads(EXAMPLES["counts"], pipeline.folder, settings, {})
    said: list[str] = []
    status = Sidecar(config, once=True, say=said.append, session=pipeline.spark).run()
    report = read_report(pipeline.state(state))
    assert report is not None, said
    return Run(status, report, said)


@pytest.mark.parametrize(("oracle", "every_seconds"), [(SLIDING, 5), full(TUMBLING, SIZE_SECONDS)])
def test_a_perfect_count_passes_and_each_deviation_is_counted(
    pipeline: Pipeline, oracle: str, every_seconds: int
) -> None:
    pipeline.create(inputs=2, outputs=2)
    for partition in (0, 1):
        pipeline.clicks(*(event(*one) for one in EVENTS if one[1] % 2 == partition), partition=partition)
    pipeline.put(pipeline.late, event("k0", 30))
    expected = owed(every_seconds)
    # The late topic received an event of each window from 30 s, so the results of these windows lack it.
    aside = Counter({("k0", start): 1 for start in (30, 25, 20) if start % every_seconds == 0})
    counted = expected - aside
    pipeline.answers(*(result(*cell, str(count) if cell[1] % 2 else count) for cell, count in counted.items()))
    run = validate(pipeline, oracle, "perfect")
    assert run.counts() == {"expected": expected.total(), "processed": counted.total(), "late": aside.total()}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["correct"] == len(counted)
    assert run.report["coverage"]["complete"]
    assert "not which" in run.report["cannot_see"][0]

    # A window that counts too much, one that counts nothing, one without events, and a number that is none.
    pipeline.answers(result("k1", 45, 2), result("k9", 45, 3), result("k2", 60, -1), result("k2", 60, 0))
    pipeline.clicks(event("k1", 300), event("k1", 600), partition=0)
    pipeline.clicks(event("k1", 600), partition=1)
    run = validate(pipeline, oracle, "broken")
    lost = SIZE_SECONDS // every_seconds
    assert run.counts("duplicate", "unknown_id", "missing") == {"duplicate": 2, "unknown_id": 3, "missing": 3 * lost}
    assert run.report["results"]["undecodable"] == 1
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))
    violations = json.loads((pipeline.state("broken") / "violations.json").read_text())["violations"]
    assert [one["ids"] for one in violations if one["class"] != "undecodable"] == [[]] * (len(violations) - 1)
