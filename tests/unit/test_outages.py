"""Time in which the brokers did not respond proves no loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.judging import Judging
from validator.model.frontier import Frontier, Outages, counted_back_us
from validator.model.progress import IngestProgress
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.brokers import BrokersUnreachable
from validator.stream.commit_rows import outages_by, topic_marks
from validator.stream.outage import OutageNote, is_outage


@pytest.mark.parametrize(
    ("at_us", "length_us", "outages", "expected"),
    [
        (100, 30, (), 70),
        (100, 30, ((40, 60),), 70),
        (100, 40, ((40, 60),), 60),
        (100, 41, ((40, 60),), 39),
        (60, 30, ((40, 60),), 10),
        (50, 30, ((40, 60),), 10),
        (40, 30, ((40, 60),), 10),
        (30, 30, ((40, 60),), 0),
        (100, 50, ((20, 30), (40, 60)), 30),
        (100, 55, ((20, 30), (40, 60)), 15),
        (100, 0, ((90, 100),), 90),
    ],
)
def test_elapsed_time_excludes_outages(at_us: int, length_us: int, outages: Outages, expected: int) -> None:
    assert counted_back_us(at_us, length_us, outages) == expected


def test_the_due_instant_never_falls_when_an_outage_becomes_known() -> None:
    outages: Outages = ()
    before = -1_000
    for at_us in range(0, 2_000, 7):
        if at_us % 5 == 0 and at_us:
            outages = (*outages, (at_us - 7, at_us))
        now = counted_back_us(at_us, 50, outages)
        assert now >= before
        away = {instant for began, since in outages for instant in range(began, since)}
        assert len(set(range(now, at_us)) - away) == 50
        assert now + 1 in away or len(set(range(now + 1, at_us)) - away) == 49
        before = now


def test_more_outages_than_are_kept_become_fewer_and_longer() -> None:
    progress = read_through(0).with_outages(*[(10 * n, 10 * n + 5) for n in range(100)])
    assert len(progress.outages) == 64
    assert progress.outages[0] == (0, 365)
    assert progress.outages[-1] == (990, 995)
    assert topic_marks(replace(progress, outages=progress.outages[:-1]), progress) == ["outage 990 995"]
    assert outages_by(["rest_all", "outage 990 995", "replaced click/0"]) == [(990, 995)]


def test_an_outage_does_not_make_a_partition_idle() -> None:
    quiet = Frontier("input", "click", 0, "id", 0, 9, 0, 9, 9, last_data_us=40, read_through_us=100)
    assert quiet.idle(30)
    assert not quiet.idle(30, ((45, 90),))
    assert quiet.idle(15, ((45, 90),))


@pytest.mark.parametrize(
    ("answers_for_us", "state"), [(9, "pending"), (10, "overdue"), (29, "overdue"), (30, "missing")]
)
def test_a_loss_is_proven_by_time_in_which_the_brokers_answered(
    answers_for_us: int, state: str, tmp_path: Path
) -> None:
    """It had been due for 10 us when the brokers failed for 1,000 us. It is overdue after 20 us and missing after 40
    us."""
    rules = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=20, missing_after_us=40)
    judging = Judging(KnownFacts(StateTables(tmp_path), first_batch=0), rules)
    judging.step(facts(fact("input", [1], batch=0, lookup_us=0)), read_through(0), Suspected())
    judging.step(None, read_through(10), Suspected())
    effects = judging.step(None, away(1_010 + answers_for_us), Suspected())
    counts = judging.sums.counts
    assert {name for name in ("pending", "overdue", "missing") if counts[name]} == {state}
    assert [(row["state"], row["provable_us"]) for row in effects.violations] == (
        [("confirmed", 1_040)] if state == "missing" else []
    )


def away(at_us: int) -> IngestProgress:
    return read_through(at_us).with_outages((10, 1_010))


def test_an_outage_is_known_to_the_next_process(tmp_path: Path) -> None:
    first = OutageNote(tmp_path)
    assert not first.noted
    first.note()
    first.note()
    second = OutageNote(tmp_path)
    assert second.noted
    second.clear()
    assert not OutageNote(tmp_path).noted
    assert list(tmp_path.iterdir()) == []


def test_only_errors_of_unreachable_brokers_are_an_outage() -> None:
    timed_out = RuntimeError("TimeoutException: Timed out waiting for a node assignment")
    assert is_outage(BrokersUnreachable("no answer"))
    assert is_outage(timed_out)
    assert not is_outage(RuntimeError("a column has another type"))
