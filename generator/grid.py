"""Events on a regular grid of event time: pure sequences without I/O, from which workloads make theirs.

A *round* is one event of every key, all at the same event time. The first round is 1 ms after the start; the next
follows ``step_ms`` later.

Four deviations can be added. They are off by default. A seeded stream decides the first three per event:

- *disorder*: a share of events is delayed by at most ``disorder_ms`` of event time. No event follows one that
  is newer by more than ``disorder_ms``;
- *lateness*: a share is delayed until event time has advanced by at least ``disorder_ms + late_by_ms``;
- *duplicates*: a share is sent twice in a row with the same id;
- *sessions*: a key has bursts of ``burst_events`` events, each followed by ``silent_steps`` steps without an event.
  One burst and one silence are a period. Each key starts a fraction of a period after the previous key, so keys are
  silent at different times. A round has the events of the active keys; a round without any is skipped.

Producer ``k`` of ``n`` uses the ids ``k + 1, k + 1 + n, ...``. Together the ids start at 1 and have no gap, and no
counter is shared between threads or processes. (PGVal shares one, so its assignment of ids is not reproducible.)
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

from generator import seed
from generator.sends import DELAYED, LATE, PLAIN, SECOND_COPY, SendBatch


def step_ms(window_ms: int, events_per_window: int, update_percent: float = 0.0) -> int:
    """Event time between two clicks of a page; 0 if a window has fewer milliseconds than clicks."""
    clicks = int(events_per_window * (1 - update_percent / 100))
    return window_ms // clicks if clicks > 0 else 0


def rounds_before(window_ms: int, windows: int, step: int) -> int:
    """Number of rounds whose event time, counted from the start, is within the first ``windows`` windows."""
    return -(-(windows * window_ms - 1) // step)


@dataclass(frozen=True)
class GridPlan:
    """The events of one producer. Times are milliseconds; ``events`` None means without end."""

    producer: int
    producers: int
    keys: int
    step_ms: int
    start_ms: int
    events: int | None
    seed: int = 0
    disorder_share: float = 0.0
    disorder_ms: int = 0
    late_share: float = 0.0
    late_by_ms: int = 0
    duplicate_share: float = 0.0
    burst_events: int = 1
    silent_steps: int = 0

    @property
    def period_rounds(self) -> int:
        """Number of rounds after which the pattern of bursts repeats."""
        return self.burst_events + self.silent_steps if self.silent_steps else 1

    def clicks(self) -> list[tuple[int, int]]:
        """Round and key of each click in the first period, in order."""
        period = self.period_rounds
        burst = self.burst_events if self.silent_steps else 1
        return [
            (number, key)
            for number in range(period)
            for key in range(self.keys)
            if (number - key * period // self.keys) % period < burst
        ]


def events_before(plan: GridPlan, rounds: int) -> int:
    """Number of events in the first ``rounds`` rounds."""
    periods, rest = divmod(rounds, plan.period_rounds)
    clicks = plan.clicks()
    return periods * len(clicks) + sum(number < rest for number, _ in clicks)


class GridSequence:
    """The sends of one producer in order. The result does not depend on how it is cut into batches."""

    def __init__(self, plan: GridPlan) -> None:
        assert plan.step_ms > 0
        assert plan.keys > 0
        self.plan = plan
        self._made = 0
        self._clicks = plan.clicks()
        self._in_round = Counter(number for number, _ in self._clicks)
        self._regular = not (plan.disorder_share or plan.late_share or plan.duplicate_share or plan.silent_steps)
        self._ready = SendBatch([], [], [], [])
        self._taken = 0
        self._held: list[tuple[int, int]] = []  # a heap of (round, event): send at the end of that round
        self._held_late: list[tuple[int, int]] = []  # a heap of (round, event): send at the end of that round or later
        self._newest_round = -1
        self._disorder = seed.stream(plan.seed, "disorder", plan.producer)
        self._duplicates = seed.stream(plan.seed, "duplicates", plan.producer)

    @property
    def next_number(self) -> int:
        """The id number of the next event."""
        return self._number(self._made)

    def take(self, n: int) -> SendBatch:
        """The next ``n`` sends; fewer, and finally none, at the end of the plan."""
        return self._take_regular(n) if self._regular else self._take_irregular(n)

    def drain(self) -> SendBatch:
        """End the sequence: all sends that are ready or delayed, in the order in which they are due."""
        rest = self._cut(len(self._ready))
        held, self._held, self._held_late = sorted(self._held + self._held_late), [], []
        for _, event in held:
            self._send(rest, event, self._round(event))
        return rest

    def _number(self, event: int) -> int:
        return 1 + self.plan.producer + self.plan.producers * event

    def _round(self, event: int) -> int:
        periods, place = divmod(event, len(self._clicks))
        return periods * self.plan.period_rounds + self._clicks[place][0]

    def _take_regular(self, n: int) -> SendBatch:
        plan, first = self.plan, self._made
        end = first + n if plan.events is None else min(first + n, plan.events)
        self._made = max(first, end)
        events = range(first, end)
        count, step, origin = plan.keys, plan.step_ms, plan.start_ms + 1
        low, stride = 1 + plan.producer, plan.producers
        return SendBatch(
            list(range(low + stride * first, low + stride * end, stride)),
            [e % count for e in events],
            [origin + e // count * step for e in events],
            [PLAIN] * len(events),
        )

    def _take_irregular(self, n: int) -> SendBatch:
        while len(self._ready) - self._taken < n and self._make_round():
            pass
        return self._cut(min(self._taken + n, len(self._ready)))

    def _cut(self, high: int) -> SendBatch:
        """Remove the ready sends up to index ``high`` and return them."""
        ready, low = self._ready, self._taken
        self._taken = high
        taken = SendBatch(
            ready.numbers[low:high], ready.keys[low:high], ready.times_ms[low:high], ready.kinds[low:high]
        )
        if high == len(ready):
            self._ready, self._taken = SendBatch([], [], [], []), 0
        return taken

    def _make_round(self) -> bool:
        """Add the sends of the next round to ``_ready``; False if the plan has ended and no event is delayed."""
        plan, first = self.plan, self._made
        if plan.events is not None and first >= plan.events:
            if not (self._held or self._held_late):
                return False
            self._ready = self.drain()
            return True
        current = self._round(first)
        end = first + self._in_round[current % plan.period_rounds]
        # Events that became due in skipped rounds are sent before newer ones.
        self._release(current - 1)
        for event in range(first, end if plan.events is None else min(end, plan.events)):
            self._hold_or_send(event, current)
        self._made = end if plan.events is None else min(end, plan.events)
        # Delayed events are released after the round's own events: an event that is delayed for k rounds then follows
        # events that are newer by k steps. A late event waits until an event of its due round, or of a later one,
        # was sent.
        self._release(current, self._newest_round)
        return True

    def _hold_or_send(self, event: int, current: int) -> None:
        plan = self.plan
        draw = self._disorder.random()
        if draw < plan.late_share:
            due_round = current - (-(plan.disorder_ms + plan.late_by_ms) // plan.step_ms)
            heapq.heappush(self._held_late, (due_round, event))
            return
        rounds = plan.disorder_ms // plan.step_ms
        if draw < plan.late_share + plan.disorder_share and rounds:
            heapq.heappush(self._held, (current + 1 + int(self._disorder.random() * rounds), event))
        else:
            self._send(self._ready, event, current)

    def _release(self, due_round: int, late_due_round: int = -1) -> None:
        """Send the delayed events that are due by ``due_round`` and the late ones due by ``late_due_round``, earliest
        first.
        """
        heaps = ((self._held, due_round), (self._held_late, late_due_round))
        while due := [held for held, by_round in heaps if held and held[0][0] <= by_round]:
            _, event = heapq.heappop(min(due))
            self._send(self._ready, event, self._round(event))

    def _send(self, to: SendBatch, event: int, event_round: int) -> None:
        plan = self.plan
        delay_ms = (self._newest_round - event_round) * plan.step_ms
        kind = LATE if delay_ms > plan.disorder_ms else DELAYED if delay_ms > 0 else PLAIN
        self._newest_round = max(self._newest_round, event_round)
        time_ms = plan.start_ms + 1 + event_round * plan.step_ms
        row = (self._number(event), self._clicks[event % len(self._clicks)][1], time_ms)
        to.add(*row, kind)
        if plan.duplicate_share and self._duplicates.random() < plan.duplicate_share:
            to.add(*row, SECOND_COPY)
