"""Distinct: windows side by side in which the pipeline lets each id of a key pass once, and drops what repeats it.

So e(c, id) = min(copies, 1). Source: SEMANTICS section 2, where repeats collapse; docs/oracles/distinct.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from validator.oracles.windows import LOCAL_TIME, Windows
from validator.settings.built import Combination
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    from validator.settings.topics import Input, Late, Output

COLLAPSE_TWICE: Final = Combination(
    ("inputs.duplicates",), "`collapse` with `distinct`", "oracle distinct drops repeated ids anyway"
)


class Distinct(Windows):
    """Adjacent windows of one size, per key. The first event of each id in a window needs a result; repeated ids do
    not."""

    kind: Literal["distinct"]
    """Each id once per window."""

    refuses: ClassVar[tuple[Combination, ...]] = (LOCAL_TIME, COLLAPSE_TWICE)
    drops_repeats: ClassVar[bool] = True

    def check(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Output],
        set_aside: Iterable[tuple[str, Late]],
        *,
        drops_late: bool,
    ) -> None:
        """As every oracle; and what the oracle says is not said again."""
        super().check(inputs, outputs, set_aside, drops_late=drops_late)
        for i, entry in enumerate(inputs):
            if entry.duplicates == "collapse":
                raise broken_rule_at(f"inputs[{i}].duplicates", COLLAPSE_TWICE.problem, "leave it out")
