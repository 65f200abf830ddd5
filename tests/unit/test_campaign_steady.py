"""The control phase ends when its newest part gives the recovery detector a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest

from testbed.campaign.steady import OutputWatch
from validator.measure.recovery import Detector

DETECTOR = Detector(moving_seconds=8)


def watched(counts: Sequence[int | None], every: float = 1.0) -> OutputWatch:
    """A watch that has seen ``counts`` new records, one after another; None: the broker did not answer."""
    totals = iter([None if new is None else total for new, total in
                   zip(counts, accumulate(new or 0 for new in counts), strict=True)])  # fmt: skip
    times = iter(i * every for i in range(len(counts)))
    watch = OutputWatch(lambda: next(totals), lambda: next(times))
    for _ in counts:
        watch.look()
    return watch


@pytest.mark.parametrize(
    ("counts", "steady"),
    [
        ([6] * 31, True),
        ([0, 18, 0] * 11, True),
        ([6] * 25, False),
        ([0] * 31, False),
        ([0, 1, 2, 0, 0, 40, 3] + [6] * 31, True),
        ([6] * 20 + [0] * 11, False),
        (list(range(40)), False),
        ([6, None, 12] * 11, True),
    ],
)
def test_only_a_whole_control_phase_with_one_rate_is_steady(counts: list[int | None], steady: bool) -> None:
    assert watched(counts).is_steady(30, DETECTOR) == steady


def test_the_records_are_counted_once_a_second() -> None:
    watch = watched([6] * 11, every=0.5)
    assert watch.is_steady(5, Detector(moving_seconds=1))
    assert not watch.is_steady(6, Detector(moving_seconds=1))
