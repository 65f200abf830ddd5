"""The fault configuration: a YAML file of its own, read once, checked at the edge. See docs/faults.md.

Raises FaultConfigError with one sentence that names the file, the field and the mend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator, model_validator

from faults.catalogue import ABSENT, ABSENT_BACKENDS, KINDS
from faults.errors import FaultConfigError
from faults.parameters import AnyParameters, NoParameters
from faults.section import Seconds, Section, how_many
from faults.targets import Target
from validator.model.classes import EXPECTABLE

PlanName = Literal[
    "pgval-delay-below-timeout",
    "pgval-delay-above-timeout",
    "pgval-crash",
    "ospbench-worker",
    "ospbench-master",
    "vogel-kill-1",
    "vogel-kill-2",
    "vogel-kill-4",
    "vogel-crash-2",
    "streambench-node",
    "checkmate",
]
Pick = Annotated[str | int, BeforeValidator(lambda pick: how_many(pick, "one", "all", "leader"))]


def expected_classes(names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, where each is a class that can be told by fault. Raises ValueError."""
    for name in names:
        if name not in EXPECTABLE:
            raise ValueError(f"{name} is no class that a fault can be expected to bring; use {', '.join(EXPECTABLE)}")
    return names


Expects = Annotated[tuple[str, ...], AfterValidator(expected_classes)]


class Selector(Section):
    """Which targets a fault hits: one by ``name``, or ``pick`` of those that carry all ``labels``."""

    name: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    pick: Pick = "one"
    """``one``, a number, a share (``50%``, rounded up), ``all``, or ``leader``; the seed draws which."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.name is not None and (self.labels or self.pick != "one"):
            raise ValueError("a target by name takes no labels and no pick")
        return self


class Range(Section):
    """Evenly drawn from the seed."""

    at_least: Seconds
    at_most: Seconds

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.at_least > self.at_most:
            raise ValueError("at_least is above at_most")
        return self


class FaultSpec(Section):
    """One fault of a schedule, before its targets are drawn."""

    kind: str
    target: Selector = Selector()
    lasts: Annotated[Seconds | Range, Field(alias="for")] = 0.0
    """From verified in to the start of healing."""
    name: str | None = None
    parameters: AnyParameters = NoParameters()
    expects: Expects = ()
    """Classes of violations that it is expected to bring: alerts leave them out (docs/faults.md)."""

    @model_validator(mode="before")
    @classmethod
    def _by_kind(cls, data: object) -> object:
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            return data
        for absent in ABSENT:
            if data["kind"] == absent.name:
                raise ValueError(f"{absent.name} is not built: {absent.reason}")
        kind = KINDS.get(data["kind"])
        if kind is None:
            raise ValueError(f"{data['kind']!r} is no kind of fault; `streamproof faults list` shows them")
        target, parameters = data.get("target"), data.get("parameters", {})
        if isinstance(parameters, Mapping):
            try:
                parameters = kind.parameters.model_validate(parameters)
            except ValidationError as error:
                raise ValueError(f"parameters of {kind.name}: {_first_problem(error)}") from error
        return {
            **data,
            "target": {"name": target} if isinstance(target, str) else target or {},
            "parameters": parameters,
        }


class RandomSection(Section):
    """A schedule drawn from the seed, within budgets. It ends where one of them is used up."""

    length: Seconds
    faults_at_most: Annotated[int, Field(ge=1, le=1000)]
    down_at_most: Seconds
    """Sum of what the faults last."""
    gap: Range
    """From healed to the next fault."""


class ScheduleSection(Section):
    """Cycles of control, failure and recovery; each fault of the list has a cycle of its own."""

    warm_up: Seconds = 0.0
    control: Seconds = 0.0
    recovery: Seconds = 0.0
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1
    faults: Annotated[tuple[FaultSpec, ...], Field(min_length=1)]
    random: RandomSection | None = None
    """The faults are then drawn from ``faults``, and control, recovery and repeat are left out."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.random is not None and self.model_fields_set & {"control", "recovery", "repeat"}:
            raise ValueError("random excludes control, recovery and repeat; its gap says how long it waits")
        if self.random is None and any(isinstance(spec.lasts, Range) for spec in self.faults):
            raise ValueError("for: {at_least, at_most} needs random; write one duration")
        return self


