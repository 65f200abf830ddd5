"""The contributions of a violation confirmed within the last hour and day, after growth and retractions."""

from __future__ import annotations

from collections import Counter
from random import Random

from validator.measure.expected import MINUTE_US
from validator.measure.recent import DAY_MINUTES, RecentlyConfirmed, oldest_minute

DAY_US = DAY_MINUTES * MINUTE_US


def test_a_violation_keeps_its_last_confirmations() -> None:
    recent = RecentlyConfirmed()
    recent.apply_change("v", "missing", 10 * MINUTE_US, 2, 2)
    recent.apply_change("w", "missing", 10 * MINUTE_US, 1, 1)
    recent.apply_change("v", "missing", 80 * MINUTE_US, 3, 5)
    recent.apply_change("v", "missing", 81 * MINUTE_US, 0, 4)
    assert recent.by_minute == {10: {"missing": 2}, 80: {"missing": 3}}
    recent.apply_change("v", "missing", 82 * MINUTE_US, 0, 1)
    assert recent.by_minute == {10: {"missing": 1}, 80: {"missing": 1}}
    assert recent.since(60, 82 * MINUTE_US) == {"missing": 1}
    recent.apply_change("v", "missing", 83 * MINUTE_US, 0, 0)
    assert recent.by_minute == {10: {"missing": 1}}


def test_a_confirmation_older_than_a_day_is_dropped_and_its_retraction_hides_nothing() -> None:
    recent = RecentlyConfirmed()
    recent.apply_change("v", "missing", 0, 2, 2)
    recent.apply_change("gone", "missing", 0, 1, 1)
    recent.apply_change("v", "missing", DAY_US, 1, 3)
    recent.forget(DAY_US + MINUTE_US)
    assert recent.by_minute == {DAY_MINUTES: {"missing": 1}}
    assert recent._minutes.keys() == {"v"}
    assert recent._violations.keys() == {DAY_MINUTES}
    recent.apply_change("v", "missing", DAY_US + 2 * MINUTE_US, 0, 1)
    recent.apply_change("gone", "missing", DAY_US + 2 * MINUTE_US, 0, 0)
    assert recent.by_minute == {DAY_MINUTES: {"missing": 1}}


def test_random_changes_keep_the_last_confirmations_also_after_a_restart() -> None:
    rng = Random(5)
    recent = RecentlyConfirmed()
    confirmed: dict[str, list[int]] = {}  # the minute of each confirmed contribution
    pushed: list[tuple[str, int]] = []
    now_us = 0
    for _ in range(4000):
        now_us += rng.randrange(3) * MINUTE_US
        name = rng.choice("abcdefgh")
        stand = confirmed.setdefault(name, [])
        more, less = (rng.randrange(3), 0) if rng.random() < 0.6 else (0, rng.randrange(len(stand) + 1))
        stand[:] = (stand + [now_us // MINUTE_US] * more)[less:]
        pushed += [(name, now_us)] * more
        recent.apply_change(name, "missing", now_us, more, len(stand))
        recent.forget(now_us)
        oldest = oldest_minute(now_us)
        known = Counter(minute for minutes in confirmed.values() for minute in minutes if minute >= oldest)
        assert recent.by_minute == {minute: {"missing": count} for minute, count in known.items()}
    again = RecentlyConfirmed()
    for name, at_us in pushed:
        if at_us // MINUTE_US >= oldest_minute(now_us):
            again.apply_change(name, "missing", at_us, 1, len(confirmed[name]))
    assert again.by_minute == recent.by_minute
