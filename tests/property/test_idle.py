"""The worlds of an engine with idle partitions need the rule of SEMANTICS 2.31."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.property.history import History
from tests.property.idle import IdleReferee, idle_case
from tests.property.reference import Reference, classify_all
from tests.property.spark_histories import Referee

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]


def lost(history: History, referee: type[Reference]) -> bool:
    """Whether the referee confirms a loss after any step."""
    return any(it.kind == "missing" for judged in classify_all(history, referee) for it in judged.confirmed)


@pytest.mark.full
def test_a_correct_engine_would_be_accused_by_the_event_times_of_its_own_partition_alone() -> None:
    histories = [idle_case(seed, causal=True, steps_most=40).history for seed in range(90)]
    own = [replace(it, timing=replace(it.timing, lateness_scope="partition")) for it in histories]
    assert any(lost(it, Referee) for it in own)
    assert not any(lost(it, IdleReferee) for it in histories)