class NamedPlanSection(Section):
    """A plan of the literature (faults/plans.py), on your targets."""

    name: PlanName
    target: Selector = Selector()
    """Whose name or labels narrow the targets; how many are hit is the plan's."""
    faster: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """All phases are shorter by this factor. Delays and rates stay, since they are measured against timeouts."""
    expects: Expects = ()
    """As of a fault; it holds for all of the plan."""
    failure_free: Seconds = 0.0
    """How long a run takes without a fault; streambench-node kills at half of it."""

    @field_validator("target")
    @classmethod
    def _picked_by_the_plan(cls, target: Selector) -> Selector:
        if target.pick != "one":
            raise ValueError("the plan says how many targets are hit; leave out pick")
        return target


class KafkaSection(Section):
    """Where the faults topic is. Name a listener that does not lead through a link of ours."""

    bootstrap_servers: str
    topic: str = "faults"
    options: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """librdkafka producer options, security included."""


class LimitsSection(Section):
    """How much a run may break."""

    targets_at_once: Annotated[int, Field(ge=1)] | None = None
    verified_within: Annotated[Seconds, Field(gt=0)] = 10.0
    """How long a probe may take to show that a fault is in."""
    healed_within: Annotated[Seconds, Field(gt=0)] = 60.0
    """How long a probe may take to show that it is gone."""


class FaultConfig(Section):
    """Everything that determines a run but the clock."""

    backend: Literal["local"] = "local"
    seed: int = 0
    state: Path = Path("faults-state")
    """Folder of the journal, the lock and the proxy's socket; relative to the file."""
    kafka: KafkaSection | None = None
    """None: fault windows are in the journal only."""
    targets: Annotated[dict[str, Target], Field(min_length=1)]
    limits: LimitsSection = LimitsSection()
    plan: NamedPlanSection | None = None
    schedule: ScheduleSection | None = None

    @field_validator("backend", mode="before")
    @classmethod
    def _built(cls, backend: object) -> object:
        if isinstance(backend, str) and backend in ABSENT_BACKENDS:
            raise ValueError(ABSENT_BACKENDS[backend])
        return backend

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.plan is None) == (self.schedule is None):
            raise ValueError("there is either plan (a named one) or schedule (your own)")
        return self


def load(path: str | os.PathLike[str]) -> FaultConfig:
    """Read the YAML file at ``path``; ``${NAME}`` is taken from the environment. Raises FaultConfigError."""
    file = Path(path)
    try:
        data = yaml.safe_load(_expand(file.read_text(encoding="utf-8"), file))
    except OSError as error:
        raise FaultConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise FaultConfigError(f"{file}: is no valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(data, dict):
        raise FaultConfigError(f"{file}: must hold a mapping with targets: and schedule: or plan:.")
    return _resolved(parse(data, str(file)), file.resolve().parent)


def parse(data: Mapping[str, object], source: str = "fault configuration") -> FaultConfig:
    """The configuration in ``data``; ``source`` names it in errors. Raises FaultConfigError."""
    try:
        return FaultConfig.model_validate(data)
    except ValidationError as error:
        raise FaultConfigError(f"{source}: {_first_problem(error)}.") from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "as a whole"
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] == "extra_forbidden":
        reason = "is no known key; docs/faults.md lists them"
    return f"{where}: {reason}" + (f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else "")


def _expand(text: str, file: Path) -> str:
    def value_of(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise FaultConfigError(f"{file}: the environment has no {match[1]}, which ${{{match[1]}}} refers to.")
        return os.environ[match[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value_of, text)


def _resolved(config: FaultConfig, folder: Path) -> FaultConfig:
    targets: dict[str, Any] = {}
    for name, target in config.targets.items():
        paths = {field: value for field, value in target if isinstance(value, Path)}
        targets[name] = target.model_copy(update={field: folder / path for field, path in paths.items()})
    return config.model_copy(update={"targets": targets, "state": folder / config.state})
