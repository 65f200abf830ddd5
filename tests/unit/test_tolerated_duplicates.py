"""Duplicates that an at-least-once engine may cause use up no hidden record that may explain another violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.classes import Guarantee, Verdict


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_repeated_results_do_not_confirm_what_a_hidden_event_may_explain(tmp_path: Path, repeats: int) -> None:
    run = FedRun(tmp_path, ("guarantee=at_least_once",))
    # The engine reads the undecodable record: it is a copy of event 1 in the second window.
    hidden = Fed("click", None)
    run.feed([Fed("click", (1,)), Fed("click", (3,)), Fed("click", (2,), MINUTE_US), hidden])
    answers = [Fed("output", (1, 3)), Fed("output", (1, 2), MINUTE_US)]
    # After a restart from an older checkpoint the engine writes its first result again.
    run.feed([*answers, *[Fed("output", (1, 3))] * repeats, Fed("click", (9,), 5 * MINUTE_US)])
    for _ in range(5):
        shown = run.feed([], after_us=MINUTE_US)
    assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is Verdict.UNKNOWN
    assert {name for name, _ in run.recorded} == ({"duplicate"} if repeats else set())
    assert (shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL) == (repeats > 0)
    # A second misplaced id has no explanation.
    run.feed([Fed("output", (3,), MINUTE_US)])
    shown = run.feed([], after_us=MINUTE_US)
    assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is Verdict.FAIL


WINDOW = MINUTE_US
EXPLAINED = {
    "a misplaced id": (
        [Fed("click", (1,)), Fed("click", None)],
        [Fed("output", (1,)), *[Fed("output", (1,), WINDOW)] * 3],
    ),
    "a misplaced id beside an event": (
        [Fed("click", (1, 3)), Fed("click", (2,), WINDOW), Fed("click", None)],
        [Fed("output", (1, 3)), *[Fed("output", (1, 2), WINDOW)] * 2],
    ),
    "an unknown id beside a misplaced id": (
        [Fed("click", (1,)), Fed("click", (2,), WINDOW), Fed("click", None), Fed("click", None)],
        [Fed("output", (1,)), Fed("output", (1, 2), WINDOW), *[Fed("output", (7,), 2 * WINDOW)] * 2],
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_repeated_result_needs_no_second_explanation_of_its_ids(tmp_path: Path, name: str) -> None:
    events, answers = EXPLAINED[name]
    run = FedRun(tmp_path, ("guarantee=at_least_once",))
    run.feed(events)
    run.feed([*answers, Fed("click", (9,), 5 * WINDOW)])
    for _ in range(5):
        shown = run.feed([], after_us=WINDOW)
    assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is Verdict.UNKNOWN
