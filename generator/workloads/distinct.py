"""PGVal's clicks, for the oracle of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from generator.workloads.sst import Sst


class Distinct(Sst):
    """Clicks are collected per page and window, each id once."""

    kind: ClassVar[str] = "distinct"

    def settings(self, window_ms: int, events_per_window: int) -> dict[str, Any]:
        """A tenth of the clicks is sent twice."""
        del window_ms, events_per_window
        return {"duplicates": {"share": 0.1}}

    def operator(self, window_ms: int) -> dict[str, Any]:
        """Adjacent windows without repeats."""
        del window_ms
        return {"operator": "distinct"}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same windows."""
        del inputs
        return {"kind": self.kind, "size": f"{window_ms}ms"}
