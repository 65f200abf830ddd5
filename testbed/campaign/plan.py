"""The plan of a campaign: a YAML file, read and validated once. See docs/campaigns.md.

Raises PlanError with one sentence that names the file, the field and the fix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from faults.section import Seconds, Section, problems_of
from generator.sections import AnyRate
from generator.workloads.kinds import DEFAULT, named, text_of
from generator.workloads.traffic_join import TrafficJoin
from testbed.campaign.search import Search
from testbed.engines.real import PROFILES, WORKERS_MAX, EngineRefused, Poison, Timeouts, timeouts
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee
from testbed.run_files import PAGES
from validator.model import documents

FaultName = str
"""One of `FAULTS`, or the name of a schedule of the plan."""
LEADER: Final = "crash_leader"
FAULTS: Final = (
    "none", "delay_below_timeout", "delay_above_timeout", "pause_below_timeout", "pause_above_timeout", "crash", LEADER
)  # fmt: skip
DELAYS: Final = ("delay_below_timeout", "delay_above_timeout")

REFERENCE: Final = "reference"
ENGINES: Final = (REFERENCE, *REGISTRY)
ABOVE_TIMEOUT_LEAST: Final = 1.5
"""Minimum duration of a fault above the timeout, in timeouts: a slow probe might not verify a shorter one."""

RATE_WINDOWS: Final = 8
"""Number of windows over which the recovery detector averages the rate. Results arrive in one burst per window, and
one burst more or less must not change the rate by more than the detector's tolerance of 15 %.
"""
CONTROL_WINDOWS_LEAST: Final = RATE_WINDOWS + 2
"""Minimum length of the control phase in windows. Two moving rates, one window apart, need `RATE_WINDOWS` + 1 windows.
One more is needed because the results of the first window arrive after its end."""

_Item = TypeVar("_Item")


class PlanError(Exception):
    """The plan is invalid; one sentence with the fix."""

    exit_status = 2


def _once_each(values: tuple[_Item, ...]) -> tuple[_Item, ...]:
    if len(set(values)) != len(values):
        raise ValueError("lists a value twice; list each once, and use repetitions for more runs")
    return values


def _known_engines(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in ENGINES:
            raise ValueError(f"there is no engine {name}; use {', '.join(ENGINES)}")
    return names


def _text(value: object) -> object:
    # YAML reads `true` as a boolean; engines take text.
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _engine_options(options: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    for name in options:
        if name not in REGISTRY:
            raise ValueError(f"{name} has no options; use {', '.join(REGISTRY)}")
    return options


def _shapes(given: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    for name, section in given.items():
        if name == CONSTANT or section.get("shape") in ("max", "event_time", CONSTANT):
            raise ValueError(f"{name}: {CONSTANT} is the plan's own rate; use another name and another shape")
        try:
            _RATE.validate_python(section)
        except ValidationError as error:
            problem = error.errors()[0]
            what = ": ".join((*map(str, problem["loc"][1:]), problem["msg"].removeprefix("Value error, ").rstrip(".")))
            raise ValueError(f"{name}: {what}; docs/generator.md lists the shapes of a rate") from error
    return given


CONSTANT: Final = "constant"
_RATE: Final[TypeAdapter[AnyRate]] = TypeAdapter(AnyRate)
_OF_RATE: Final = "events_per_second"
"""The settings of a shape that end with this are rates."""
OnceEach = AfterValidator(_once_each)
Text = Annotated[str, BeforeValidator(_text)]
_GIVEN: Final = (
    "rate", "shape", "window", "producers", "preload", "missing_after", "keys", "hot_share", "update_percent"
)  # fmt: skip
"""Axes that are no choice of the operator: the load, the query, and the sidecar's own times."""
_CHOSEN: Final = (
    "parallelism", "partitions", "brokers", "poison", "timeouts", "standby", "grace", "suppress", "commit_interval",
    "session_timeout",
)  # fmt: skip
_AXES: Final = (*_GIVEN, *_CHOSEN)
_OF_ALL_CELLS: Final = {"axes", "scales", "of_sustained", "sustained"}
"""What the plan of one cell does not have."""


def is_choice(axis: str) -> bool:
    """Whether an operator chooses the value of the axis; so is every option of an engine."""
    return axis not in _GIVEN


def _axis(name: str) -> str:
    if name not in _AXES and _option_of(name) is None:
        raise ValueError(f"{name} is not an axis; use {', '.join(_AXES)}, or ENGINE.OPTION")
    return name


