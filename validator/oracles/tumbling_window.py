"""The tumbling window: each event contributes to exactly one cell, the window of its key that holds its time.

Source: SEMANTICS section 2.
"""

from __future__ import annotations

from typing import Literal

from validator.oracles.windows import Windows


class TumblingWindow(Windows):
    """Windows of one size, side by side; each event belongs in the one that holds its event time, per key."""

    kind: Literal["tumbling_window"]
    """Windows side by side."""
