"""The mutant states its own errors: its truth equals a count of its output by SEMANTICS section 2."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.engines import truth
from testbed.engines.core import EventId, LateEvent, Operator, Result
from testbed.engines.mutations import OF_A_RESULT, OF_AN_ID, AppliedMutation, EmittedResult, Mutation, Rates, mutate

pytestmark = pytest.mark.unit

Cell = tuple[int, tuple[str, ...]]


def honest(windows: int = 4, pages: int = 6, ids: int = 50) -> list[Result | LateEvent]:
    answers: list[Result | LateEvent] = []
    for w in range(windows):
        for p in range(pages):
            numbers = tuple(range((w * pages + p) * ids + 1, (w * pages + p + 1) * ids + 1))
            answers.append(
                Result(w * 60_000, (w + 1) * 60_000, (f"/{p}",), numbers, tuple(w * 60_000 + i for i in range(ids)))
            )
    answers.append(LateEvent(("/0",), 1_000_000, 5))
    return answers


def of_sessions() -> list[Result | LateEvent]:
    """Session results with one start each and a time per id."""
    cells: list[Result | LateEvent] = []
    for n, answer in enumerate(honest()):
        if isinstance(answer, Result):
            start = 1_000 * n
            cells.append(replace(answer, window_start_ms=start, times_ms=tuple(start + i for i in range(50))))
    return cells


def of_a_passthrough() -> list[Result | LateEvent]:
    return [
        Result(time_ms, time_ms, answer.key, (event_id,), (time_ms,))
        for answer in honest()
        if isinstance(answer, Result)
        for event_id, time_ms in zip(answer.ids, answer.times_ms, strict=True)
    ]


def rates(**shares: float) -> Rates:
    return Rates({Mutation(name): share for name, share in shares.items()}, delay_beyond_seconds=30)


def contributions(of: Result | LateEvent, operator: Operator) -> list[tuple[Cell, EventId]]:
    """The (cell, id) pairs of a record. In a passthrough the cell follows from each event's time."""
    width = 1_000 if operator == "session" else 60_000
    if isinstance(of, LateEvent):
        return [((of.time_ms // width * width, of.key), of.id)]
    if operator == "passthrough":
        return [((t // width * width, of.key), i) for i, t in zip(of.ids, of.times_ms, strict=True)]
    return [((of.window_start_ms, of.key), i) for i in of.ids]


def classified(
    answers: list[Result | LateEvent], emissions: tuple[EmittedResult | LateEvent, ...], operator: Operator = "tumbling"
) -> Counter[str]:
    """SEMANTICS section 2 by brute force, from the engine's answers and the finally visible output."""
    expected: Counter[tuple[Cell, EventId]] = Counter()
    for a in answers:
        expected.update(contributions(a, operator))
    known = {i for _, i in expected}
    p: Counter[tuple[Cell, EventId]] = Counter()
    late: Counter[tuple[Cell, EventId]] = Counter()
    for emission in emissions:
        if isinstance(emission, LateEvent):
            late.update(contributions(emission, operator))
        elif emission.is_withdrawn:
            p.subtract(contributions(emission.result, operator))
        elif not emission.is_aborted:
            p.update(contributions(emission.result, operator))
    classes: Counter[str] = Counter()
    for at in expected.keys() | p.keys() | late.keys():
        e, seen, aside = expected[at], p[at], late[at]
        if e == 0:
            classes["misplaced" if at[1] in known else "unknown_id"] += seen + aside
            continue
        processed = min(e, seen)
        handled = min(e - processed, aside)
        classes["late"] += handled
        classes["missing"] += e - processed - handled
        classes["duplicate"] += max(0, seen + aside - e)
    classes["late"] -= sum(isinstance(a, LateEvent) for a in answers)
    return +classes


def classes_of(applied: tuple[AppliedMutation, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for deed in applied:
        if deed.violation_class is not None:
            counts[deed.violation_class] += deed.count
    return counts


@pytest.mark.parametrize("mutation", [*OF_AN_ID, *OF_A_RESULT])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_the_truth_of_each_mutation_equals_a_count(mutation: Mutation, share: float) -> None:
    answers = honest()
    outcome = mutate(answers, rates(**{mutation: share}), seed=1)
    assert classes_of(outcome.applied) == classified(answers, outcome.emissions)
    assert outcome.applied or share < 0.1


@pytest.mark.parametrize("mutation", [*OF_AN_ID, *OF_A_RESULT])
@pytest.mark.parametrize("operator", ["session", "passthrough"])
def test_the_truth_equals_a_count_if_cells_have_no_common_window(mutation: Mutation, operator: Operator) -> None:
    answers = of_sessions() if operator == "session" else of_a_passthrough()
    outcome = mutate(answers, rates(**{mutation: 0.2}), seed=1, operator=operator, moved_ms=60_000)
    assert classes_of(outcome.applied) == classified(answers, outcome.emissions, operator)
    # The only id of a passthrough's result has no other one to be swapped with.
    assert bool(outcome.applied) == ((mutation, operator) != (Mutation.SWAP, "passthrough"))


def test_an_id_is_mutated_in_each_of_its_sliding_windows_by_itself() -> None:
    answers: list[Result | LateEvent] = [
        Result(start, start + 10, (page,), tuple(range(low, low + 100)), (7,) * 100)
        for start in (0, 5)
        for page, low in (("/a", 0), ("/b", 100))
    ]
    for mutation in (Mutation.DROP, Mutation.DUPLICATE, Mutation.MISPLACE, Mutation.INVENT):
        outcome = mutate(answers, rates(**{mutation: 0.3}), seed=1, operator="sliding")
        assert classes_of(outcome.applied) == classified(answers, outcome.emissions)
        ids = [{d.id for d in outcome.applied if d.window_start_ms == start} for start in (0, 5)]
        assert ids[0] - ids[1], mutation
        assert ids[1] - ids[0], mutation


@pytest.mark.parametrize("seed", range(8))
def test_the_truth_of_all_mutations_together_adds_up(seed: int) -> None:
    answers = honest()
    outcome = mutate(answers, rates(**dict.fromkeys([*OF_AN_ID, *OF_A_RESULT], 0.06)), seed)
    assert classes_of(outcome.applied) == classified(answers, outcome.emissions)


def test_the_truth_counts_each_copy_that_the_producer_sent() -> None:
    answers: list[Result | LateEvent] = [Result(0, 60_000, ("/a",), (1, 1, 2), (1, 1, 2)), LateEvent(("/0",), 9, 5)]
    for mutation in (*OF_AN_ID, *OF_A_RESULT):
        outcome = mutate(answers, rates(**{mutation: 1.0}), seed=1)
        assert classes_of(outcome.applied) == classified(answers, outcome.emissions), mutation
        assert len(set(outcome.applied)) == len(outcome.applied), "equal lines of the truth would be taken for a repeat"


def test_without_mutations_nothing_changes() -> None:
    answers = honest()
    outcome = mutate(answers, rates(), seed=1)
    assert outcome.applied == ()
    assert [e.result if isinstance(e, EmittedResult) else e for e in outcome.emissions] == answers


def test_decisions_depend_on_the_cell_alone() -> None:
    answers, some = honest(), rates(drop=0.1, drop_cell=0.2)
    together = mutate(answers, some, seed=3).applied
    one_by_one = [d for a in answers for d in mutate([a], some, seed=3).applied]
    assert sorted(together, key=repr) == sorted(one_by_one, key=repr)
    assert mutate(answers, some, seed=4).applied != together


def test_mutations_have_their_configured_shares_over_many_results() -> None:
    answers = honest(windows=20)
    assert 0.08 < len(mutate(answers, rates(drop=0.1), seed=1).applied) / (20 * 6 * 50) < 0.12


def test_the_ids_of_a_lone_result_cannot_be_misplaced() -> None:
    assert mutate(honest(1, 1), rates(misplace=1.0), seed=1).applied == ()


def test_text_ids_are_invented_as_text() -> None:
    answers: list[Result | LateEvent] = [Result(0, 1, ("/a",), ("e-1",), (0,))]
    (missing, invented) = mutate(answers, rates(alter=1.0), seed=1).applied
    assert missing.id == "e-1"
    assert isinstance(invented.id, str)


def test_a_delay_beyond_missing_after_is_a_transient_loss() -> None:
    applied = mutate(honest(1, 1, 1), rates(delay_beyond=1.0), seed=1).applied
    assert [(d.violation_class, d.transient_class) for d in applied] == [(None, "missing")]


def test_a_truth_file_is_read_back_without_repeats_and_torn_lines(tmp_path: Path) -> None:
    applied = mutate(honest(), rates(drop=0.1, alter=0.1, delay_beyond=0.1), seed=1).applied
    path = tmp_path / "truth-0.jsonl"
    with truth.TruthWriter(path) as writer:
        writer.write(applied[:10])
    with path.open("ab") as file:
        file.write(b'{"mutation":"dr')
    with truth.TruthWriter(path) as writer:
        writer.write(applied)
    assert list(truth.read(tmp_path)) == list(applied)
    assert truth.summarise(path) == dict(classes_of(applied))
    assert truth.summarise_transient(path)["missing"] == sum(d.transient_class is not None for d in applied)
    with truth.TruthWriter(path) as writer:
        writer.replace_all(applied[3:])
        writer.write(applied[:2])
    assert list(truth.read(tmp_path)) == [*applied[3:], *applied[:2]]