def _option_of(axis: str) -> tuple[str, str] | None:
    """Engine and option of an axis such as ``flink.execution.checkpointing.unaligned.enabled``; None: of the plan."""
    engine, _, option = axis.partition(".")
    return (engine, option) if option and engine in REGISTRY else None


Axes = tuple[tuple[str, str], ...]
"""The values of a cell on the axes of the plan: (key, value as in the plan's file)."""


class Phases(Section):
    """Duration of each phase of a run, in seconds. PGVal: 5, 90, 90, 90."""

    warm_up: Seconds = 5.0
    control: Seconds = 30.0
    control_at_most: Seconds = 90.0
    """The control phase lasts until the output rate has been steady for ``control``, but at most this long."""
    failure: Seconds = 12.0
    recovery: Seconds = 40.0
    recovery_at_most: Seconds = 120.0
    """The load continues until it is known whether the output rate has recovered, for at most this long after healing.
    """

    @property
    def seconds(self) -> float:
        """Duration of the load of one run, if the output recovers at once."""
        return self.warm_up + self.control + self.failure + self.recovery

    @property
    def seconds_most(self) -> float:
        """Longest duration of the load, without the time that a healing takes."""
        longer = max(0.0, self.control_at_most - self.control) + max(0.0, self.recovery_at_most - self.recovery)
        return self.seconds + longer


class OfSustained(Section):
    """A share of the rate that a search found."""

    share: Annotated[float, Field(gt=0, le=1)]
    search: Path
    """The plan of the search, relative to the file of this one."""
    scale: str | None = None
    """The scale with which the search ran."""


