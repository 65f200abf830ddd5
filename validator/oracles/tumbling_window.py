"""The tumbling window: each event contributes to exactly one cell, the window of its key that contains its time.

Source: SEMANTICS section 2.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from validator.oracles.windows import Windows


class TumblingWindow(Windows):
    """Adjacent windows of one size, per key. Each event belongs in the window that contains its event time."""

    kind: Literal["tumbling_window"]
    """Adjacent windows."""

    judges_values: ClassVar[bool] = True
    judges_values_beside_ids: ClassVar[bool] = True
    accepts_cumulative: ClassVar[bool] = True
