"""The configuration of one engine: a JSON file that the engine's process reads, shared by all its instances."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from generator.workloads.kinds import DEFAULT, AnyWorkload, named
from testbed.engines.core import Operator
from testbed.engines.join import Join, side_prefix
from testbed.engines.mutations import Mutation, Rates

Guarantee = Literal["exactly_once", "at_least_once", "at_most_once"]
Emission = Literal["final", "incremental", "cumulative"]


class Node(BaseModel):
    """A separate network for the first worker of an engine (`testbed.node`), so that its packets can be delayed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str
    host: str
    """Address of this machine in the network. The other processes listen there."""
    address: str
    """Address of the worker in the network."""

    @property
    def entry(self) -> list[str | Path]:
        """The prefix of a command line that runs in the network."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]


@dataclass(frozen=True)
class Clock:
    """An instance's own clock, which faults can move: through the project's agent for a JVM, else through
    libfaketime."""

    by: Path
    """The agent's jar, or the library."""
    file: Path
    """The offset of the clock: `+0` until a fault writes another one."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the instance. The JVMs that it starts inherit it."""
        if self.by.suffix == ".jar":
            # A JVM interprets quotes in this variable like a shell.
            return {"JAVA_TOOL_OPTIONS": shlex.quote(f"-javaagent:{self.by}={self.file}")}
        return {
            "LD_PRELOAD": str(self.by),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


class EventFilter(BaseModel):
    """The events that a filter lets through: those whose field has one of some values, contains a text, or is a number
    below a bound."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    field: str
    one_of: tuple[StrictStr | StrictBool | StrictInt | StrictFloat, ...] | None = Field(default=None, min_length=1)
    contains: str | None = None
    below: float | None = None

    def passes(self, value: object) -> bool:
        """Return whether an event with this value of the field passes. Raises ValueError, TypeError."""
        if self.contains is not None:
            return self.contains in str(value)
        if self.below is not None:
            return float(value) < self.below  # type: ignore[arg-type]
        return _comparable(value) in map(_comparable, self.one_of or ())

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if [self.one_of, self.contains, self.below].count(None) != 2:
            raise ValueError("a filter has one condition: give one_of, contains or below")
        return self


class EngineSettings(BaseModel):
    """Topics, operator, window and guarantee, and the timeouts that experiments change. The name of a duration has its
    unit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str
    workload: AnyWorkload = named(DEFAULT)
    """Decides the form of events and results. Its operator is set by the settings below."""
    node: Node | None = None
    """The separate network of the first instance; None: no separate network."""
    inputs: tuple[str, ...] = ("click",)
    output: str = "output"
    late: str = "lateOutput"
    late_updates: str = "lateUpdates"
    """With `join`: topic for late events of the right input. Those of the left input go to `late`."""
    join: Join | None = None
    """PGVal's MST: the two inputs, left and right, are joined per key and window. None: SST."""
    rejected: str | None = None
    """Topic to which undecodable input is copied unchanged; None: it is only logged."""
    group: str = "engine"
    guarantee: Guarantee = "exactly_once"
    operator: Operator = "tumbling"
    """The operation on events. A passthrough produces a result with id, key and time for each event; none is late."""
    emission: Emission = "final"
    """With operator `running_aggregate`: a result has the ids that are new, or all ids of its key so far
    (`cumulative`). A cumulative result is withdrawn by a null value before the next one of its key."""
    every: int = Field(default=1, gt=0)
    """With aggregates of all events of a key: number of events of a key from one result to the next."""
    window_ms: int = Field(default=60_000, gt=0)
    """Length of a window. With operator `passthrough`: event time by which the mutant misplaces a result."""
    slide_ms: int | None = Field(default=None, gt=0)
    """With operator `sliding`: event time between the starts of two consecutive windows."""
    gap_ms: int | None = Field(default=None, gt=0)
    """With operator `session`: a longer pause between two events of a key ends its session."""
    before_ms: int = Field(default=0, ge=0)
    """With operator `interval`, which joins two inputs: how much earlier than the left event the right one may be."""
    after_ms: int = Field(default=0, ge=0)
    """With operator `interval`: how much later it may be."""
    until: str | None = None
    """With operator `interval`: the field of the left event with the latest time of the right one, in milliseconds."""
    where: EventFilter | None = None
    """With operator `passthrough`: the events that have a result; with `join`: the events of the left input that are
    joined; None: all."""
    where_right: EventFilter | None = None
    """With `join`: the events of the right input that are joined; None: all."""
    max_disorder_ms: int = Field(default=0, ge=0)
    allowed_lateness_ms: int = Field(default=0, ge=0)
    """Event time from the end of a window to its result. A window has one result."""
    idle_after_seconds: float | None = Field(default=10.0, ge=0)
    """A partition that is read to its end and has no data for this long, while another one has, leaves the watermark;
    None: no partition does."""
    commit_interval_seconds: float = Field(default=1.0, ge=0)
    transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    session_timeout_seconds: float = Field(default=6.0, gt=0)
    static_membership: bool = True
    """Whether a restarted instance gets its partitions at once (KIP-345). Otherwise the session of the dead member must
    time out first."""

    mutations: dict[Mutation, float] = {}
    """The mutant only: mutation -> share of results or ids."""
    mutation_seed: int = 0
    delay_seconds: float = 2.0
    delay_beyond_seconds: float = 0.0
    truth: Path | None = None
    """Folder of the mutant's ground truth, with one file per instance."""

    @property
    def right_prefix(self) -> str | None:
        """With `join`: the prefix of the right input's ids within the engine."""
        return None if self.join is None else side_prefix(self.inputs[1])

    @model_validator(mode="after")
    def _fits_the_operator(self) -> Self:
        for name, operator in (("slide_ms", "sliding"), ("gap_ms", "session")):
            if (getattr(self, name) is not None) != (self.operator == operator):
                raise ValueError(f"{name} goes with operator {operator}: give both or neither")
        if self.slide_ms is not None and self.slide_ms > self.window_ms:
            raise ValueError("slide_ms is above window_ms, so events between two windows would be in no window")
        if self.where is not None and self.operator != "passthrough" and self.join is None:
            raise ValueError(
                "setting `where` needs operator passthrough or a join: omit the setting, or change the operator"
            )
        if self.where_right is not None and self.join is None:
            raise ValueError("setting `where_right` needs a join: omit the setting")
        if self.join is not None and self.operator not in ("tumbling", "interval"):
            raise ValueError("join needs operator tumbling or interval: leave join out, or change the operator")
        if self.operator == "interval" and self.join != "inner":
            raise ValueError("operator interval needs join inner: set it, or change the operator")
        if self.until is not None and self.until not in self.workload.carried:
            raise ValueError(f"results of workload {self.workload.kind} do not carry {self.until}: leave until out")
        if self.emission != "final" and self.operator != "running_aggregate":
            raise ValueError(f"emission {self.emission} needs operator running_aggregate: leave emission out")
        if self.every > 1 and (self.operator != "running_aggregate" or not self.workload.aggregates):
            raise ValueError("every needs aggregates of operator running_aggregate: leave every out")
        if Mutation.WITHDRAW in self.mutations and self.emission != "cumulative":
            raise ValueError("mutation withdraw needs emission cumulative: leave withdraw out")
        if self.operator == "sliding" and Mutation.LATE_ROUTE in self.mutations:
            raise ValueError(
                "with operator sliding, mutation late_route would affect all windows of an event: leave late_route out"
            )
        if self.operator == "passthrough" and Mutation.SWAP in self.mutations:
            raise ValueError("with operator passthrough, a result has no other id for mutation swap: leave swap out")
        return self

    @model_validator(mode="after")
    def _two_inputs_to_join(self) -> Self:
        if self.join is not None and len(self.inputs) != 2:
            raise ValueError("join needs two inputs, the left one first")
        return self

    def rates(self) -> Rates:
        """The mutations as rates for the mutant."""
        return Rates(self.mutations, self.delay_seconds, self.delay_beyond_seconds)


def _comparable(value: object) -> object:
    """Return a form of a JSON scalar that compares by type and value: true differs from 1, and numbers compare by
    value."""
    if isinstance(value, bool):
        return ("bool", value)
    return value if isinstance(value, str | int | float) else None