class CampaignPlan(Section):
    """A matrix of runs and their common settings."""

    engines: Annotated[tuple[str, ...], Field(min_length=1), OnceEach, AfterValidator(_known_engines)]
    workloads: Annotated[tuple[Annotated[str, BeforeValidator(text_of)], ...], Field(min_length=1), OnceEach] = (
        DEFAULT,
    )
    """Names, or mappings of `kind` and parameters, as texts that `named` reads."""
    guarantees: Annotated[tuple[Guarantee, ...], Field(min_length=1), OnceEach]
    """The guarantees that the pipeline declares and the engine is configured for. PGVal's A1 is at_least_once, E1
    exactly_once.
    """
    faults: Annotated[tuple[FaultName, ...], Field(min_length=1), OnceEach]
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 3
    schedules: Mapping[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Mapping[Literal["schedule", "plan", "limits"], Any]
    ] = {}
    """Name -> a fault configuration (docs/faults.md) without targets. Its name can be used in ``faults``."""
    phases: Phases = Phases()
    rate: Annotated[int, Field(ge=PAGES, le=200_000)] = 3000
    """Events per second."""
    of_sustained: OfSustained | None = None
    """Instead of ``rate``: of each engine, workload, guarantee and number of workers its own."""
    sustained: Mapping[str, int] = {}
    """Cell without its fault -> rate. `testbed.campaign.sustained` finds them; a file has none."""
    window: Annotated[Seconds, Field(gt=0)] = 1.0
    keys: Annotated[int, Field(ge=1, le=100_000)] = PAGES
    """Keys of the load: each has a cell, and a part of the engine's state, in each window."""
    hot_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """Skew of the keys: the share of NexMark's events with a hot key; None: Beam's."""
    update_percent: Annotated[float, Field(gt=0, lt=100)] | None = None
    """Share of updates in a workload with updates; None: that of the workload."""
    parallelism: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 2
    standby: Annotated[int, Field(ge=0, le=1)] = 0
    """Flink: a further TaskManager. Kafka Streams: a standby replica of each task's state on another instance."""
    grace: Seconds | None = None
    """Kafka Streams: windows of its DSL with this grace period, which drop later events; None: those of the test bed's
    job, which sets them aside."""
    suppress: bool = False
    """With ``grace``: a window has one result, at the end of its grace period; otherwise one for each flushed update.
    """
    commit_interval: Annotated[Seconds, Field(gt=0)] | None = None
    """Instead of that of ``timeouts``."""
    session_timeout: Annotated[Seconds, Field(ge=1)] | None = None
    """Instead of that of ``timeouts``, whose heartbeats change in proportion."""
    engine_options: Annotated[Mapping[str, Mapping[str, Text]], AfterValidator(_engine_options)] = {}
    """Engine -> its own options, which replace those of the test bed."""
    partitions: Annotated[int, Field(ge=1, le=64)] = 2
    """Partitions of each input and of the output."""
    brokers: Annotated[int, Field(ge=1, le=3)] = 1
    """Each has a replica of every topic. Three: two of them must be in sync, and leaders are placed as in PGVal."""
    producers: Annotated[int, Field(ge=1, le=16)] = 1
    """Producers of the load, which share the rate."""
    shape: str = CONSTANT
    """Of the rate: constant, or one of ``shapes``."""
    shapes: Annotated[
        Mapping[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Mapping[str, Any]], AfterValidator(_shapes)
    ] = {}
    """Name -> a rate as in the generator's configuration, whose events per second are multiples of ``rate``."""
    poison: Poison = "skip"
    """What the engine's job does with a record that does not decode (the fault `poison` of a schedule)."""
    preload: Seconds = 0.0
    """The engine starts after this time of load, on a backlog."""
    axes: Mapping[
        Annotated[str, AfterValidator(_axis)], Annotated[tuple[Text, ...], Field(min_length=1), OnceEach]
    ] = {}
    """Key, or ENGINE.OPTION -> values: a cell for each combination, instead of the one value. The option of an engine
    is an axis of its cells only."""
    scales: Mapping[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Mapping[str, Any]] = {}
    """Name -> the keys that ``--scale NAME`` replaces, for a campaign with results of its own."""
    repeats: str = ""
    """The published table that the plan repeats, and what differs."""
    timeouts: str = "local"
    """Profile of timeouts: local (the default), or one of docs/engines.md."""
    missing_after: Annotated[Seconds, Field(gt=0)] = 45.0
    """How long the sidecar waits for a result before the contribution is missing."""
    search: Search | None = None
    """Searches the highest rate that each cell sustains, or the fewest instances that sustain ``rate``, instead of
    measuring faults."""
    seed: int = 1
    results: Path = Path()
    """Folder of journal, results and tables, relative to the plan's file. Default: PLAN-results."""

    def timeouts_of(self, engine: str) -> Timeouts:
        """The timeouts of an engine. Raises EngineRefused if the profile has none for it."""
        found = timeouts(self.timeouts, engine) if engine != REFERENCE else timeouts("local", engine)
        changes: dict[str, float] = {}
        if self.commit_interval is not None:
            changes["commit_interval_seconds"] = self.commit_interval
        if self.session_timeout is not None:
            share = self.session_timeout / found.session_timeout_seconds
            changes["session_timeout_seconds"] = self.session_timeout
            changes["heartbeat_interval_seconds"] = share * found.heartbeat_interval_seconds
        return found.model_copy(update=changes)

    @property
    def window_ms(self) -> int:
        """The window in milliseconds."""
        return round(self.window * 1000)

    @property
    def grace_ms(self) -> int | None:
        """The grace period in milliseconds."""
        return None if self.grace is None else round(self.grace * 1000)

    @property
    def rate_section(self) -> dict[str, Any] | None:
        """The rate in the configuration of the generator; None: constant."""
        if self.shape == CONSTANT:
            return None
        of = self.shapes[self.shape]
        return {name: float(value) * self.rate if name.endswith(_OF_RATE) else value for name, value in of.items()}

    @property
    def same_in_all(self) -> dict[str, Any]:
        """The settings that a resumed campaign must not change, because they determine the result of a run."""
        return self.model_dump(
            mode="json",
            exclude={
                "engines",
                "workloads",
                "guarantees",
                "faults",
                "repetitions",
                "results",
                "axes",
                "repeats",
                "scales",
                *(() if self.of_sustained is None else ("rate",)),
            },
        )

    def combinations(self, engine: str) -> tuple[Axes, ...]:
        """The values of an engine's cells on all axes of the plan; one empty combination if it has none."""
        rows = [
            [(name, value) for value in values]
            for name, values in self.axes.items()
            if (option := _option_of(name)) is None or option[0] == engine
        ]
        return tuple(product(*rows))

    def on(self, axes: Axes) -> CampaignPlan:
        """The plan of a cell. Raises PlanError if a value cannot be used."""
        if not axes:
            return self
        values: dict[str, object] = {}
        options = {engine: dict(own) for engine, own in self.engine_options.items()}
        for name, value in axes:
            if (option := _option_of(name)) is None:
                values[name] = int(value) if value.isdecimal() else value
            else:
                options.setdefault(option[0], {})[option[1]] = value
        where = ", ".join(f"{name} {value}" for name, value in axes)
        plan = {**self.model_dump(mode="json", exclude=_OF_ALL_CELLS), **values, "engine_options": options}
        return parse(plan, f"axes ({where})")

    def at(self, rate: int, where: str) -> CampaignPlan:
        """The plan with another rate. Raises PlanError if it is too low or too high."""
        return parse({**self.model_dump(mode="json", exclude=_OF_ALL_CELLS), "rate": rate}, f"rate ({where})")

    def workers(self, axes: Mapping[str, str]) -> Sequence[int]:
        """The numbers of workers with which the cell with these axes runs: several if a search tries them."""
        if self.search is not None and self.search.instances is not None:
            fewest, most = self.search.instances
            return range(fewest, most + 1)
        return (int(axes.get("parallelism", self.parallelism)),)

    def of_trial(self, value: int) -> Self:
        """The plan of one trial of the search, which tries this rate, or this number of instances."""
        assert self.search is not None
        quarter = self.search.trial / 4
        lengths = {"control": 2 * quarter, "failure": quarter, "recovery": quarter, "recovery_at_most": 0.0,
                   "control_at_most": 0.0}  # fmt: skip
        phases = self.phases.model_copy(update=lengths)
        tried = "rate" if self.search.instances is None else "parallelism"
        return self.model_copy(update={tried: value, "phases": phases})

    @model_validator(mode="after")
    def _known_faults(self) -> Self:
        for name in self.faults:
            if name not in FAULTS and name not in self.schedules:
                raise ValueError(f"faults: there is no fault {name}; use {', '.join((*FAULTS, *self.schedules))}")
        if shadowed := sorted(set(FAULTS) & self.schedules.keys()):
            raise ValueError(f"schedules: {shadowed[0]} is the name of a fault; use another name")
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        # A worker without a partition never gets one of its own, and holds back the watermark of Flink.
        if self.partitions < self.parallelism:
            raise ValueError(
                f"partitions ({self.partitions}) is below parallelism ({self.parallelism}): a worker would have no "
                "partition; raise it"
            )
        rates, instances = (None, None) if self.search is None else (self.search.rates, self.search.instances)
        if rates and "rate" in self.axes:
            raise ValueError("a search sets the rate of its trials; remove axes.rate")
        if self.of_sustained is not None and ("rate" in self.model_fields_set or "rate" in self.axes):
            raise ValueError("of_sustained sets the rate of each cell; remove rate")
        if self.of_sustained is not None and self.search is not None:
            raise ValueError("a search sets the rate of its trials; remove of_sustained")
        if instances and "parallelism" in self.axes:
            raise ValueError("a search sets the instances of its trials; remove axes.parallelism")
        if instances and instances[1] > min(WORKERS_MAX, self.partitions):
            raise ValueError(
                f"search.instances: use at most {WORKERS_MAX}, and as many partitions (now {self.partitions})"
            )
        if self.search is not None and set(self.faults) != {"none"}:
            raise ValueError("a search has no faults; write faults: [none]")
        if self.suppress and self.grace is None and "grace" not in self.axes:
            raise ValueError("suppress waits for the end of a grace period; set grace")
        if self.shape != CONSTANT and self.shape not in self.shapes:
            raise ValueError(f"shape: there is no {self.shape}; use {', '.join((CONSTANT, *self.shapes))}")
        keys = self.keys * self.producers
        # A search has no other rate than those of its trials, the lowest of which is its first.
        setting, least = ("search.rates", rates[0]) if rates else ("rate", self.rate)
        if self.phases.control < CONTROL_WINDOWS_LEAST * self.window:
            raise ValueError(
                f"phases.control is shorter than {CONTROL_WINDOWS_LEAST} windows and gives no baseline: the "
                f"recovery detector averages the rate over {RATE_WINDOWS} windows; lengthen phases.control"
            )
        for workload in (named(text).stages[0] for text in self.workloads):  # of a chain: the stage with the load
            if workload.kind == TrafficJoin.kind and self.keys != PAGES:
                # Its load has as many lanes as events of this many pages.
                raise ValueError(f"keys must be {PAGES} with {workload.kind}, whose load has its own lanes; set it")
            share = workload.rarest_share
            if self.update_percent is not None and len(workload.streams) > 1:
                share = min(self.update_percent, 100 - self.update_percent) / 100
            if self.hot_share is not None and "hot_share" not in type(workload).model_fields:
                raise ValueError(f"hot_share: {workload.kind} has no hot keys; remove it, or use NexMark's workloads")
            if "hot_share" in workload.parameters and (self.hot_share is not None or "hot_share" in self.axes):
                raise ValueError(f"hot_share is a parameter of {workload.kind} and a key of the plan; remove one")
            # A rate that is a share of another one is known later, with the cell.
            if self.of_sustained is None and least * self.window * share < keys:
                rarest = workload.streams[-1].name
                raise ValueError(
                    f"{setting} is too low for one {rarest} of each of {self.keys} pages in every window of "
                    f"{workload.kind}; raise it"
                )
        if self.timeouts != "local" and self.timeouts not in PROFILES:
            raise ValueError(f"there is no profile {self.timeouts} of timeouts; use local, {', '.join(PROFILES)}")
        if self.poison == "fail" and REFERENCE in self.engines:
            raise ValueError(f"poison: {REFERENCE} always skips; use skip, or other engines")
        if self.parallelism < 2 and "kafka_streams" in self.engines and "pause_above_timeout" in self.faults:
            raise ValueError("with parallelism 1 no instance can take over from a paused one; use 2 or more")
        if self.missing_after <= self.phases.failure and not set(self.faults) <= {"none", *self.schedules}:
            raise ValueError(
                f"missing_after must be above phases.failure ({self.phases.failure:g}s); otherwise results that a "
                "fault only delays are reported as missing; lengthen missing_after"
            )
        for name in self.axes:
            if (option := _option_of(name)) is not None and option[0] not in self.engines:
                raise ValueError(f"axes: {option[0]} is not one of engines; remove {name}, or add the engine")
        for engine in self.engines:
            try:
                if engine != REFERENCE:
                    REGISTRY[engine].engine.check_options(self.engine_options.get(engine, {}))
                session = self.timeouts_of(engine).session_timeout_seconds
            except EngineRefused as refused:
                raise ValueError(str(refused).rstrip(".")) from refused
            above = [fault for fault in self.faults if fault.endswith("_above_timeout")]
            if above and self.phases.failure < ABOVE_TIMEOUT_LEAST * session:
                raise ValueError(
                    f"phases.failure is too short for {above[0]}: the timeout of {engine} is {session:g}s; use "
                    f"{ABOVE_TIMEOUT_LEAST * session:g}s or more"
                )
        return self


