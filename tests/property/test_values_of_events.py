"""Results that repeat two fields of their events, beside a correct engine that sets events aside, loses or repeats some
(SEMANTICS 2.29, 2.36, 4.28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

import pytest

from tests.property import history_facts
from tests.property.history import History, Record
from tests.property.repeated import PlacedTiming, RepeatedCase, Tuple
from tests.property.spark_core import Run, rows_of
from tests.property.spark_histories import stretched
from tests.property.tiny import CLICKS, COUNTS, LATE, TIMING, Story, event, late, result
from tests.property.valued import Place
from tests.unit.memory_tables import MemoryTables

pytestmark = pytest.mark.property

A: Final = ("1", "new")
B: Final = ("2", "paid")
TOPICS: Final = {"counts": "to-output", "late": "to-late"}
Sent = Sequence[tuple[Record, Tuple]]


def judged(*batches: Sent, expired: int = 0) -> tuple[Run, Mapping[str, Any]]:
    """The run, and the row of the first bucket, once what was not answered is missing. ``expired``: results that
    expired unread before those of the second batch."""
    story, tuples = Story(TIMING, (CLICKS, COUNTS, LATE)), list[tuple[Place, Tuple]]()
    for number, batch in enumerate([*batches, (), (), ()]):
        gone = {COUNTS: expired} if number == 1 else {}
        at = {place: offset + gone.get(place, 0) for place, offset in story.next.items()}
        for record, given in batch:
            place = (record.topic, record.partition)
            tuples.append(((TOPICS.get(record.topic, record.topic), record.partition, at[place]), given))
            at[place] += 1
        story.step(10 + 20 * number, *(record for record, _ in batch), expired=gone)
    steps = tuple(
        replace(
            step,
            records=tuple(replace(one, topic=TOPICS.get(one.topic, one.topic)) for one in step.records),
            partitions=tuple(replace(one, topic=TOPICS.get(one.topic, one.topic)) for one in step.partitions),
        )
        for step in story.steps
    )
    timing = PlacedTiming(**{one.name: getattr(TIMING, one.name) for one in fields(TIMING)})
    history = stretched(History(timing, steps, "none"))
    case = RepeatedCase(5, True, history, tuple(tuples))
    [facts] = history_facts.facts([case])
    run = Run(case, facts, MemoryTables())
    for number in range(len(history.steps)):
        run.take(number)
    return run, min(rows_of(run.judging), key=lambda row: int(row["window_start_us"]))


SENT: Final = [(event("x", 3), A), (event("x", 5), B), (event("n", 25), A)]


@pytest.mark.parametrize("aside", [A, ("1", None), (None, "new"), (None, None)])
def test_a_set_aside_record_may_lack_any_field(aside: Tuple) -> None:
    _, row = judged(SENT, [(late("x", 3), aside), (result(0, "x"), B)])
    assert (row["processed"], row["late"], row["correct"], row["wrong_value"]) == (1, 1, 1, 0)
    _, row = judged(SENT, [(late("x", 3), aside), (result(0, "x"), A)])
    assert row["wrong_value"] == (aside[0] is not None), "the other event was set aside"


def test_a_repeat_beside_an_answer_that_expired_proves_no_loss() -> None:
    answers = [(result(0, "x"), A), (result(0, "x"), A)]
    _, row = judged(SENT, answers, expired=1)
    assert (row["processed"], row["correct"], row["wrong_value"]) == (2, 2, 0)
    _, row = judged(SENT, answers)
    assert row["wrong_value"] == 2


def test_an_even_loss_of_a_tenth_is_no_doubt_about_the_configuration() -> None:
    events = [(event("x", number % 10), A) for number in range(10)]
    run, row = judged([*events, (event("n", 25), A)], [(result(0, "x"), A)] * 9)
    assert (row["missing"], row["incomplete"]) == (1, 9)
    assert run.judging.sums.fit is None
