"""PGVal's clicks, for the oracle of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from generator.workloads.sst import Sst


class SessionWindow(Sst):
    """Bursts of clicks are collected per page, with a gap of half a window."""

    kind: ClassVar[str] = "session_window"

    def settings(self, window_ms: int, events_per_window: int) -> dict[str, Any]:
        """Bursts of one window, with pauses that are longer than the gap."""
        return {"sessions": {"events": events_per_window, "gap": f"{window_ms // 2}ms"}}

    def operator(self, window_ms: int) -> dict[str, Any]:
        """Clicks of several pages have the same time. Without disorder, the first of these clicks could move the
        watermark to their time; the others would then be behind the watermark, and the engine would have to store the
        offset of each.
        """
        return {"operator": "session", "gap_ms": window_ms // 2, "max_disorder_ms": 100}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same gap."""
        del inputs
        return {"kind": self.kind, "gap": f"{window_ms // 2}ms"}
