"""Retention of sessions: an event or result for a retired session is out of scope, wherever in the session it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import EPOCH_US, OF_SESSIONS, RETENTION_US, START_US, TIME_RULES, Run, clock, event
from validator.core.judging import Judging
from validator.state.known_facts import KnownFacts
from validator.stream.recovery import recover


def test_an_event_that_would_have_extended_a_retired_session_is_out_of_scope(tmp_path: Path) -> None:
    """The session is long, and the event is near its end, far from its start."""
    run = Run(tmp_path / "state")
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), OF_SESSIONS)
    events = [event(number, number * MINUTE_US, START_US, 0) for number in range(6)]
    run.batch(START_US, *events, fact("output", [0, 1, 2, 3, 4, 5], batch=0, lookup_us=START_US))
    assert run.judging.sums.cells_seen == 1
    later = START_US + RETENTION_US + 2 * EPOCH_US
    run.batch(later, event(9, 100 * MINUTE_US, later, 1))
    run.retire()
    assert run.retired.sums.cells_seen == 1
    for step in (5, 50):
        at = run.progress.lookup_us + step
        now = replace(clock(at), retired=tuple((r.at_us, r.horizon_us) for r in run.progress.retirements))
        batch_facts = facts(event(6, 6 * MINUTE_US, at, 9), fact("output", list(range(7)), batch=9, lookup_us=at))
        run.judging.absorb(batch_facts if step == 5 else None, now, {})
    assert run.judging.sums.counts["missing"] == 1, "the event of the other session"
    assert run.judging.sums.counts["out_of_scope"] == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_an_event_that_joins_a_session_in_memory_with_a_retired_one_puts_it_out_of_scope(
    restarts: bool, tmp_path: Path
) -> None:
    """The engine answers both sessions with one result, which is for the retired session."""
    run = Run(tmp_path / "state")
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), OF_SESSIONS)
    retired = [event(number, number * MINUTE_US, START_US, 0) for number in range(3)]
    stays = [event(number, number * MINUTE_US, START_US, 0) for number in (4, 5)]
    answer = fact("output", [0, 1, 2], batch=0, lookup_us=START_US)
    run.batch(START_US, *retired, *stays, answer)
    later = START_US + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("output", [4, 5], batch=1, lookup_us=later, window_us=4 * MINUTE_US))
    run.retire()
    assert (run.retired.sums.cells_seen, run.judging.absorb(None, clock(later), {}).counts["missing"]) == (1, 0)
    at = later + 5
    run.batch(
        at,
        event(3, 3 * MINUTE_US, at, run.progress.batch + 1),
        fact("output", list(range(6)), batch=run.progress.batch + 1, lookup_us=at),
    )
    if restarts:
        run.judging = recover(run.tables, TIME_RULES, OF_SESSIONS.oracle).judging(
            KnownFacts(run.tables, first_batch=run.progress.batch + 1), OF_SESSIONS
        )
    now = replace(clock(at + 50), retired=((later, 2 * MINUTE_US + 1),))
    assert run.judging.absorb(None, now, {}).counts["missing"] == 0
    assert run.judging.sums.counts["out_of_scope"] == 3


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("moves", [False, True])
def test_an_event_that_moves_the_begin_of_a_session_near_a_retired_one_puts_it_out_of_scope(
    moves: bool, restarts: bool, tmp_path: Path
) -> None:
    """The begin moves within its slot. The engine joins both sessions, and names its result by the retired one."""
    run = Run(tmp_path / "state")
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), OF_SESSIONS)
    retired = [event(0, MINUTE_US // 2, START_US, 0), fact("output", [0], batch=0, lookup_us=START_US)]
    run.batch(START_US, *retired, event(1, 2 * MINUTE_US - 9, START_US, 0))
    later = START_US + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("output", [1], batch=1, lookup_us=later, window_us=MINUTE_US))
    run.retire()
    assert run.retired.sums.cells_seen == 1
    at, batch = later + 5, run.progress.batch + 1
    time_us = MINUTE_US + MINUTE_US // 4 if moves else 2 * MINUTE_US - 5
    run.batch(at, event(2, time_us, at, batch), fact("output", [2], batch=batch, lookup_us=at))
    if restarts:
        run.judging = recover(run.tables, TIME_RULES, OF_SESSIONS.oracle).judging(
            KnownFacts(run.tables, first_batch=batch + 1), OF_SESSIONS
        )
    counts = run.judging.absorb(None, replace(clock(at + 50), retired=((later, 1),)), {}).counts
    assert (counts["missing"], counts["out_of_scope"]) == ((0, 2) if moves else (1, 0))
