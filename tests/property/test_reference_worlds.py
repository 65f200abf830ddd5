"""The rules on random worlds: a correct engine is never accused, a broken one is.

"An engine that keeps its guarantee and answers within `missing_after` of a cell's closing must never cause a confirmed
violation, at any order of arrival, batch boundary, load or restart" (SEMANTICS section 2). The engine of `engine.py`
runs on the wall clock and has no batches. The reference reads its world in arbitrary batches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.clock import Clock
from tests.property.history import History, InputEvent, flaws
from tests.property.packing import namespace_of, pack_histories, packed_cells, packed_counts
from tests.property.reference import Judgement, Reference, classify_all, conclude
from tests.property.strategies import PLAIN, PROMPT, causal_correct_history, compacted, drawn, faulty_history
from tests.worlds import IS_STANDING, seeds

pytestmark = pytest.mark.property

WORLDS = 2000
"""Number of random worlds. A world is generated from its seed."""
KNOWN = {
    "processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "unresolved", "pending", "overdue",
    "blocked", "unconsumed", "dropped_late", "missing", "out_of_scope", "expected",
}  # fmt: skip


def holds_together(judgement: Judgement) -> bool:
    """Whether a judgement is consistent: the classes of expected contributions add up, and violations have counts."""
    totals = judgement.totals
    assert set(totals) <= KNOWN
    handled = totals["processed"] + totals["late"] + totals["rejected"]
    outstanding = sum(
        totals[name] for name in ("pending", "overdue", "blocked", "unconsumed", "dropped_late", "missing")
    )
    assert handled + outstanding == totals["expected"]
    assert not judgement.confirmed & judgement.suspected
    return judgement.retracted == judgement.ever_confirmed - judgement.confirmed


@pytest.mark.timeout(600)
def test_a_correct_engine_is_never_accused_after_any_step() -> None:
    seen: Counter[str] = Counter()
    for seed in seeds(WORLDS):
        history = causal_correct_history(Random(seed))
        assert not flaws(history), seed
        for judgement in classify_all(history):
            seen.update(judgement.totals.keys())
            assert holds_together(judgement), seed
            assert not judgement.confirmed, f"seed {seed}, step {judgement.step}: {sorted(judgement.confirmed)}"
    # A check on the worlds: they must lead to every class that is not a violation.
    if IS_STANDING:
        assert {"late", "rejected", "overdue", "blocked", "dropped_late", "unresolved", "out_of_scope"} <= set(seen)


@pytest.mark.full  # tests the reference, not the product
@pytest.mark.timeout(600)
@pytest.mark.parametrize("forgotten", ["duplicate", "misplaced"])
def test_a_rule_without_hidden_copies_accuses_a_correct_engine(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    explicable = Reference.explicable
    monkeypatch.setattr(Reference, "explicable", lambda self: explicable(self) - {forgotten})
    histories = (causal_correct_history(Random(seed)) for seed in range(500))
    assert any(judgement.confirmed for history in histories for judgement in classify_all(history))


@pytest.mark.full  # tests the reference, not the product
@pytest.mark.timeout(600)
def test_a_rule_without_hidden_results_accuses_a_correct_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reference, "hidden_answers", lambda self: 0)
    histories = (causal_correct_history(Random(seed)) for seed in range(500))
    assert any(judgement.confirmed for history in histories for judgement in classify_all(history))


@pytest.mark.full  # tests the reference, not the product
@pytest.mark.timeout(600)
@pytest.mark.parametrize("forgotten", ["hidden_before", "ahead_before"])
def test_a_rule_without_hidden_watermark_moves_accuses_a_correct_engine(
    forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, forgotten, lambda self, place, offset: None)
    # A false alarm is rare: about one world in 1,000 without one of the rules, one in 400 without the other.
    histories = (causal_correct_history(Random(seed)) for seed in range(1000, 2000))
    assert any(judgement.confirmed for history in histories for judgement in classify_all(history))


@pytest.mark.full  # tests the reference, not the product
@pytest.mark.timeout(600)
@pytest.mark.parametrize("forgets", [False, True])
def test_only_a_rule_without_compaction_accuses_a_correct_engine(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if forgets:
        monkeypatch.setattr(Clock, "vanished", lambda self, step, place: 0)
    histories = (compacted(causal_correct_history(Random(seed)), Random(seed)) for seed in range(300))
    accused = any(judgement.confirmed for history in histories for judgement in classify_all(history))
    assert accused == forgets


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_result_one_instant_too_late_is_found() -> None:
    """Absence is proven as early as possible: if `missing_after` is shorter by one, some losses are confirmed."""
    accused = 0
    for seed in range(15):
        history = causal_correct_history(Random(seed), PROMPT)
        assert not conclude(history).confirmed, seed
        strict = replace(history.timing, missing_after_us=history.timing.missing_after_us - 1)
        accused += bool(classify_all(replace(history, timing=strict))[-1].ever_confirmed)
    assert accused >= 3


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn(causal_correct_history))
def test_a_correct_engine_is_never_accused_in_generated_histories(history: History) -> None:
    assert not classify_all(history)[-1].ever_confirmed


@pytest.mark.timeout(600)
def test_each_kind_of_broken_engine_is_found() -> None:
    found: Counter[str] = Counter()
    for seed in seeds(WORLDS // 4):
        history = faulty_history(Random(seed))
        assert not flaws(history), seed
        for judgement in classify_all(history):
            assert holds_together(judgement), seed
        found.update({violation.kind for violation in judgement.confirmed})
    if IS_STANDING:
        assert set(found) == {"missing", "duplicate", "misplaced", "unknown_id", "undecodable"}


@pytest.mark.timeout(600)
def test_the_counts_of_a_run_read_to_its_end_do_not_depend_on_the_batches() -> None:
    """ "Another batch size or another order of arrival give the same final class counts": one batch, or many."""
    for seed in seeds(WORLDS // 4):
        history = faulty_history(Random(seed), PLAIN)
        last = history.steps[-1]
        if any(at.next_offset < at.high_watermark for at in last.partitions):
            continue
        timing = replace(history.timing, max_ahead_us=1 << 40)
        records = tuple(record for step in history.steps for record in step.records)
        first = {at.place: at for at in history.steps[0].partitions}
        states = tuple(replace(at, start_offset=first[at.place].start_offset) for at in last.partitions)
        once = replace(history, timing=timing, final="once")
        whole = replace(once, steps=(replace(last, records=records, partitions=states),))
        assert conclude(once).contributions == conclude(whole).contributions, seed


def test_packing_keeps_every_record_under_its_namespace() -> None:
    histories = [faulty_history(Random(seed)) for seed in range(20)]
    pack = pack_histories(histories)
    assert [row.namespace for row in pack.timings] == [namespace_of(number) for number in range(20)]
    assert len(pack.steps) == max(len(history.steps) for history in histories)
    for number, history in enumerate(histories):
        name = namespace_of(number)
        for index, step in enumerate(history.steps):
            rows = [row for row in pack.steps[index].inputs if row.namespace == name]
            events = [record for record in step.records if isinstance(record, InputEvent)]
            assert [row.id for row in rows] == [name + event.id for event in events]
            assert [row.lookup_us for row in pack.steps[index].clocks if row.namespace == name] == [step.lookup_us]
        judgement = conclude(history)
        assert sum(row.times for row in packed_counts(number, judgement)) == sum(
            found.total() for ids in judgement.contributions.values() for found in ids.values()
        )
        assert all(key.startswith(name) for _, key in packed_cells(number, judgement))
    for before, after in pairwise(pack.steps):
        assert {row.namespace for row in after.clocks} <= {row.namespace for row in before.clocks}
