"""The canary: violations that the sidecar plants itself, on two topics of its own, to see whether it finds them."""

from __future__ import annotations

from typing import Final

from pydantic import field_validator

from validator.settings.durations import PositiveDuration, format_duration
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import WithDurations
from validator.settings.topics import Topic

EVERY_MIN_US: Final = 1_000_000
ROUNDS_OPEN_MAX: Final = 1_000
"""Rounds that may wait for their verdict at one time: their facts are held in memory."""


class Canary(WithDurations):
    """Known violations that the sidecar plants on two topics of its own, in rounds (docs/guide). `validate --once`
    plants none."""

    input: Topic
    """Topic for the canary's events, on its partition 0. No other client may read or write it. The sidecar needs Read
    and Write on it."""
    output: Topic
    """Topic for the canary's results, with the same requirements as `input`."""
    every_us: PositiveDuration = 60_000_000
    """Time between two rounds; at least 1 s."""
    found_within_us: PositiveDuration = 60_000_000
    """A planted violation counts as missed if the sidecar does not report it within this time after
    `timing.missing_after`."""

    @field_validator("every_us")
    @classmethod
    def _not_too_often(cls, every_us: int) -> int:
        if every_us < EVERY_MIN_US:
            raise broken_rule(f"{format_duration(every_us)} is below 1s", "write 1s or more")
        return every_us

    def check_rounds(self, missing_after_us: int) -> None:
        """Raise PydanticCustomError if more than `ROUNDS_OPEN_MAX` rounds would wait for their verdict."""
        least_us = -(-(missing_after_us + self.found_within_us) // ROUNDS_OPEN_MAX)
        if self.every_us < least_us:
            problem = f"more than {ROUNDS_OPEN_MAX} rounds would be open during timing.missing_after plus found_within"
            raise broken_rule_at("canary.every", problem, f"write {format_duration(least_us)} or more")
