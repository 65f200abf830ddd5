"""Which rules of ShuffleBench there are. `validator.model.range_rules` finds those that match."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

Matching = Literal["ranges", "hashes"]
SELECTIVITIES: Final = r"(0?\.\d+|[01](\.0*)?)=[1-9]\d{0,6}( (0?\.\d+|[01](\.0*)?)=[1-9]\d{0,6})*"
"""Probabilities, each with its number of rules: ``0.01=100 0.5=2``."""


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
            pairs = [part.split("=") for part in self.selectivities.split(" ")]
            return [float(share) for share, number in pairs for _ in range(int(number))]
        weights = [1 / math.pow(rule + 1, self.zipf) for rule in range(self.rules)]
        total = sum(weights)
        return [weight / total * self.selectivity for weight in weights]
