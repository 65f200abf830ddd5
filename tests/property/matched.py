"""The rule match by brute force: each event is tried against every rule, and is an event of each rule that it matches.

The worlds are those of `tests.property.keyed`. The key of an event is the first bytes of its record. Nothing is set
aside: the oracle has no late or rejected topics.
"""

from __future__ import annotations

import functools
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import ClassVar, Final, NamedTuple

from tests.property.engine import Answer, Engine, Fault, Habits
from tests.property.history import Cell, InputEvent, LateRecord
from tests.property.keyed import KeyClock, KeyedCase, KeyedValuesCase, histories
from tests.property.running import NO_WINDOW, RunningEngine, RunningTiming, RunningWorld
from tests.property.spark_histories import Referee
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import ALL, valued
from tests.unit.rule_loop import matches
from validator.oracles.rule_match import RuleMatch
from validator.oracles.seam import Reads

ANY_NUMBER: Final = 1 << 40
"""SEMANTICS 4.14: what one hidden record may explain."""


class Rules(NamedTuple):
    """The settings of the oracle."""

    rules: int
    selectivity: float
    zipf: float = 0.0
    prefix: str = "consumer_"


SETTINGS: Final = (Rules(1, 1.0), Rules(2, 1.0, 0.0, "r"), Rules(3, 0.9, 1.1), Rules(4, 2.0), Rules(40, 2.5, 0.4))
"""One rule that always matches, some of which an event matches several or none, and many."""


@functools.cache
def names(key: str, of: Rules) -> tuple[str, ...]:
    """The keys of the results that have the events of a key."""
    return tuple(f"{of.prefix}{rule}" for rule in matches(b64decode(key), of.rules, of.selectivity, of.zipf))


class MatchedClock(KeyClock):
    """Time with the cells of all rules that an event matches."""

    of: ClassVar[Rules]

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """A cell for each rule."""
        return tuple((NO_WINDOW, name) for name in names(event.key, self.of))


class MatchedReferee(Referee):
    """The reference, in which one hidden record may be an event of any number of rules."""

    def hidden_inputs(self) -> int:
        """None, or any number."""
        return super().hidden_inputs() * ANY_NUMBER


class MatchedEngine(RunningEngine):
    """Answers for every rule that an event matches."""

    of: Rules

    def _keys(self, event: InputEvent) -> Sequence[str]:
        return names(event.key, self.of)


class MatchedWorld(RunningWorld):
    """A world whose events match rules. Its broken engine may write the result of a rule under another one's name."""

    of: ClassVar[Rules]
    sets_aside: ClassVar[bool] = False

    def _keys(self) -> list[str]:
        return [b64encode(self.rng.randbytes(16)).decode() for _ in range(self.rng.randint(1, 5))]

    def _engine(self, habits: Habits) -> Engine:
        assert isinstance(self.timing, RunningTiming)
        engine = MatchedEngine(self.rng, self.timing, habits, self.inputs)
        engine.of = self.of
        return engine

    def _broken(self, answers: Sequence[Answer], faults: Sequence[Fault]) -> list[Answer]:
        written = sorted({answer.cell[1] for answer in answers})

        def named(answer: Answer) -> Answer:
            if answer.cell[1] in written:
                return answer
            others = [*written, f"{self.of.prefix}{self.rng.randrange(self.of.rules)}"]
            return replace(answer, cell=(answer.cell[0], self.rng.choice(others)))

        return [named(answer) for answer in super()._broken(answers, faults)]


@dataclass(frozen=True)
class MatchedCase(KeyedValuesCase):
    """As `KeyedValuesCase`, of events that match rules."""

    of: Rules = SETTINGS[0]

    @cached_property
    def oracle(self) -> RuleMatch:  # type: ignore[override]
        """The core finds the rules by their index."""
        given = {"kind": "rule_match", "values": dict(self.aggregates), "every": self.every, **self.of._asdict()}
        return RuleMatch.model_validate(given).reading(Reads(replaces=True, evidence="values", names_ids=False))

    @property
    def referee(self) -> type[Referee]:
        """A reference that tries every rule."""
        of_keys = super().referee
        clock = type("ClockOfRules", (MatchedClock, of_keys.clock_type), {"of": self.of})
        return type("OfRules", (MatchedReferee, of_keys), {"clock_type": clock})


def matched_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    aggregates: Mapping[str, str] = ALL,
    allowed: Allowed = EVERYTHING,
    every: int = 1,
) -> MatchedCase:
    """The case that ``seed`` generates, as `keyed_values_case`."""
    of = Random(seed).choice(SETTINGS)
    world = type("OfRules", (MatchedWorld,), {"of": of})
    named, anonymous = histories(seed, causal=causal, steps_most=steps_most, allowed=allowed, every=every, world=world)
    made = valued(named, KeyedCase(named.seed, causal, anonymous), aggregates)
    return MatchedCase(made.seed, causal, anonymous, made.aggregates, made.values, every=every, of=of)
