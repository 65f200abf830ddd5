"""PGVal's MST: clicks joined with updates per key and window, on the reference engine's core. Pure, no I/O.

Inside the engine, the ids of the right input have its name as a prefix (``update/7``), so that click 7 and update 7
differ; ``wire`` removes it. A window's result has each id once. A window with an empty side produces no result. In a
left join, it produces one if it has left events. A late event of either side is set aside, with or without a partner.
"""

from __future__ import annotations

from typing import Literal

from testbed.engines.core import EventId, Result
from testbed.engines.distinct import DistinctCore

Join = Literal["inner", "left"]


def side_prefix(right: str) -> str:
    """Return the prefix of the ids of the input ``right``."""
    return right + "/"


class JoinCore(DistinctCore):
    """The windows of `DistinctCore`, joined. ``right_prefix`` is the prefix of the right input's ids."""

    def __init__(
        self, size_ms: int, max_disorder_ms: int, allowed_lateness_ms: int, *, join: Join, right_prefix: str
    ) -> None:
        super().__init__(size_ms, max_disorder_ms, allowed_lateness_ms)
        self._join = join
        self._right_prefix = right_prefix

    def _result(self, whole: Result) -> Result | None:
        rights = sum(is_right(event_id, self._right_prefix) for event_id in whole.ids)
        if rights == len(whole.ids) or (rights == 0 and self._join == "inner"):
            return None
        return super()._result(whole)


def is_right(event_id: EventId, right_prefix: str) -> bool:
    """Return whether an id is one of the right input."""
    return isinstance(event_id, str) and event_id.startswith(right_prefix)
