"""A fault as one value, and the timeline that a seed gives."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pydantic import SerializeAsAny

from faults.catalogue import KINDS
from faults.parameters import AnyParameters
from faults.section import Section
from faults.targets import Target

State = Literal["injected", "verified", "heal_started", "healed"]
"""The states of the faults topic (CONTRACT), in this order."""
STATES: tuple[State, ...] = ("injected", "verified", "heal_started", "healed")


class Fault(Section):
    """What is broken, on which targets and how: all that the kind's probes and its healing need."""

    id: str
    name: str
    kind: str
    targets: dict[str, Target]
    parameters: SerializeAsAny[AnyParameters]
    plan: str
    seed: int
    expects: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Fault:
        """The fault that ``model_dump_json`` wrote; its parameters are read as its kind's."""
        data = json.loads(text)
        parameters = KINDS[data["kind"]].parameters.model_validate(data["parameters"])
        return cls.model_validate({**data, "parameters": parameters})

    @property
    def target_names(self) -> str:
        """As the faults topic has them."""
        return ",".join(self.targets)

    def record(self, state: State, instant: datetime, over_because: str | None = None) -> str:
        """The record of the faults topic for ``state``; ``over_because``: why it ended before its time, if it did."""
        parameters = self.parameters.model_dump(mode="json")
        if over_because is not None and state in ("heal_started", "healed"):
            parameters["over_because"] = over_because
        return record(
            self.id, self.name, self.kind, self.target_names, state, instant, self.plan, self.seed, parameters,
            self.expects,
        )  # fmt: skip


def seconds_in(after: float, own: float | None, last_after: float, lasts: float) -> float:
    """How long a fault of a group is in that begins ``after`` the first: its ``own`` time, or until ``lasts`` have
    passed since the last one began."""
    return last_after - after + lasts if own is None else own


def record(
    fault_id: str,
    name: str,
    kind: str,
    target: str,
    state: State,
    instant: datetime,
    plan: str = "",
    seed: int = 0,
    parameters: Mapping[str, object] | None = None,
    expects: Sequence[str] = (),
) -> str:
    """A record of the faults topic, as CONTRACT has it."""
    return json.dumps(
        {
            "id": fault_id,
            "name": name,
            "kind": kind,
            "target": target,
            "state": state,
            "time": instant.astimezone(UTC).isoformat(timespec="microseconds"),
            "plan": plan,
            "seed": seed,
            "parameters": dict(parameters or {}),
            "expects": list(expects),
        }
    )


@dataclass(frozen=True)
class Step:
    """``wait_seconds`` of the ``before`` phase, then the fault for ``lasts_seconds``, alone or with others.

    ``others``: the faults of its group, each with its seconds after the first one, in order.
    """

    before: str
    wait_seconds: float
    fault: Fault
    lasts_seconds: float
    others: tuple[tuple[float, Fault], ...] = ()
    own_seconds: Mapping[str, float] = field(default_factory=dict)
    """Id of a fault -> how long it is in, where it does not end with its group."""

    @property
    def parts(self) -> tuple[tuple[float, Fault], ...]:
        """All its faults, each with its seconds after the first."""
        return ((0.0, self.fault), *self.others)

    def seconds_of(self, after: float, fault: Fault) -> float:
        """How long a part is in, if injecting took no time."""
        return seconds_in(after, self.own_seconds.get(fault.id), self.parts[-1][0], self.lasts_seconds)

    @property
    def seconds(self) -> float:
        """From the first injection to the last healing, if injecting took no time."""
        return max(after + self.seconds_of(after, fault) for after, fault in self.parts)


@dataclass(frozen=True)
class Timeline:
    """The steps one after the other, and the recovery after the last. A wait starts when the last fault is healed."""

    plan: str
    seed: int
    steps: tuple[Step, ...]
    recovery_seconds: float
    periodic: bool = False
    """A wait is shorter by what injecting and healing the last fault took, so that the next one comes at its time."""

    @property
    def seconds(self) -> float:
        """Length of all, if injecting and healing took no time."""
        return sum(step.wait_seconds + step.seconds for step in self.steps) + self.recovery_seconds


def new_id() -> str:
    """An id of one occurrence: not from the seed, since two runs of one plan are two faults."""
    return str(uuid.uuid4())
