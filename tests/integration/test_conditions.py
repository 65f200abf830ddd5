"""Several kinds of events in one topic, and results of several services in another, on a real broker."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, answer, click, iso, pipeline, spark
from tests.tiers import first_of

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

WHERE: Final = (
    "{any: [{path: kind, matches: '^cl.*k$'}, {all: [{path: bid, exists: true}, {path: bid.price, above: 9.5}]}]}"
)
ORACLES: Final = {
    "tumbling_window, size: 10s": "window_start: start",
    "session_window, gap: 5s": "window_start: start",
    "running_aggregate": "",
}
NUMBERS: Final = range(1, 41)


def event(number: int) -> str:
    """Three of five events are of the pipeline; one has no other field, and one bid is too low."""
    if number % 5 == 0:
        return json.dumps({"kind": "login"})
    if number % 5 == 1:
        return click(number, 20 * number, kind="bid", bid={"price": 5})
    more = {"bid": {"price": 10}} if number % 5 == 2 else {}
    return click(number, 20 * number, kind="bid" if more else "click", **more)


def result(number: int, *, by: str = "ours") -> str:
    return json.dumps({"page": "a", "start": iso(20 * number), "ids": [number], "service": by})


@pytest.mark.parametrize("oracle", first_of(ORACLES))
def test_only_events_and_results_of_the_pipeline_count(pipeline: Pipeline, oracle: str) -> None:
    pipeline.create()
    settings = [
        f"oracle={{kind: {oracle}, where: {WHERE}}}",
        f"outputs.0.fields={{key: page, ids: ids, {ORACLES[oracle]}}}",
        "outputs.0.where={path: service, equals: ours}",
        "late=[]",
    ]
    owed = [number for number in NUMBERS if number % 5 > 1]
    pipeline.clicks(*map(event, NUMBERS))
    pipeline.answers(*(result(number) for number in owed), json.dumps({"service": "theirs"}), result(1, by="theirs"))
    run = pipeline.once(*settings, state="perfect")
    assert run.counts() == {"expected": len(owed), "processed": len(owed)}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["tombstone"] == 2
    assert run.report["coverage"]["complete"]

    pipeline.clicks(event(42), event(43), click(46, 920, kind="other"))
    pipeline.answers(result(43), result(43), result(46), result(42, by="theirs"))
    run = pipeline.once(*settings, state="broken")
    wrong = {"duplicate": 1, "missing": 1, "misplaced" if "tumbling" in oracle else "unknown_id": 1}
    assert run.counts() == {"expected": len(owed) + 2, "processed": len(owed) + 1, **wrong}
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))


@pytest.mark.full
def test_ids_of_several_fields_are_arrays_or_objects_in_lists(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(*(click(n, n, "a", order=f"o{n // 3}", line=n % 3) for n in range(20)))
    used = [{"order": f"o{n // 3}", "line": n % 3} if n % 2 else [f"o{n // 3}", n % 3] for n in range(19)]
    pipeline.answers(answer(used[:10]), answer([*used[10:], ["o0", "1"]], 1))
    run = pipeline.once("inputs.0.fields.id=[order, line]", "late=[]")
    assert run.counts() == {"expected": 20, "processed": 19, "missing": 1, "misplaced": 1}


def test_an_output_without_any_result_leaves_losses_suspected(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(*(click(number, number) for number in NUMBERS))
    pipeline.answers(result(1, by="theirs"))
    run = pipeline.once("outputs.0.where={path: service, equals: outs}")
    assert run.verdicts == ("unknown", "unknown", "unknown")
    assert any("check outputs[0].where" in reason for reason in run.report["reasons"])
