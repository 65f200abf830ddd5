"""The session window: the events of a key without a pause longer than the gap; it ends a gap after its last event.

Source: Flink's `EventTimeSessionWindows`. An event at t opens [t, t + gap). The windows of a key merge if they touch or
overlap (`TimeWindow.intersects`): two events are in one session if their times differ by the gap or less.

A fact belongs to a *slot*: the events of one key within [k * gap, (k + 1) * gap), which are surely in one session.
Adjacent slots of a key become one cell once their nearest events are at most a gap apart (`validator.reconcile.cells`,
SEMANTICS 2.13).
A result belongs to the session whose slots contain its start. Membership is judged: which ids are in the results of a
session, and whether one result has them together (`validator.reconcile.splits`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from validator.oracles.seam import Assigned, Declared, Oracle
from validator.settings.built import FINAL_ONLY, Combination
from validator.settings.durations import PositiveDuration
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    from validator.model.arrays import Bools, Ints
    from validator.settings.topics import Output

DROP_IN_SESSIONS: Final = Combination(
    ("timing.late_policy",),
    "`drop` with `session_window`",
    "late policy drop is not supported for sessions, whose ends move",
)

CUMULATIVE_SESSIONS: Final = Combination(
    ("outputs.emission",),
    "`cumulative` with `session_window`",
    "a later result of a session names another start or end, so which results it replaces is not known",
)
ROUNDING_US: Final = 1_000_000
"""How far the named end of a session may be off. Some engines count in seconds."""


class SessionWindow(Oracle):
    """Sessions per key. Events whose times differ by at most `gap` belong to the same session."""

    kind: Literal["session_window"]
    """Windows that end after a pause."""
    gap: PositiveDuration
    """The longest pause within a session. A session ends this long after its last event."""

    refuses: ClassVar[tuple[Combination, ...]] = (DROP_IN_SESSIONS, CUMULATIVE_SESSIONS)
    cell_noun: ClassVar[str] = "session"
    noun: ClassVar[str] = "session that holds"
    asks_lateness: ClassVar[bool] = True
    ends_are_known: ClassVar[bool] = False
    judges_values: ClassVar[bool] = True
    judges_values_beside_ids: ClassVar[bool] = True

    @classmethod
    def of(cls, gap_us: int) -> Self:
        """Return an oracle that is not read from a file."""
        return cls.model_construct(kind="session_window", gap=gap_us)

    @property
    def grid_us(self) -> int:
        """The length of a slot."""
        return self.gap

    @property
    def span_us(self) -> int:
        """Time from the last event of a session to its end."""
        return self.gap

    @property
    def ends_after_us(self) -> int | None:
        """A session ends a gap after its last event."""
        return self.gap

    @property
    def merging_gap_us(self) -> int | None:
        """Slots merge into one session."""
        return self.gap

    @property
    def answers_once(self) -> bool:
        """A late event may have a result of its own, and any event with emission `incremental`. Results that state
        counts show no parts."""
        return self.reads.names_ids and not self.reads.adds_up

    def contradicts(self, named_us: Ints, ends_us: Ints) -> Bools:
        """Engines name the end of a session, or its last event (Kafka Streams). They and their fields may round."""
        import numpy as np

        found: Bools = np.minimum(np.abs(named_us - ends_us), np.abs(named_us - (ends_us - self.gap))) > ROUNDING_US
        return found

    @property
    def scope_margin_us(self) -> int:
        """A session whose known events are at least this long after the horizon has no event before the horizon."""
        return self.gap + 1

    @property
    def hidden_inputs_lose(self) -> bool:
        """It may separate or join events."""
        return True

    @property
    def explained_by_one(self) -> int | None:
        """An unreadable event may join two sessions into one."""
        return None

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Each event belongs to the slot that contains its time."""
        return Assigned(None, self._floor(event_times_us))

    def starts_of_results(self, named_us: Ints) -> Ints:
        """A result names the start of its session, which lies in a slot."""
        return self._floor(named_us)

    def ends_us(self, starts_us: Ints) -> Ints:
        """The end of a session without a known event. Each event puts off the end of its session."""
        return starts_us + self.gap

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The value is rounded up to a slot: an event that the engine may ignore may have moved its time this far. What
        other events have moved is exact (`validator.reconcile.lateness.with_newest_before`)."""
        return -self._floor(slack_us - event_times_us)

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """The ends of sessions are not on a grid, so the reach of a record that was not read is not rounded."""
        return starts_us + (self.gap - 1) - slack_us

    def reach_at(self, instant_us: int, slack_us: int) -> int:
        """As `latest_reaches_us`."""
        return instant_us - slack_us

    def check_times(self, outputs: Sequence[Output]) -> None:
        """Refuse emission `cumulative` with its reason."""
        for i, output in enumerate(outputs):
            if output.emission == "cumulative":
                raise broken_rule_at(f"outputs[{i}].emission", CUMULATIVE_SESSIONS.problem, FINAL_ONLY)
        super().check_times(outputs)

    def check_values(self, declared: Declared) -> None:
        """Refuse values without the number of events."""
        del declared
        if self.stated.count_name is None:
            problem = "sessions need the number of their events"
            raise broken_rule_at("oracle.values", problem, "add count, such as {events: count}")

    def check(self, declared: Declared) -> None:
        """Also refuse late policy `drop`."""
        super().check(declared)
        if declared.drops_late:
            raise broken_rule_at("timing.late_policy", DROP_IN_SESSIONS.problem, "write report")

    def _floor(self, instants_us: Ints) -> Ints:
        return instants_us - instants_us % self.gap
