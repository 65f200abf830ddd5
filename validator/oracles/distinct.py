"""Distinct: adjacent windows in which the pipeline passes each id of a key once and drops its repeats.

So e(c, id) = min(copies, 1). Source: SEMANTICS 2.4 (repeats that collapse); docs/oracles/distinct.md.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from validator.oracles.seam import Declared
from validator.oracles.windows import CLOSED_RIGHT_IN_ZONE, Windows
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at

COLLAPSE_TWICE: Final = Combination(
    ("inputs.duplicates",), "`collapse` with `distinct`", "oracle distinct drops repeated ids anyway"
)


class Distinct(Windows):
    """Adjacent windows of one size, per key. The first event of each id in a window needs a result; repeated ids do
    not."""

    kind: Literal["distinct"]
    """Each id once per window."""

    refuses: ClassVar[tuple[Combination, ...]] = (CLOSED_RIGHT_IN_ZONE, COLLAPSE_TWICE)
    drops_repeats: ClassVar[bool] = True

    def check(self, declared: Declared) -> None:
        """Also refuse `collapse`, which the oracle implies."""
        super().check(declared)
        for i, entry in enumerate(declared.inputs):
            if entry.duplicates == "collapse":
                raise broken_rule_at(f"inputs[{i}].duplicates", COLLAPSE_TWICE.problem, "leave it out")
