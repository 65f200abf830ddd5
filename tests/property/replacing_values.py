"""Emission `cumulative` with windows whose results state aggregates of a field, by brute force: only the last result of
a window counts, which states the aggregates of all events of those before it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from random import Random

from tests.property.counted import counted_history
from tests.property.replacing import RESTORES, ReplacingReferee, running
from tests.property.spark_histories import Referee
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import ALL, ValuedCase, ValuedReferee, valued
from validator.oracles.seam import Oracle, Reads


class ReplacingValuesReferee(ValuedReferee, ReplacingReferee):
    """The reference of the newest values."""


@dataclass(frozen=True)
class ReplacingValuesCase(ValuedCase):
    """A history whose results state aggregates and replace each other."""

    @cached_property
    def oracle(self) -> Oracle:
        """The core keeps the newest results."""
        return super().oracle.reading(Reads(replaces=True, evidence="values", names_ids=False))

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        known = {"amounts": dict(self.values), "aggregates": dict(self.aggregates)}
        return type("OfNewestValues", (ReplacingValuesReferee,), known)


def replacing_values_case(
    seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING
) -> ReplacingValuesCase:
    """The case that ``seed`` generates, as `valued_case`."""
    found = counted_history(seed, causal=causal, steps_most=steps_most, allowed=allowed)
    named = replace(found, history=running(found.history, Random(seed), restores=0 if causal else RESTORES))
    of_all = valued(named, named.anonymous(), ALL)
    return ReplacingValuesCase(**{field.name: getattr(of_all, field.name) for field in fields(of_all)})
