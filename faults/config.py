"""The fault configuration: a separate YAML file, read and validated once. See docs/faults.md.

Raises FaultConfigError with one sentence that names the file, the field and the fix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from faults.catalogue import UNSUPPORTED_BACKENDS
from faults.errors import FaultConfigError
from faults.section import Seconds, Section, first_problem, in_the_file, problems_of
from faults.spec import Expects, Range, Selector, Spec
from faults.targets import Target
from validator.model import documents
from validator.model.kafka_options import beside, fitting
from validator.model.references import ReferencesUnresolved, expanded

PlanName = Literal[
    "pgval-delay-below-timeout",
    "pgval-delay-above-timeout",
    "pgval-crash",
    "ospbench-worker",
    "ospbench-master",
    "ospbench-poison",
    "vogel-kill-1",
    "vogel-kill-2",
    "vogel-kill-4",
    "vogel-crash-2",
    "streambench-node",
    "checkmate",
    "checkmate-cyclic",
]


class RandomSection(Section):
    """Budgets of a random schedule. The seed draws the faults until one budget is used up."""

    length: Seconds
    faults_at_most: Annotated[int, Field(ge=1, le=1000)]
    down_at_most: Seconds
    """Budget for the sum of the durations of all faults."""
    gap: Range
    """Time from the verified end of a fault to the start of the next one."""


class ScheduleSection(Section):
    """Cycles of control, failure and recovery. Each fault of the list has its own cycle."""

    warm_up: Seconds = 0.0
    control: Seconds = 0.0
    recovery: Seconds = 0.0
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1
    periodic: bool = False
    """Whether faults start at fixed intervals: the wait for the next fault is shorter by the time for injection and
    healing."""
    faults: Annotated[tuple[Spec, ...], Field(min_length=1)]
    random: RandomSection | None = None
    """Draws the faults from ``faults`` within these budgets. Excludes control, recovery, repeat and periodic."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.random is not None and self.model_fields_set & {"control", "recovery", "repeat", "periodic"}:
            raise ValueError("random excludes control, recovery, repeat and periodic; leave these out")
        if self.random is None and any(isinstance(spec.lasts, Range) for spec in self.faults):
            raise ValueError("for: {at_least, at_most} needs random; write one duration")
        return self


class NamedPlanSection(Section):
    """A plan of the literature (faults/plans.py), applied to the targets of the file."""

    name: PlanName
    type: Literal["process", "namespace", "container", "pods"] = "process"
    """Type of the targets: processes of this machine with their links and topics, network namespaces (only for plans
    that delay), Docker containers, or pods."""
    target: Selector = Selector()
    """Limits the targets by name, labels or input. The plan sets how many of them are hit."""
    faster: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """The durations of all phases are divided by this factor. Delays and rates stay: they relate to timeouts."""
    expects: Expects = ()
    """Classes of violations that any fault of the plan is expected to cause, as in `FaultSpec.expects`."""
    failure_free: Seconds = 0.0
    """Duration of a run without a fault. Only ``streambench-node`` uses it: it kills a node after half of this time."""

    @field_validator("target")
    @classmethod
    def _picked_by_the_plan(cls, target: Selector) -> Selector:
        if target.pick != "one":
            raise ValueError("the plan says how many targets are hit; leave out pick")
        return target


class KafkaSection(Section):
    """The cluster and the name of the faults topic. Use a listener that is not behind a link of the proxy."""

    bootstrap_servers: str
    topic: str = "faults"
    options: Annotated[dict[str, str | int | float | bool], AfterValidator(fitting)] = Field(default_factory=dict)
    """librdkafka producer options, including security options (docs/security.md). Paths are relative to the file."""


class LimitsSection(Section):
    """Limits on the number of targets that are hit at the same time, and timeouts of probes."""

    targets_at_once: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of targets of one fault or one group of faults. Each pod is a target. None: no limit."""
    verified_within: Annotated[Seconds, Field(gt=0)] = 10.0
    """Time within which a probe must show that the fault is active."""
    healed_within: Annotated[Seconds, Field(gt=0)] = 60.0
    """Time within which a probe must show that the fault has ended, counted from the start of healing."""
    survives: Annotated[Seconds, Field(ge=0)] = 10.0
    """Time for which a process must run after a pause. The fault run ends only after this time. A process
    whose session expired ends within a few heartbeats (3 s each with Kafka's defaults)."""


class FaultConfig(Section):
    """Everything that determines a run, except the clock."""

    backend: Literal["local"] = "local"
    seed: int = 0
    state: Path = Path("faults-state")
    """Folder of the journal, the lock and the proxy's socket; relative to the file."""
    kafka: KafkaSection | None = None
    """None: the windows of the faults are written to the journal only."""
    targets: Annotated[dict[str, Target], Field(min_length=1)]
    limits: LimitsSection = LimitsSection()
    plan: NamedPlanSection | None = None
    schedule: ScheduleSection | None = None

    @field_validator("backend", mode="before")
    @classmethod
    def _built(cls, backend: object) -> object:
        if isinstance(backend, str) and backend in UNSUPPORTED_BACKENDS:
            raise ValueError(UNSUPPORTED_BACKENDS[backend])
        return backend

    @model_validator(mode="after")
    def _one_schedule(self) -> Self:
        if (self.plan is None) == (self.schedule is None):
            raise ValueError("give either plan (a named one) or schedule (your own)")
        return self


def load(path: str | os.PathLike[str]) -> FaultConfig:
    """Read the YAML file at ``path``. ``${NAME}`` is replaced from the environment. Raises FaultConfigError."""
    file = Path(path)
    data, text = _read(file, "targets: and either schedule: or plan:")
    return _resolved(parse(data, str(file), text), file.resolve().parent)


def mapping_in(file: Path, keys: str) -> dict[str, Any]:
    """The content of the YAML file, not validated. Errors name the expected ``keys``. Raises FaultConfigError."""
    return _read(file, keys)[0]


def _read(file: Path, keys: str) -> tuple[dict[str, Any], str]:
    try:
        text = documents.read(file)
        data = documents.parse(text, texts=[documents.KAFKA_OPTIONS])
        data = expanded(data, os.environ, file.parent)
    except OSError as error:
        raise FaultConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except documents.DocumentRefused as error:
        raise FaultConfigError(f"{file}: is not accepted as YAML ({error}).") from error
    except ReferencesUnresolved as unresolved:
        raise FaultConfigError("\n".join(unresolved.sentences(str(file), text, {}))) from unresolved
    if not isinstance(data, dict):
        raise FaultConfigError(f"{file}: must hold a mapping with {keys}.")
    return data, text


def parse(data: Mapping[str, object], source: str = "fault configuration", text: str = "") -> FaultConfig:
    """The configuration in ``data``; ``source`` names it in errors, ``text`` is that of its file. Raises
    FaultConfigError."""
    try:
        return FaultConfig.model_validate(data)
    except ValidationError as error:
        place = documents.at_line(source, text, in_the_file(problems_of(error)[0]["loc"]))
        raise FaultConfigError(f"{place}: {first_problem(error)}.") from error


def _resolved(config: FaultConfig, folder: Path) -> FaultConfig:
    targets: dict[str, Any] = {}
    for name, target in config.targets.items():
        paths = {field: value for field, value in target if isinstance(value, Path)}
        targets[name] = target.model_copy(update={field: folder / path for field, path in paths.items()})
    kafka = config.kafka
    if kafka is not None:
        kafka = kafka.model_copy(update={"options": beside(folder, kafka.options)})
    return config.model_copy(update={"targets": targets, "state": folder / config.state, "kafka": kafka})
