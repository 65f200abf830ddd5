"""The generator's configuration file: YAML, read once, checked at the edge. See docs/generator.md for an example.

Raises ``GeneratorConfigError`` (a ``ValueError``) with one sentence that names the file, the field and the mend.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from generator import shapes
from generator.workloads import sst

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class GeneratorConfigError(ValueError):
    """The configuration cannot be used; the message is one sentence for a person."""


def _duration_ms(value: object) -> object:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError('a duration is a number with ms, s, m, h or d, such as "60s"')
    return round(float(match[1]) * _UNIT_MS[match[2]])


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("a share is a number from 0 to 1")
    return float(value)


Milliseconds = Annotated[int, BeforeValidator(_duration_ms)]
"""Written as a duration ("60s"), held as milliseconds."""
Share = Annotated[float, BeforeValidator(_share)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSection(_Section):
    bootstrap_servers: str
    options: dict[str, str | int | float | bool] = {}
    """librdkafka producer options, security included; they win over what the generator sets."""


class KeysSection(_Section):
    pages: Count = 6
    regions: Annotated[int, Field(ge=0)] = 0
    """Above 0, the key is composite: every page with every region."""


class IdSection(_Section):
    kind: Literal["integer", "string"] = "integer"
    prefix: str = "click-"
    """Of string ids."""


class MaxRate(_Section):
    shape: Literal["max"] = "max"

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        return shapes.Max()


class ConstantRate(_Section):
    shape: Literal["constant"]
    events_per_second: Rate

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        return shapes.Constant(self.events_per_second)


class EventTimeRate(_Section):
    """As fast as event time, times ``speed``: a window of 60 s takes 60 s at speed 1."""

    shape: Literal["event_time"]
    speed: Rate = 1.0

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        return shapes.Constant(events_per_event_second * self.speed)


class RampRate(_Section):
    shape: Literal["ramp"]
    from_events_per_second: Annotated[float, Field(ge=0)]
    to_events_per_second: Rate
    over: Annotated[Milliseconds, Field(gt=0)]

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        return shapes.Ramp(self.from_events_per_second, self.to_events_per_second, self.over / 1000)


class BurstRate(_Section):
    shape: Literal["burst"]
    events_per_second: Rate
    burst_events_per_second: Rate
    every: Annotated[Milliseconds, Field(gt=0)]
    burst: Annotated[Milliseconds, Field(gt=0)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.burst >= self.every:
            raise ValueError("burst must be shorter than every")
        return self

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        return shapes.Burst(
            self.events_per_second, self.burst_events_per_second, self.every / 1000, self.burst / 1000
        )


class DisorderSection(_Section):
    share: Share = 0.0
    within: Milliseconds = 0
    """Bound of the delay, in event time; also the bound beyond which an event counts as late."""


class LatenessSection(_Section):
    share: Share = 0.0
    beyond: Milliseconds = 0
    """Event time by which a late event exceeds ``disorder.within``, at least."""


class DuplicatesSection(_Section):
    share: Share = 0.0


class LimitSection(_Section):
    """When to end: whichever given limit is reached first; with none, when stopped."""

    events: Count | None = None
    """Distinct ids of all producers together, without copies and flush events."""
    windows: Count | None = None
    """Windows of event time, of every producer."""
    duration: Milliseconds | None = None


class DeliverySection(_Section):
    acks: Literal["0", "1", "all"] = "all"
    idempotent: bool = True
    flush_deadline: Milliseconds = 30_000
    """How long to wait for delivery reports at the end; a send without one is indeterminate."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "lz4"
    linger: Milliseconds = 50

    @model_validator(mode="before")
    @classmethod
    def _acks_as_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("acks"), int) and not isinstance(data["acks"], bool):
            return {**data, "acks": str(data["acks"])}
        return data

    @model_validator(mode="after")
    def _idempotence_needs_all(self) -> Self:
        if self.idempotent and self.acks != "all":
            raise ValueError("idempotent needs acks: all; set idempotent: false or acks: all")
        return self


AnyRate = Annotated[
    MaxRate | ConstantRate | EventTimeRate | RampRate | BurstRate, Field(discriminator="shape")
]


