"""Windows in which the reference engine counts each id of a key once. Pure, no I/O.

Repeats are added to their window, so recovery is that of `WindowCore`. The result leaves them out. A repeat for a
closed window is late, like any other event for it.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.engines.core import Result, WindowCore


class DistinctCore(WindowCore):
    """The windows of `WindowCore`, whose results have each id once, in the order of first events."""

    def _result(self, whole: Result) -> Result | None:
        times = dict(zip(reversed(whole.ids), reversed(whole.times_ms), strict=True))
        ids = tuple(dict.fromkeys(whole.ids))
        return replace(whole, ids=ids, times_ms=tuple(times[event_id] for event_id in ids))
