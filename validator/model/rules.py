"""Which rules of ShuffleBench there are. `validator.model.range_rules` finds those that match."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Matching = Literal["ranges", "hashes"]
RULES_MAX: Final = 10_000_000
ZIPF_MAX: Final = 30
"""Beyond it the weight of a rule may be no number."""


@dataclass(frozen=True)
class Rules:
    """Which rules there are. ``selectivities`` replace the other numbers. ``zipf``: the exponent of the frequencies; 0:
    all rules are alike."""

    rules: int = 0
    selectivity: float = 0.0
    zipf: float = 0.0
    selectivities: str | None = None
    matching: Matching = "ranges"

    def shares(self) -> list[float]:
        """The probability of each rule."""
        if self.selectivities is not None:
            return [share for share, number in pairs_in(self.selectivities) for _ in range(number)]
        weights = [1 / math.pow(rule + 1, self.zipf) for rule in range(self.rules)]
        total = sum(weights)
        return [weight / total * self.selectivity for weight in weights]


def pairs_in(text: str) -> list[tuple[float, int]]:
    """The shares of selectivities such as ``0.01=100 0.5=2``, each with its number of rules. Raises ValueError with a
    sentence."""
    pairs = [_pair(part) for part in text.split()]
    if not pairs:
        raise ValueError("there is no share; write shares with their numbers of rules, as 0.01=100 0.5=2")
    if (total := sum(number for _, number in pairs)) > RULES_MAX:
        raise ValueError(f"{total:,} rules are too many; write at most {RULES_MAX:,}")
    return pairs


def single_spaced(text: str) -> str:
    """``text``, as engines read it. Raises ValueError if it has no `pairs_in` it."""
    pairs_in(text)
    return " ".join(text.split())


def _pair(part: str) -> tuple[float, int]:
    share, _, number = part.partition("=")
    try:
        pair = float(share), int(number)
    except ValueError:
        pair = math.nan, 0
    if not (part.isascii() and "_" not in part and 0 <= pair[0] <= 1 and pair[1] > 0):
        raise ValueError(f"{part} is not a share from 0 to 1 with its number of rules; write it as 0.01=100")
    return pair
