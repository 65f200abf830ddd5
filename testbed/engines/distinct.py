"""Windows in which the reference engine lets each id of a key pass once. Pure, no I/O.

Repeats go into their window as they come, so that recovery is that of `WindowCore`; they are left out of the answer.
A repeat of an answered window is late, as its first event would be.
"""

from __future__ import annotations

from dataclasses import replace

from testbed.engines.core import Result, WindowCore


class DistinctCore(WindowCore):
    """The windows of `WindowCore`, which answer with each id once, in the order of first events."""

    def _result(self, whole: Result) -> Result | None:
        times = dict(zip(reversed(whole.ids), reversed(whole.times_ms), strict=True))
        ids = tuple(dict.fromkeys(whole.ids))
        return replace(whole, ids=ids, times_ms=tuple(times[event_id] for event_id in ids))
