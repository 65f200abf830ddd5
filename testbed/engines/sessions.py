"""Session windows of the reference engine: per key, ended by a pause longer than the gap. Pure, no I/O.

Source: Flink's ``EventTimeSessionWindows`` and ``MergingWindowSet``. An event at t opens [t, t + gap), which merges
with the open sessions of its key that it touches or overlaps, whatever the partitions of their events. The event is
late if the end of the merged session, plus ``allowed_lateness_ms``, is at or before the watermark; so it can be late
only if it touches no open session. A session that has produced its result is removed: an event next to it that is read
later, and whose own window has not ended, opens a new session. A session produces one result, when the watermark
reaches its end plus ``allowed_lateness_ms``.

Recovery. Unlike a window on a grid, a session is not determined by the times of events alone. If an event that is read
later extends an open session backwards, the session may then touch a late event or an event of a removed session. Only
an event that was behind the watermark when it was read, a *straggler*, can extend a session in this way. Therefore
progress also lists the offset of each straggler of an open session, and the watermark at its reading. Below, W is that
watermark minus the allowed lateness. All events below ``next_offset`` are read again. Then

1. the events that are not listed are joined into sessions, by key;
2. the listed events are added in the order of W; before each one, sessions that ended by its W are dropped;
3. sessions that ended at or before the watermark of the commit are dropped.

The remaining sessions are exactly the open ones. An event is *finished* at an instant if by then its session has
produced a result, or if it came late. The window of a finished event ended at or before the watermark.

- An event past the watermark touches no finished event, because the window of every finished event ended by the
  watermark. A late event touched no open session. So an unlisted event of a session that was open at the commit touches
  only events of such sessions: step 1 joins it with no other event.
- At any watermark W, at most one open session of a key began at or before W: all end after W, so two of them would
  touch. A straggler belongs to that session. So when a straggler is read, each earlier event that it touches is in an
  open session or finished. Now consider an event that was never in the straggler's session, and whose window ends after
  W. It lies beyond W, so it touches no event whose window ended by W: if it was read after the straggler, it would
  otherwise have joined the straggler's session. If it was read before, its session began after W. So step 2 drops every
  finished event that could touch the straggler, together with its whole session.
- Step 2 drops no event of an open session: when the watermark reached W, the event's session ended after W, and the
  events that extended it beyond W are added before step 2 reaches W.
- All other events were in a result or came late. Their windows ended by the commit's watermark, so step 3 drops them.

The partitions that share keys must have the same watermark. Range assignment gives the same partitions of several
topics to one instance, so this holds when they move.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from testbed.engines.core import NEVER_MS, Core, EventId, Key, Partition, PartitionId, PartitionProgress, Record, Result

_Event = tuple[PartitionId, int, int, EventId]
"""Partition, offset, event time in ms, id."""


@dataclass
class _Session:
    first_ms: int
    last_ms: int
    events: list[_Event]
    first_offsets: dict[PartitionId, int]
    stragglers: list[tuple[PartitionId, int, int]] = field(default_factory=list)
    """Partition, offset, and the partition's watermark at the time of reading."""

    @classmethod
    def of(cls, event: _Event) -> _Session:
        """Return the session of one event."""
        partition, offset, time_ms, _ = event
        return cls(time_ms, time_ms, [event], {partition: offset})

    def merge(self, other: _Session) -> None:
        """Add the other session's events after this one's."""
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)
        self.events += other.events
        self.stragglers += other.stragglers
        for partition, offset in other.first_offsets.items():
            self.first_offsets[partition] = min(offset, self.first_offsets.get(partition, offset))


