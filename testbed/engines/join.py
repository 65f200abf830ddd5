"""PGVal's MST: clicks joined with updates per key and window, on the reference engine's core. Pure, no I/O.

The ids of the right input carry its name here (``update/7``), so that click 7 and update 7 are two; the wire takes it
off again. A window answers with each id once: nothing where one side is empty, or in a left join with the left side
alone. A late event of either side is set aside, whether it has a partner or not.
"""

from __future__ import annotations

from typing import Literal

from testbed.engines.core import EventId, Result
from testbed.engines.distinct import DistinctCore

Join = Literal["inner", "left"]


def side_prefix(right: str) -> str:
    """What the ids of the input ``right`` begin with."""
    return right + "/"


class JoinCore(DistinctCore):
    """The windows of `DistinctCore`, joined. ``right_prefix`` is that of the right input's ids."""

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
    """Whether an id is one of the right input."""
    return isinstance(event_id, str) and event_id.startswith(right_prefix)
