"""A fault as a value, and the timeline that is drawn from a seed."""

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
    """A fault: its kind, targets and parameters, which are all that its probes and its healing need."""

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
        """The fault that ``model_dump_json`` wrote, with the parameters of its kind."""
        data = json.loads(text)
        parameters = KINDS[data["kind"]].parameters.model_validate(data["parameters"])
        return cls.model_validate({**data, "parameters": parameters})

    @property
    def target_names(self) -> str:
        """The names of the targets, separated by commas, as in the faults topic."""
        return ",".join(self.targets)

    def record(self, state: State, instant: datetime, over_because: str | None = None) -> str:
        """The record of the faults topic for ``state``. ``over_because``: why the fault ended early, if it did."""
        parameters = self.parameters.model_dump(mode="json")
        if over_because is not None and state in ("heal_started", "healed"):
            parameters["over_because"] = over_because
        return record(
            self.id, self.name, self.kind, self.target_names, state, instant, self.plan, self.seed, parameters,
            self.expects,
        )  # fmt: skip


def seconds_in(after: float, own: float | None, last_after: float, lasts: float) -> float:
    """Seconds for which a fault of a group is active. It starts ``after`` seconds after the first fault of the group.

    The result is ``own``; if it is None, the fault ends ``lasts`` seconds after the last fault of the group starts.
    """
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
    """A record of the faults topic as JSON. Schema: CONTRACT."""
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
    """``wait_seconds`` of the phase ``before``, then the fault for ``lasts_seconds``, alone or in a group.

    ``others``: the other faults of the group in order, each with its start in seconds after the first one.
    """

    before: str
    wait_seconds: float
    fault: Fault
    lasts_seconds: float
    others: tuple[tuple[float, Fault], ...] = ()
    own_seconds: Mapping[str, float] = field(default_factory=dict)
    """Fault id -> seconds for which the fault is active. A fault without an entry ends with its group."""

    @property
    def parts(self) -> tuple[tuple[float, Fault], ...]:
        """All faults of the step, each with its start in seconds after the first one."""
        return ((0.0, self.fault), *self.others)

    def seconds_of(self, after: float, fault: Fault) -> float:
        """Seconds for which a fault is active, if injecting takes no time."""
        return seconds_in(after, self.own_seconds.get(fault.id), self.parts[-1][0], self.lasts_seconds)

    @property
    def seconds(self) -> float:
        """Seconds from the first injection to the last healing, if injecting takes no time."""
        return max(after + self.seconds_of(after, fault) for after, fault in self.parts)


@dataclass(frozen=True)
class Timeline:
    """The steps in order, and the recovery after the last one. A wait starts when the previous fault is healed."""

    plan: str
    seed: int
    steps: tuple[Step, ...]
    recovery_seconds: float
    periodic: bool = False
    """Whether faults start at fixed intervals: waits are shortened by the time that injection and healing took."""

    @property
    def seconds(self) -> float:
        """Total seconds, if injecting and healing take no time."""
        return sum(step.wait_seconds + step.seconds for step in self.steps) + self.recovery_seconds


def new_id() -> str:
    """An id for one occurrence. It does not depend on the seed, since two runs of one plan are different faults."""
    return str(uuid.uuid4())
