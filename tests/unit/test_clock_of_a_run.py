"""The clock of a run advances with elapsed time, even if the host's clock is set."""

from __future__ import annotations

import time

import pytest

from validator.stream.generations import _Clock


def test_a_step_of_the_wall_clock_is_not_elapsed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 5_000_000_000)
    clock = _Clock()
    assert clock.now_us() == 1_000_000_000
    for wall_seconds in (4_600, -2_600):
        monkeypatch.setattr(time, "time_ns", lambda wall_seconds=wall_seconds: wall_seconds * 1_000_000_000)
        monkeypatch.setattr(time, "monotonic_ns", lambda: 7_000_000_000)
        assert clock.now_us() == 1_002_000_000
