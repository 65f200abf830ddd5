"""How many of the canary's planted violations were detected, and how soon: a fold over rounds. Pure, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from validator.measure.canary_rounds import CELLS, RIGHT, Round
from validator.model.classes import PLANTED
from validator.model.snapshot import CanaryMeasures

ROUNDS_JUDGED: Final = 10
"""Number of newest due rounds over which recall, delay and false alarms are computed."""

Accused = Mapping[str, Mapping[str, int]]
"""Cell of a round -> class of violation -> contributions that are on record as such."""


@dataclass(frozen=True)
class CanaryRules:
    """The configuration of due rounds, in microseconds."""

    missing_after_us: int
    found_within_us: int
    every_us: int

    @property
    def due_after_us(self) -> int:
        """Time from the planting of a round to its judging."""
        return self.missing_after_us + self.found_within_us

    @property
    def silent_after_us(self) -> int:
        """Longest time from the start of a working canary, or from its judging of a round, until it has judged the next
        round."""
        return self.due_after_us + 3 * self.every_us


@dataclass
class _Open:
    """A round that is not due yet. ``recorded_us``: class -> instant since which its planted violation is on record."""

    round: Round
    planted_us: int
    recorded_us: dict[str, int] = field(default_factory=dict)
    accused: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True)
class Outcome:
    """A round that was due. ``delays_us``: class that was detected in time -> delay of the detection, counted from the
    first instant at which the planted violation could be proven. ``accused``: (cell, class) of the false alarms."""

    number: int
    delays_us: Mapping[str, int]
    accused: frozenset[tuple[str, str]]

    @property
    def missed(self) -> tuple[str, ...]:
        """The planted classes that were not detected in time."""
        return tuple(name for name in PLANTED if name not in self.delays_us)


class Recall:
    """The rounds that wait for judging, and the outcomes of the last due rounds."""

    def __init__(self, rules: CanaryRules, *, began_us: int) -> None:
        """``began_us``: instant since which rounds are expected."""
        self._rules = rules
        self._open: dict[int, _Open] = {}
        self._outcomes: deque[Outcome] = deque(maxlen=ROUNDS_JUDGED)
        self._judged_us = began_us

    @property
    def waiting(self) -> tuple[Round, ...]:
        """The rounds that are not due yet."""
        return tuple(entry.round for entry in self._open.values())

    def planted(self, planted: Round, at_us: int) -> None:
        """Add a round that is in the log. ``at_us``: an instant before its first record was sent."""
        self._open[planted.number] = _Open(planted, at_us)

    def forget(self) -> None:
        """Drop the waiting rounds without judging them: their records were not all read."""
        self._open = {}

    def judged(self, at_us: int, accused: Mapping[int, Accused]) -> list[Outcome]:
        """Return the outcomes of the rounds that are due at ``at_us``, at which the verdicts on all waiting rounds were
        recorded.

        ``accused``: number of a round -> violations on record; a cell that was not seen is not in it.
        """
        for number, entry in self._open.items():
            _note(entry, at_us, accused.get(number, {}))
        due = [entry for entry in self._open.values() if entry.planted_us + self._rules.due_after_us <= at_us]
        outcomes = [self._outcome(entry) for entry in due]
        for entry in due:
            del self._open[entry.round.number]
            self._judged_us = at_us
        self._outcomes.extend(outcomes)
        return outcomes

    def _outcome(self, entry: _Open) -> Outcome:
        delays = {}
        for name, recorded_us in entry.recorded_us.items():
            if recorded_us <= entry.planted_us + self._rules.due_after_us:
                waits_us = self._rules.missing_after_us if name == "missing" else 0
                delays[name] = max(0, recorded_us - entry.planted_us - waits_us)
        return Outcome(entry.round.number, delays, frozenset(entry.accused))

    def measures(self) -> CanaryMeasures:
        """Return the measures to publish. Before the first due round only the times are known."""
        outcomes = self._outcomes
        found = {name: sum(name in outcome.delays_us for outcome in outcomes) for name in PLANTED}
        delays = [delay for outcome in outcomes for delay in outcome.delays_us.values()]
        return CanaryMeasures(
            judged_us=self._judged_us,
            silent_after_us=self._rules.silent_after_us,
            recall_ratio=sum(found.values()) / (len(PLANTED) * len(outcomes)) if outcomes else None,
            class_recall_ratio={name: found[name] / len(outcomes) for name in PLANTED} if outcomes else {},
            delay_us_max=max(delays, default=None),
            false_alarms=sum(len(outcome.accused) for outcome in outcomes) if outcomes else None,
        )


def _note(entry: _Open, at_us: int, accused: Accused) -> None:
    """Note which violations of a round are on record now."""
    for cell in CELLS:
        on_record = accused.get(cell, {})
        for name, count in on_record.items():
            if count > (cell == name):
                # A retraction before the round is due changes nothing: an alert on a real pipeline would have fired.
                entry.accused.add((cell, name))
        if cell == RIGHT:
            continue
        if on_record.get(cell, 0) >= 1:
            entry.recorded_us.setdefault(cell, at_us)
        else:
            entry.recorded_us.pop(cell, None)