class GeneratorConfig(_Section):
    """Everything that determines a run but the clock."""

    kafka: KafkaSection
    topic: str = "click"
    workload: Literal["sst"] = "sst"
    keys: KeysSection = KeysSection()
    id: IdSection = IdSection()
    window: Annotated[Milliseconds, Field(gt=0)] = 60_000
    events_per_window: Count = 5000
    """Clicks per window and key, of each producer (PGVal's ``events``)."""
    update_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0
    """PGVal reserves this share of events for updates, which thins out the clicks; its default is 2."""
    start: Literal["epoch", "now"] | int = "epoch"
    """Event time zero: the epoch (PGVal), the start of the current window, or milliseconds since the epoch."""
    creation_timestamp: Literal["wall_clock", "event_time"] = "wall_clock"
    """PGVal writes the wall clock; ``event_time`` makes the bytes the same in every run."""
    producers: Count = 1
    processes: Count = 1
    rate: AnyRate = MaxRate()
    disorder: DisorderSection = DisorderSection()
    lateness: LatenessSection = LatenessSection()
    duplicates: DuplicatesSection = DuplicatesSection()
    limit: LimitSection = LimitSection()
    flush_windows: bool = False
    """Send one last event per key, far enough ahead in event time to close all windows before it."""
    delivery: DeliverySection = DeliverySection()
    journal: Path | None = None
    """Folder for the journal, one file per producer; None: no journal."""
    seed: int = 0

    @property
    def step_ms(self) -> int:
        """Event time between two clicks of a key, in milliseconds."""
        return sst.step_ms(self.window, self.events_per_window, self.update_percent)

    @property
    def events_per_event_second(self) -> float:
        """Events of all producers and keys in one second of event time."""
        return max(1, self.keys.regions) * self.keys.pages * self.producers * 1000 / self.step_ms

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.step_ms == 0:
            raise ValueError(
                f"events_per_window leaves no whole millisecond between events; use 1 to {self.window} per window"
            )
        if self.disorder.share and self.disorder.within < self.step_ms:
            raise ValueError(
                f"disorder.within is shorter than the {self.step_ms} ms between events and would disorder nothing"
            )
        if self.lateness.share and self.lateness.beyond < 1:
            raise ValueError("lateness.beyond must be at least 1ms where lateness.share is above 0")
        if self.disorder.share + self.lateness.share > 1:
            raise ValueError("disorder.share and lateness.share add up to more than 1")
        if self.processes > self.producers:
            raise ValueError(f"processes must not exceed producers ({self.producers})")
        return self


def load(path: str | os.PathLike[str], overrides: Mapping[str, object] | Iterable[str] = ()) -> GeneratorConfig:
    """Read the YAML file at ``path``. ``overrides`` are ``{"limit.events": 1000}`` or ``["limit.events=1000"]``.

    ``${NAME}`` is taken from the environment; a relative journal folder resolves against the file.
    Raises GeneratorConfigError.
    """
    file = Path(path)
    try:
        data = yaml.safe_load(_expand(file.read_text(encoding="utf-8"), file))
    except OSError as error:
        raise GeneratorConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except yaml.YAMLError as error:
        raise GeneratorConfigError(f"{file}: is no valid YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(data, dict):
        raise GeneratorConfigError(f"{file}: must hold a mapping that starts with kafka: and topic:.")
    for dotted, value in _pairs(overrides):
        _put(data, dotted, value)
    config = parse(data, str(file))
    if config.journal is not None and not config.journal.is_absolute():
        config = config.model_copy(update={"journal": file.parent / config.journal})
    return config


def parse(data: Mapping[str, object], source: str = "generator configuration") -> GeneratorConfig:
    """The configuration in ``data``; ``source`` names it in errors. Raises GeneratorConfigError."""
    try:
        return GeneratorConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "as a whole"
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            reason = "is no known key; see docs/generator.md for those that are"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise GeneratorConfigError(f"{source}: {where}: {reason}{more}.") from error


def _expand(text: str, file: Path) -> str:
    def value_of(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise GeneratorConfigError(f"{file}: the environment has no {match[1]}, which ${{{match[1]}}} refers to.")
        return os.environ[match[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value_of, text)


def _pairs(overrides: Mapping[str, object] | Iterable[str]) -> Iterable[tuple[str, object]]:
    if isinstance(overrides, Mapping):
        yield from overrides.items()
        return
    for text in overrides:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise GeneratorConfigError(f"{text}: an override is written path.to.key=value.")
        yield dotted, yaml.safe_load(value)


def _put(data: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = dotted.split(".")
    here = data
    for name in parents:
        below = here.setdefault(name, {})
        if not isinstance(below, dict):
            raise GeneratorConfigError(f"{dotted}: {name} is a value, not a section that could be overridden.")
        here = below
    here[last] = value