class SessionCore(Core):
    """Sessions that end ``gap_ms`` after their last event."""

    def __init__(self, gap_ms: int, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0) -> None:
        assert gap_ms > 0
        super().__init__(max_disorder_ms, allowed_lateness_ms)
        self._gap_ms = gap_ms
        self._open: dict[Key, list[_Session]] = {}
        self._listed: dict[PartitionId, dict[int, int]] = {}
        self._put_backs: list[tuple[Key, _Event, int | None]] = []
        """Events to be restored, with the watermark of the listed ones; None for the others."""
        self._due_ms = NEVER_MS
        """No session ends earlier."""

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        closed, behind = state.closed_through_ms, time_ms + self._allowed_lateness_ms <= state.closed_through_ms
        sessions = self._open.get(key, ())
        touches = any(self._touches(session, time_ms) for session in sessions)
        if not touches and time_ms + self._gap_ms + self._allowed_lateness_ms <= closed:
            return False
        session = _Session.of((state.id, offset, time_ms, event_id))
        if behind:
            session.stragglers.append((state.id, offset, closed))
        self._add(key, session)
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        offset, key, time_ms, event_id = record
        self._put_backs.append((key, (state.id, offset, time_ms, event_id), self._listed[state.id].get(offset)))

    def _recovered(self) -> None:
        back, self._put_backs = self._put_backs, []
        # In order of time, an event of step 1 touches at most the last session.
        for key, event, _ in sorted((b for b in back if b[2] is None), key=lambda b: b[1][2]):
            sessions = self._open.setdefault(key, [])
            if sessions and self._touches(sessions[-1], event[2]):
                sessions[-1].merge(_Session.of(event))
            else:
                sessions.append(_Session.of(event))
        listed = sorted(((closed, key, event) for key, event, closed in back if closed is not None), key=lambda b: b[0])
        for closed, group in groupby(listed, key=lambda b: b[0]):
            of_one_watermark = list(group)
            for key in {key for _, key, _ in of_one_watermark}:
                kept = self._ending_after(closed - self._allowed_lateness_ms, self._open.get(key, ()))
                self._open[key] = kept
            for _, key, event in of_one_watermark:
                session = _Session.of(event)
                session.stragglers.append((event[0], event[1], closed))
                self._add(key, session)
        self._take_closed()
        for sessions in self._open.values():
            for session in sessions:
                session.events.sort(key=lambda event: event[:2])

    def _emit_closed(self) -> None:
        if max(p.closed_through_ms for p in self._partitions.values()) - self._allowed_lateness_ms < self._due_ms:
            return
        for key, session in sorted(self._take_closed(), key=lambda closed: (closed[1].last_ms, closed[0])):
            times_ms = tuple(time_ms for _, _, time_ms, _ in session.events)
            ids = tuple(event_id for _, _, _, event_id in session.events)
            self._answers.append(Result(session.first_ms, session.last_ms + self._gap_ms, key, ids, times_ms))

    def _take_closed(self) -> list[tuple[Key, _Session]]:
        """Remove and return the sessions that the watermark of their partitions has closed."""
        closed_by = {p.id: p.closed_through_ms - self._allowed_lateness_ms for p in self._partitions.values()}
        closed: list[tuple[Key, _Session]] = []
        still: dict[Key, list[_Session]] = {}
        self._due_ms = NEVER_MS
        for key, sessions in self._open.items():
            for session in sessions:
                if session.last_ms + self._gap_ms <= min(closed_by[p] for p in session.first_offsets):
                    closed.append((key, session))
                else:
                    still.setdefault(key, []).append(session)
                    self._due_ms = min(self._due_ms, session.last_ms + self._gap_ms)
        self._open = still
        return closed

    def _next_timer(self, watermark: int) -> int:
        # Each millisecond of the watermark makes further event times late, so the watermark moves by one millisecond at
        # a time.
        return watermark + 1

    def _last_end(self) -> int | None:
        ends = [session.last_ms + self._gap_ms for sessions in self._open.values() for session in sessions]
        return max(ends, default=None)

    def _first_offset(self, state: Partition) -> int:
        offsets = (s.first_offsets.get(state.id) for sessions in self._open.values() for s in sessions)
        return min((offset for offset in offsets if offset is not None), default=state.next_offset)

    def _progress(self, state: Partition) -> PartitionProgress:
        stragglers = sorted(
            (offset, closed)
            for sessions in self._open.values()
            for session in sessions
            for partition, offset, closed in session.stragglers
            if partition == state.id
        )
        first = self._first_offset(state)
        return PartitionProgress(state.next_offset, first, state.closed_through_ms, tuple(stragglers))

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        self._listed[state.id] = dict(progress.stragglers)

    def _forget(self, state: Partition) -> None:
        del self._listed[state.id]
        self._put_backs = [b for b in self._put_backs if b[1][0] != state.id]
        remaining, self._open = self._open, {}
        for key, sessions in remaining.items():
            for session in sessions:
                behind = {(partition, offset): (partition, offset, w) for partition, offset, w in session.stragglers}
                for event in session.events:
                    if event[0] != state.id:
                        alone = _Session.of(event)
                        alone.stragglers += [behind[event[:2]]] if event[:2] in behind else []
                        self._add(key, alone)

    def _add(self, key: Key, session: _Session) -> None:
        """Merge a session of one event with the sessions that it touches, into the earliest of them."""
        self._due_ms = min(self._due_ms, session.last_ms + self._gap_ms)
        sessions = self._open.get(key, [])
        merged = [s for s in sessions if self._touches(s, session.first_ms)]
        if not merged:
            sessions.append(session)
        else:
            for other in merged[1:]:
                merged[0].merge(other)
            merged[0].merge(session)
            sessions = [s for s in sessions if not any(s is other for other in merged[1:])]
        self._open[key] = sessions

    def _ending_after(self, instant_ms: int, sessions: Iterable[_Session]) -> list[_Session]:
        return [session for session in sessions if session.last_ms + self._gap_ms > instant_ms]

    def _touches(self, session: _Session, time_ms: int) -> bool:
        return session.first_ms - self._gap_ms <= time_ms <= session.last_ms + self._gap_ms
