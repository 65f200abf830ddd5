"""The output of a run over broker time, bounded: by second if new, by minute if old, for a day at most."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from validator.measure.output import Output, total_output

FINE_SECONDS: Final = 900
"""Age up to which seconds are kept one by one. Older seconds are merged unless a fault is measured on them."""
FINE_SECONDS_MAX: Final = 7_200
"""Age above which seconds are never kept one by one: a fault that is never healed must not require them forever."""
COARSE_SECONDS: Final = 60
KEPT_SECONDS: Final = 86_400


@dataclass
class Series:
    """Stretches of output in order of time. ``fine_from_s``: the first second from which seconds are kept one by one.
    ``cut_s``: the second before which all output was dropped (None: none was dropped)."""

    outputs: dict[int, Output] = field(default_factory=dict)
    fine_from_s: int = 0
    cut_s: int | None = None
    _starts: list[int] = field(default_factory=list)

    @property
    def since_s(self) -> int | None:
        """The first second that the series covers; None if there was no output yet."""
        if self.cut_s is not None:
            return self.cut_s
        return self._starts[0] if self._starts else None

    def add(self, output: Output) -> None:
        """Add the output of one second, or a part of it. Output older than the series is dropped."""
        if self.cut_s is not None and output.start_s < self.cut_s:
            return
        place = output.start_s
        if place < self.fine_from_s:
            # It was read late: it belongs to the stretch that now contains its second.
            i = bisect_left(self._starts, place + 1) - 1
            if i >= 0 and self.outputs[self._starts[i]].end_s > place:
                place = self._starts[i]
        if place in self.outputs:
            self.outputs[place] = self.outputs[place].plus(output)
        else:
            self._starts.insert(bisect_left(self._starts, place), place)
            self.outputs[place] = output

    def between(self, start_s: int, end_s: int) -> Iterator[Output]:
        """Yield the stretches that begin at or after ``start_s`` and before ``end_s``, in order."""
        for i in range(bisect_left(self._starts, start_s), bisect_left(self._starts, end_s)):
            yield self.outputs[self._starts[i]]

    def total(self, start_s: int, end_s: int) -> Output | None:
        """Return all output of these seconds; None if there was none."""
        return total_output(self.between(start_s, end_s))

    def last_before(self, second: int) -> Output | None:
        """Return the last stretch that begins before ``second``; None if there is none."""
        i = bisect_left(self._starts, second)
        return self.outputs[self._starts[i - 1]] if i else None

    def first_from(self, second: int) -> Output | None:
        """Return the first stretch that begins at or after ``second``; None if there is none."""
        i = bisect_left(self._starts, second)
        return self.outputs[self._starts[i]] if i < len(self._starts) else None

    def contributions(self, start_s: int, end_s: int) -> list[int]:
        """Return the contributions of each second, 0 without output. All of these seconds must be kept one by one."""
        assert start_s >= self.fine_from_s, "these seconds are no longer kept one by one"
        found = [0] * max(0, end_s - start_s)
        for output in self.between(start_s, end_s):
            found[output.start_s - start_s] = output.contributions
        return found

    def thin(self, now_s: int, needed_from_s: int | None, boundaries: Iterable[int]) -> None:
        """Merge old seconds into minutes, and drop output older than a day.

        ``needed_from_s``: first second on which a fault is still measured. ``boundaries``: seconds at which a phase
        begins; no stretch reaches across one.
        """
        wanted = now_s - FINE_SECONDS if needed_from_s is None else min(now_s - FINE_SECONDS, needed_from_s)
        fine_from = max(self.fine_from_s, wanted, now_s - FINE_SECONDS_MAX)
        # Whole minutes only: extending a minute bit by bit would repeat the work with every batch.
        fine_from -= fine_from % COARSE_SECONDS
        cut = now_s - KEPT_SECONDS
        if fine_from <= self.fine_from_s and not (self._starts and self._starts[0] < cut):
            return
        edges = sorted(set(boundaries))
        kept: dict[int, Output] = {}
        last: int | None = None
        for start in self._starts:
            if start < cut:
                self.cut_s = cut
                continue
            output = self.outputs[start]
            if last is not None and start < fine_from and _place(last, edges) == _place(start, edges):
                kept[last] = kept[last].plus(output)
            else:
                kept[start], last = output, start
        self.outputs, self._starts = kept, sorted(kept)
        self.fine_from_s = max(self.fine_from_s, fine_from)

    @classmethod
    def of(cls, outputs: Iterable[Output], fine_from_s: int = 0, cut_s: int | None = None) -> Series:
        """Return the series of these stretches."""
        made = {output.start_s: output for output in outputs}
        return cls(made, fine_from_s, cut_s, sorted(made))


def _place(second: int, edges: list[int]) -> tuple[int, int]:
    return second // COARSE_SECONDS, bisect_left(edges, second + 1)