def load(path: Path, scale: str | None = None) -> CampaignPlan:
    """Read the YAML file at ``path``, with the values of a ``scale``. Raises PlanError."""
    try:
        text = documents.read(path)
        data = documents.parse(text)
    except OSError as error:
        raise PlanError(
            f"{path}: cannot be read ({error.strerror}); give the path of a plan, see docs/campaigns.md."
        ) from error
    except documents.DocumentRefused as error:
        raise PlanError(f"{path}: invalid YAML ({error}).") from error
    if not isinstance(data, dict):
        raise PlanError(f"{path}: must contain a mapping with engines:, guarantees: and faults:.")
    if "sustained" in data:
        raise PlanError(f"{path}: sustained: a campaign finds these rates; write of_sustained.")
    plan = parse(data, str(path), text)
    if scale is not None and scale not in plan.scales:
        raise PlanError(f"{path}: it has no scale {scale}; its scales are {', '.join(plan.scales) or 'none'}.")
    results = plan.results if "results" in plan.model_fields_set else Path(f"{path.stem}-results")
    if scale is not None:
        if "results" in plan.scales[scale]:
            raise PlanError(f"{path}: scale {scale}: its results have a folder of their own; leave results out.")
        if not results.name:
            raise PlanError(f"{path}: results: {results} has no name to which a scale could be added; name a folder.")
        plan = parse({**data, **plan.scales[scale]}, f"{path} (scale {scale})")
        results = results.with_name(f"{results.name}-{scale}")
    for axes in dict.fromkeys(axes for engine in plan.engines for axes in plan.combinations(engine)):
        plan.on(axes)
    return plan.model_copy(update={"results": Path(os.path.normpath(path.parent / results))})


def parse(data: Mapping[str, object], source: str = "plan", text: str = "") -> CampaignPlan:
    """Validate ``data``; ``source`` names it in error messages, ``text`` is that of its file. Raises PlanError."""
    try:
        return CampaignPlan.model_validate(data)
    except ValidationError as error:
        problems = problems_of(error)
        first = problems[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            reason = "is not a known key; docs/campaigns.md lists the keys"
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        place = documents.at_line(source, text, first["loc"])
        raise PlanError(f"{place}: {where + ': ' if where else ''}{reason}{more}.") from error
