"""The windowed join's reference: hand-written cases for "The rule" in docs/oracles/windowed_join.md, and random worlds
with correct and broken engines.

In the hand-written cases windows are [0, 10), [10, 20), ...; overdue after 5 and missing after 10. An event at 10
closes window 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.history import Cell, Ending, History, InputEvent, flaws
from tests.property.join_reference import REFERENCES, RIGHT, Join, JoinReference
from tests.property.join_worlds import correct_join_history, faulty_join_history
from tests.property.reference import Judgement, Violation
from tests.property.strategies import PLAIN
from tests.property.tiny import CLICKS, COUNTS, LATE, REJECTED, TIMING, UPDATES, Story, event, late, rejected, result
from tests.worlds import IS_STANDING, seeds

pytestmark = pytest.mark.property

WORLDS = 250
PLACES = (CLICKS, UPDATES, COUNTS, LATE, REJECTED)
DROP = replace(TIMING, late_policy="drop")
JOINS: tuple[Join, ...] = ("inner", "left", "semi")


def update(id_: str, time_us: int) -> InputEvent:
    """An event on `updates`."""
    return event(f"{RIGHT}/{id_}", time_us)


def judged(story: Story, join: Join = "inner", final: Ending = "none") -> Judgement:
    return REFERENCES[join](story.history(final), len(story.steps) - 1, final).judge()


def counts(story: Story, id_: str, join: Join = "inner", final: Ending = "none") -> dict[str, int]:
    return dict(judged(story, join, final).contributions[0, "k"][id_])


def confirmed(story: Story, join: Join = "inner", final: Ending = "none") -> set[tuple[str, str]]:
    return {(found.kind, found.id) for found in judged(story, join, final).confirmed}


def closing() -> tuple[InputEvent, InputEvent]:
    """Events that close window 0 on both inputs."""
    return event("end", 15), update("end", 15)


def story(*records: InputEvent, **of: object) -> Story:
    return Story(of.get("timing", TIMING), PLACES).step(1, *records).step(2, *closing())  # type: ignore[arg-type]


# What a cell owes


def test_with_both_sides_each_id_of_both_is_owed_once() -> None:
    shown = story(event("1", 3), event("2", 4), update("1", 5)).step(30)
    assert (
        confirmed(shown) == {("missing", "1"), ("missing", "2"), ("missing", "updates/1")} == confirmed(shown, "left")
    )
    shown.step(31, result(0, "1", "2", "updates/1"))
    assert not confirmed(shown)
    assert judged(shown).results == {"correct": 1}


def test_a_left_event_alone_is_owed_by_a_left_join_only() -> None:
    shown = story(event("1", 3)).step(30)
    assert counts(shown, "1") == {}
    assert counts(shown, "1", "left") == {"missing": 1}


def test_a_right_event_alone_is_owed_by_neither() -> None:
    shown = story(update("1", 3)).step(30)
    assert counts(shown, "updates/1") == counts(shown, "updates/1", "left") == {}


def test_a_semi_join_owes_left_events_with_a_partner_and_names_no_other() -> None:
    shown = story(event("1", 3), event("2", 4), update("1", 5)).step(30)
    assert confirmed(shown, "semi") == {("missing", "1"), ("missing", "2")}
    assert counts(shown, "updates/1", "semi") == {}
    shown.step(31, result(0, "1", "2"))
    assert not confirmed(shown, "semi")
    alone = story(event("1", 3)).step(30, result(0, "1")).step(31)
    assert confirmed(alone, "semi") == {("misplaced", "1")}


def test_the_same_number_on_both_sides_is_two_ids() -> None:
    shown = story(event("1", 3), update("1", 3)).step(30, result(0, "1"))
    assert (counts(shown, "1"), counts(shown, "updates/1")) == ({"processed": 1}, {"missing": 1})


def test_an_id_that_was_sent_twice_counts_once() -> None:
    shown = story(event("1", 3), event("1", 3), update("1", 3)).step(30, result(0, "1", "updates/1"))
    assert counts(shown, "1") == {"processed": 1}
    shown.step(31, result(0, "1"))
    assert counts(shown.step(32), "1") == {"processed": 1, "duplicate": 1}


def test_a_repeat_that_was_set_aside_is_not_a_duplicate() -> None:
    shown = story(event("1", 3), event("1", 3), update("1", 3)).step(30, result(0, "1", "updates/1"), late("1", 3))
    assert counts(shown.step(31), "1") == {"processed": 1, "late": 1}


def test_an_id_without_a_partner_is_misplaced() -> None:
    shown = story(event("1", 3)).step(30, result(0, "1")).step(31)
    assert confirmed(shown) == {("misplaced", "1")}
    assert confirmed(shown, "left") == set()


def test_an_event_is_not_misplaced_while_its_partner_may_be_unread() -> None:
    shown = story(event("1", 3)).step(30, result(0, "1"), unread={UPDATES: 1}).step(31, unread={UPDATES: 1})
    assert counts(shown, "1") == {"unresolved": 1}


# Lateness


def late_update(timing: object = TIMING) -> Story:
    """A click in window 0, and an update for it that is read after an update at 15."""
    return Story(timing, PLACES).step(1, event("1", 3), *closing()).step(2, update("1", 5))  # type: ignore[arg-type]


def test_a_late_event_without_a_trace_does_not_excuse_its_partner() -> None:
    for timing in (TIMING, DROP):
        shown = late_update(timing).step(30)
        assert counts(shown, "1") == {}
        assert counts(shown, "updates/1") == ({"missing": 1} if timing is TIMING else {"dropped_late": 1})


def test_a_late_event_in_a_result_excuses_its_partner() -> None:
    shown = late_update().step(30, result(0, "updates/1")).step(31)
    assert confirmed(shown) == {("missing", "1")}
    assert not confirmed(shown.step(32, result(0, "1")))


def test_a_rejected_event_is_handled_and_excuses_nothing() -> None:
    shown = story(event("1", 3), replace(update("1", 5))).step(30)
    assert confirmed(shown) == {("missing", "1"), ("missing", "updates/1")}
    shown.step(31, rejected("updates/1", 5))
    assert (counts(shown, "1"), counts(shown, "updates/1")) == ({}, {"rejected": 1})
    assert not confirmed(shown), "both were retracted"


def test_an_event_without_a_partner_on_a_late_topic_is_late() -> None:
    shown = story(update("1", 5)).step(3, late("updates/1", 5)).step(4)
    assert counts(shown, "updates/1") == counts(shown, "updates/1", "left") == {"late": 1}


def test_with_another_reason_the_side_stays_owed() -> None:
    shown = story(event("1", 3), update("1", 5), update("2", 5)).step(30, late("updates/1", 5))
    assert confirmed(shown) == {("missing", "1"), ("missing", "updates/2")}


# Unconsumed events and unreadable records


def test_an_event_whose_partner_the_engine_has_not_read_is_unconsumed() -> None:
    shown = story(event("1", 3), update("1", 5))
    shown.step(30, committed={CLICKS: 2, UPDATES: 0})
    assert counts(shown, "1") == counts(shown, "updates/1") == {"unconsumed": 1}
    shown.step(31, committed={CLICKS: 2, UPDATES: 2})
    assert confirmed(shown) == {("missing", "1"), ("missing", "updates/1")}


def test_a_late_partner_is_a_reason_until_the_engine_has_read_it() -> None:
    shown = late_update(DROP).step(30, committed={CLICKS: 2, UPDATES: 1})
    assert counts(shown, "1") == counts(shown, "updates/1") == {"unconsumed": 1}
    shown.step(31, committed={CLICKS: 2, UPDATES: 2})
    assert (counts(shown, "1"), counts(shown, "updates/1")) == ({}, {"dropped_late": 1})


def test_an_excuse_that_may_be_among_hidden_results_does_not_count() -> None:
    shown = story(event("1", 3), update("1", 5)).step(30, expired={LATE: 1}).step(50)
    assert counts(shown, "1") == {}
    assert not confirmed(shown)


def test_an_undecodable_input_may_be_the_partner() -> None:
    shown = story(event("1", 3)).step(30, result(0, "1"), expired={UPDATES: 1}).step(31)
    found = judged(shown)
    assert not found.confirmed
    assert found.suspected == {Violation("misplaced", 0, "k", "1")}


def test_a_hidden_event_of_a_join_explains_excess_in_one_cell() -> None:
    shown = story(event("1", 3), update("1", 5))
    shown.step(30, result(0, "1", "1", "updates/1"), expired={UPDATES: 1}).step(31)
    assert judged(shown).suspected == {Violation("duplicate", 0, "k", "1")}
    shown.step(32, event("2", 13), update("2", 15)).step(40, result(10, "2", "2", "updates/2")).step(41)
    assert confirmed(shown) == {("duplicate", "1"), ("duplicate", "2")}


# Random worlds


def each(history: History, join: Join) -> Iterator[Judgement]:
    for number in range(len(history.steps)):
        yield REFERENCES[join](history, number, "none").judge()
    if history.final != "none":
        yield REFERENCES[join](history, len(history.steps) - 1, history.final).judge()


def adds_up(judgement: Judgement) -> bool:
    totals = judgement.totals
    handled = ("processed", "late", "rejected")
    outstanding = ("pending", "overdue", "blocked", "unconsumed", "dropped_late", "missing")
    return sum(totals[name] for name in (*handled, *outstanding)) == totals["expected"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("join", JOINS)
def test_a_correct_join_is_never_accused_after_any_step(join: Join) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds(WORLDS):
        history = correct_join_history(Random(seed), join)
        assert not flaws(history), seed
        for judgement in each(history, join):
            seen.update(judgement.totals.keys())
            assert adds_up(judgement), seed
            assert not judgement.confirmed, f"seed {seed}, step {judgement.step}: {sorted(judgement.confirmed)}"
    if IS_STANDING:
        assert {"late", "rejected", "overdue", "blocked", "dropped_late", "unresolved"} <= set(seen)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rng=st.randoms(use_true_random=False), join=st.sampled_from(JOINS))
def test_a_correct_join_is_never_accused_in_generated_histories(rng: Random, join: Join) -> None:
    for judgement in each(correct_join_history(rng, join), join):
        assert not judgement.confirmed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("join", JOINS)
def test_each_kind_of_broken_join_is_found(join: Join) -> None:
    found: Counter[str] = Counter()
    for seed in seeds(WORLDS // 2):
        history = faulty_join_history(Random(seed), join, PLAIN)
        *_, last = each(history, join)
        assert adds_up(last), seed
        found.update({violation.kind for violation in last.confirmed})
    if IS_STANDING:
        assert set(found) >= {"missing", "duplicate", "misplaced", "unknown_id"}


def _late_is_sure(self: JoinReference, cell: Cell, copy: InputEvent, *, waiting: bool) -> bool:
    return waiting if self.is_unconsumed(copy) else self.clock.is_provable(copy, None)


def _doubtful_is_sure(self: JoinReference, cell: Cell, copy: InputEvent, *, waiting: bool) -> bool:
    return not self.clock.is_late(copy, cell) and _late_is_sure(self, cell, copy, waiting=waiting)


def _aside_is_reason(self: JoinReference, cell: Cell, id_: str, *, waiting: bool) -> bool:
    return any(self.is_sure(cell, copy, waiting=waiting) for copy in self.copies[cell, id_])


@pytest.mark.full  # tests the reference, not the product
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("part", "forgetful"),
    [("is_sure", _late_is_sure), ("is_sure", _doubtful_is_sure), ("is_reason", _aside_is_reason)],
)
def test_a_rule_without_one_of_its_parts_accuses_a_correct_join(
    part: str, forgetful: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any one of these parts of the rules, the reference accuses some correct engine."""
    monkeypatch.setattr(REFERENCES["inner"], part, forgetful)
    histories = (correct_join_history(Random(seed), "inner") for seed in range(700))
    assert any(judgement.confirmed for history in histories for judgement in each(history, "inner"))
