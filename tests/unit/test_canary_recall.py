"""The canary's rounds, judged by the rules of the pipeline, and the recall that follows from them."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import fact, facts
from validator.core.judging import Judging
from validator.measure.canary_recall import ROUNDS_JUDGED, Accused, CanaryRules, Recall
from validator.measure.canary_rounds import CELLS, RIGHT, Round
from validator.model.classes import PLANTED
from validator.model.frontier import Clock
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import VIOLATIONS, Rules
from validator.state.known_facts import KnownFacts

SECOND = 1_000_000
EVERY = 60 * SECOND
RULES = CanaryRules(missing_after_us=120 * SECOND, found_within_us=60 * SECOND, every_us=EVERY)
ALL: Accused = {name: {name: 1} for name in PLANTED}


def clock(at_us: int, watermark_us: int) -> Clock:
    """Every topic is read through ``at_us``."""
    return Clock(at_us, watermark_us, at_us, at_us, at_us, None, None, 0, outputs_held=False, inputs_held=False)


def judged(round_: Round, results: list[bytes], *, collapse: bool = False) -> Accused:
    """A round's violations on record after everything is proven, with these results in the log."""
    rules = Rules(
        oracle=TumblingWindow.of(EVERY), overdue_after_us=SECOND, missing_after_us=2 * SECOND, collapse=collapse
    )
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    events, answers = [*map(json.loads, round_.events())], [*map(json.loads, results)]
    cells = [("input", [event["id"]], event["time"] // EVERY * EVERY, event["key"]) for event in events]
    cells += [("output", result["ids"], result["window"], result["key"]) for result in answers]
    rows = [fact(side, ids, batch=0, lookup_us=1, window_us=at, key=key) for side, ids, at, key in cells]
    newest_us = max(event["time"] for event in events)
    judging.absorb(facts(*rows), clock(1, newest_us), {})
    judging.absorb(None, clock(3 * SECOND, newest_us), {})
    windows = np.full(len(CELLS), round_.window_start_us)
    found = judging.cells.rows_of(windows, pa.array([round_.key(cell) for cell in CELLS])).tolist()
    assert min(found) >= 0
    judged = judging.judged_of(np.arange(len(judging.cells)))
    return {
        cell: {name: int(judged.on_record[name][row]) for name in VIOLATIONS}
        for cell, row in zip(CELLS, found, strict=True)
    }


@pytest.mark.parametrize("collapse", [False, True], ids=["fingerprints first", "all compared"])
def test_the_core_finds_exactly_the_planted_violations_of_a_round(collapse: bool) -> None:
    round_ = Round(29_000_000, EVERY, "p@1")
    found = judged(round_, round_.results(), collapse=collapse)
    none = dict.fromkeys(VIOLATIONS, 0)
    assert found == {RIGHT: none, **{name: {**none, name: 1} for name in PLANTED}}


def test_a_round_without_results_has_missed_violations_and_false_alarms() -> None:
    round_ = Round(29_000_000, EVERY, "p@1")
    recall = Recall(RULES, began_us=0)
    recall.planted(round_, 0)
    [outcome] = recall.judged(RULES.due_after_us, {round_.number: judged(round_, [])})
    assert outcome.missed == ("duplicate", "misplaced", "unknown_id")
    # The cell "missing" loses both of its events, one of which was planted as a loss.
    assert outcome.accused == {(cell, "missing") for cell in CELLS}


def test_a_round_is_deterministic_and_its_ids_are_unique() -> None:
    first, again = Round(7, EVERY, "p@1"), Round(7, EVERY, "p@1")
    assert (first.events(), first.results()) == (again.events(), again.results())
    ids = Counter(json.loads(e)["id"] for n in range(1, 50) for e in Round(n, EVERY, "p@1").events())
    assert set(ids.values()) == {1}
    keys = {json.loads(event)["key"] for event in first.events()}
    assert not keys & {json.loads(event)["key"] for event in Round(7, EVERY, "p@2").events()}
    # No event is ahead of the instant at which the round is planted.
    assert max(json.loads(event)["time"] for event in first.events()) == 7 * EVERY


def recall_of(*found: tuple[str, ...]) -> Recall:
    """The recall after rounds in which these classes were found, each class 2 s after it could first be known."""
    recall = Recall(RULES, began_us=0)
    for number, classes in enumerate(found, 1):
        planted_us = number * EVERY
        recall.planted(Round(number, EVERY, "p@1"), planted_us)
        for at_us in (planted_us + 2 * SECOND, planted_us + RULES.missing_after_us + 2 * SECOND):
            seen = {n: {n: 1} for n in classes if n != "missing" or at_us > planted_us + RULES.missing_after_us}
            assert not recall.judged(at_us, {number: seen})
        seen = {name: {name: 1} for name in classes}
        assert recall.judged(planted_us + RULES.due_after_us, {number: seen})[0].number == number
    return recall


def test_a_round_has_no_outcome_before_it_is_due() -> None:
    recall = Recall(RULES, began_us=5)
    recall.planted(Round(1, EVERY, "p@1"), 0)
    recall.judged(RULES.due_after_us - 1, {1: ALL})
    measures = recall.measures()
    assert (measures.recall_ratio, measures.delay_us_max, measures.false_alarms) == (None, None, None)
    assert (measures.judged_us, measures.class_recall_ratio) == (5, {})


def test_recall_and_delay_of_the_last_rounds_are_given_by_class_and_in_total() -> None:
    measures = recall_of(PLANTED, ("missing", "unknown_id")).measures()
    assert measures.recall_ratio == 6 / 8
    assert measures.class_recall_ratio == {"missing": 1, "duplicate": 0.5, "misplaced": 0.5, "unknown_id": 1}
    # A loss could not be known before missing_after.
    assert measures.delay_us_max == 2 * SECOND
    assert measures.judged_us == 2 * EVERY + RULES.due_after_us
    assert recall_of(*[()] * 3, *[PLANTED] * ROUNDS_JUDGED).measures().recall_ratio == 1


def test_a_violation_reported_after_the_due_time_counts_as_missed() -> None:
    recall = Recall(RULES, began_us=0)
    recall.planted(Round(1, EVERY, "p@1"), 0)
    [outcome] = recall.judged(RULES.due_after_us + 1, {1: ALL})
    assert outcome.missed == PLANTED
    assert recall.measures().recall_ratio == 0


def test_a_violation_retracted_before_the_due_time_counts_as_missed() -> None:
    recall = Recall(RULES, began_us=0)
    recall.planted(Round(1, EVERY, "p@1"), 0)
    recall.judged(SECOND, {1: ALL})
    [outcome] = recall.judged(RULES.due_after_us, {1: {**ALL, "duplicate": {"duplicate": 0}}})
    assert outcome.missed == ("duplicate",)


@pytest.mark.parametrize(
    ("cell", "on_record", "accused"),
    [
        (RIGHT, {"missing": 1}, {(RIGHT, "missing")}),
        ("duplicate", {"duplicate": 2}, {("duplicate", "duplicate")}),
        ("misplaced", {"misplaced": 0, "unknown_id": 1}, {("misplaced", "unknown_id")}),
        ("missing", {"missing": 1}, set()),
    ],
)
def test_a_violation_that_was_not_planted_is_a_false_alarm(
    cell: str, on_record: dict[str, int], accused: set[tuple[str, str]]
) -> None:
    recall = Recall(RULES, began_us=0)
    recall.planted(Round(1, EVERY, "p@1"), 0)
    # A retracted false alarm still counts.
    recall.judged(SECOND, {1: {cell: on_record}})
    [outcome] = recall.judged(RULES.due_after_us, {1: ALL})
    assert outcome.accused == accused
    assert recall.measures().false_alarms == len(accused)


def test_incomplete_rounds_are_not_judged() -> None:
    recall = Recall(RULES, began_us=0)
    recall.planted(Round(1, EVERY, "p@1"), 0)
    recall.forget()
    assert not recall.judged(10 * RULES.due_after_us, {})
    assert recall.measures().recall_ratio is None
