"""Conditions that Arrow decides exactly as the rule does (`validator.codecs.one_record`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from validator.codecs.plain_fields import Read, integers
from validator.codecs.plain_json import Bools, Path
from validator.model.conditions import Comparison, Condition


@dataclass(frozen=True)
class PlainCondition:
    """A condition, and the places of its comparisons (`Condition.comparisons`)."""

    condition: Condition
    places: tuple[Path, ...]

    def beside(self, others: Sequence[Path]) -> list[Path]:
        """Return the places to read beside ``others``; they may have any scalar."""
        apart = (place for place in dict.fromkeys(self.places) if not self._holds_others(place, others))
        return [place for place in apart if place not in others]

    def is_nested(self, others: Sequence[Path]) -> bool:
        """Whether a field that is only to exist holds others. It is read with these, from JSON."""
        return any(self._holds_others(place, others) for place in self.places)

    def decided(self, part: Read) -> tuple[Bools, Bools]:
        """Return the rows in which it surely holds, and those in which it surely does not."""
        place_of = dict(zip(self.condition.comparisons, self.places, strict=True))

        def of(one: Comparison) -> tuple[Bools, Bools]:
            holds, is_certain = one.holds_in(part.at(place_of[one]), integers)
            return holds & is_certain, ~holds & is_certain

        return self.condition.decided(of)

    def _holds_others(self, place: Path, others: Sequence[Path]) -> bool:
        return any(len(other) > len(place) and other[: len(place)] == place for other in (*others, *self.places))
