"""The fault windows of an experiment, from the toolkit's calls of a control. Uses no clock and no Kafka.

An action of the method opens a window. The experiment's rollbacks close all windows, since the rollbacks heal. Without
rollbacks, the end of the method closes them. An action in `momentary` is over when it returns and closes its window.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from faults.fault import State, new_id, record

_OURS: Final = ("chaosstreamproof.", "faults.chaostoolkit.")
"""The second one is the former name, which experiments in a checkout may still have."""


@dataclass(frozen=True)
class PublishedState:
    """One record of the faults topic."""

    id: str
    value: str


@dataclass
class Windows:
    """The open windows of one experiment. ``targets``: name of an action -> its target, for the reader; ``expects``:
    name of an action -> the violation classes that it is expected to cause."""

    plan: str
    targets: Mapping[str, str] = field(default_factory=dict)
    momentary: Collection[str] = ()
    expects: Mapping[str, Sequence[str]] = field(default_factory=dict)
    in_method: bool = False
    _open: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def open_names(self) -> list[str]:
        """The actions whose windows are open."""
        return [str(activity["name"]) for activity in self._open.values()]

    def action_begins(self, activity: Mapping[str, Any], now: datetime) -> Iterator[PublishedState]:
        """Open a window if the action is part of the method, is not a dry run, and does not publish its own window."""
        if not self.in_method or activity["type"] != "action" or activity.get("dry") or _publishes_itself(activity):
            return
        fault = new_id()
        self._open[fault] = activity
        yield self._published(fault, "injected", now)

    def action_ended(self, activity: Mapping[str, Any], now: datetime) -> Iterator[PublishedState]:
        """Close the action's window if the action is momentary."""
        if activity["name"] in self.momentary:
            for fault in [fault for fault, opened in self._open.items() if opened["name"] == activity["name"]]:
                yield self._published(fault, "heal_started", now)
                yield from self._closed(fault, now)

    def healing_begins(self, now: datetime) -> Iterator[PublishedState]:
        """Mark the start of healing in all open windows."""
        for fault in self._open:
            yield self._published(fault, "heal_started", now)

    def healed(self, now: datetime) -> Iterator[PublishedState]:
        """Close all open windows."""
        for fault in list(self._open):
            yield from self._closed(fault, now)

    def _closed(self, fault: str, now: datetime) -> Iterator[PublishedState]:
        yield self._published(fault, "healed", now)
        del self._open[fault]

    def _published(self, fault: str, state: State, now: datetime) -> PublishedState:
        activity = self._open[fault]
        name = str(activity["name"])
        target = self.targets.get(name, self.plan)
        return PublishedState(
            fault,
            record(
                fault, name, _kind(activity), target, state, now, plan=self.plan, expects=self.expects.get(name, ())
            ),
        )


def _publishes_itself(activity: Mapping[str, Any]) -> bool:
    return str(activity.get("provider", {}).get("module", "")).startswith(_OURS)


def _kind(activity: Mapping[str, Any]) -> str:
    """The function of the action, else the type of its provider."""
    provider = activity.get("provider", {})
    return str(provider.get("func") or provider.get("type") or "action")
