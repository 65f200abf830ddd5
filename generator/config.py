"""The generator's configuration file in YAML, read and validated once. docs/generator.md has an example.

Raises ``GeneratorConfigError`` (a ``ValueError``) with one sentence that names the file, the field and the fix.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from generator.grid import GridPlan, events_before, rounds_before, step_ms
from generator.sections import (
    AnyRate,
    Count,
    DeliverySection,
    DisorderSection,
    DuplicatesSection,
    IdSection,
    KafkaSection,
    KeysSection,
    LatenessSection,
    LimitSection,
    MaxRate,
    Milliseconds,
    Section,
    SessionsSection,
)
from generator.shapes import share_of
from generator.workloads.kinds import DEFAULT, AnyWorkload, named
from generator.workloads.seam import Load
from validator.model import documents
from validator.model.kafka_options import beside
from validator.model.references import ReferencesUnresolved, expanded


class GeneratorConfigError(ValueError):
    """The configuration is invalid; the message is one sentence for the user."""


class GeneratorConfig(Section):
    """Everything that determines a run, except the clock."""

    kafka: KafkaSection
    topic: str = "click"
    update_topic: str = "update"
    """Topic of the second stream, such as the updates of `mst`."""
    workload: AnyWorkload = named(DEFAULT)
    """The name of a workload, or a mapping with its `kind` and its parameters."""
    keys: KeysSection = KeysSection()
    id: IdSection = IdSection()
    window: Annotated[Milliseconds, Field(gt=0)] = 60_000
    events_per_window: Count = 5000
    """Clicks that each producer sends per window and key (PGVal's ``events``)."""
    update_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0
    """Percentage of ``events_per_window`` that is reserved for updates (PGVal's default is 2). The number of clicks is
    smaller by this percentage. Only a workload with updates sends them.
    """
    start: Literal["epoch", "now"] | int = "epoch"
    """Where event time starts: at the epoch (as in PGVal), at the start of the current window (``now``), or at a number
    of milliseconds since the epoch."""
    creation_timestamp: Literal["wall_clock", "event_time"] = "wall_clock"
    """Clock of the field ``creationTimestamp``. PGVal writes the wall clock. With ``event_time`` every run produces the
    same bytes."""
    producers: Count = 1
    processes: Count = 1
    rate: AnyRate = MaxRate()
    disorder: DisorderSection = DisorderSection()
    lateness: LatenessSection = LatenessSection()
    duplicates: DuplicatesSection = DuplicatesSection()
    sessions: SessionsSection | None = None
    """Bursts and silences of each key; None: each key has a click at every step."""
    limit: LimitSection = LimitSection()
    flush_windows: bool = False
    """Whether the run ends with one event per key, far enough ahead in event time to close all earlier windows."""
    delivery: DeliverySection = DeliverySection()
    journal: Path | None = None
    """Folder for the journal, with one file per producer; None: no journal."""
    seed: int = 0

    @property
    def step_ms(self) -> int:
        """Event time between two clicks of a key, in milliseconds."""
        return step_ms(self.window, self.events_per_window, self.update_percent)

    @property
    def topics_of_streams(self) -> tuple[str, ...]:
        """The topic of each stream of the workload: the configured one, else the one that has the stream's name."""
        given = (("topic", self.topic), ("update_topic", self.update_topic))
        return tuple(
            topic if setting in self.model_fields_set else stream.name
            for stream, (setting, topic) in zip(self.workload.streams, given, strict=False)
        )

    @property
    def events_per_event_second(self) -> float:
        """Events of all producers and keys per second of event time."""
        of_a_key = 1000 / self.step_ms
        if self.sessions is not None:
            of_a_key *= self.sessions.events / (self.sessions.events + self.silent_steps)
        return max(1, self.keys.regions) * self.keys.pages * self.producers * of_a_key

    @property
    def silent_steps(self) -> int:
        """Steps without a click of a key between two of its bursts. The time from the last click of a burst to the
        first click of the next is one step longer, and exceeds the session gap."""
        return 0 if self.sessions is None else self.sessions.gap // self.step_ms

    def load(self, producer: int, start_ms: int) -> Load:
        """The load of producer ``producer``; ``start_ms`` is event time zero."""
        named_ids = self.id.kind == "string"
        return Load(
            plan=self._plan(producer, start_ms),
            window_ms=self.window,
            events_per_window=self.events_per_window,
            update_percent=self.update_percent,
            pages=self.keys.pages,
            regions=self.keys.regions,
            id_prefixes={"click": self.id.prefix, "update": self.id.update_prefix} if named_ids else None,
        )

    def _plan(self, producer: int, start_ms: int) -> GridPlan:
        plan = GridPlan(
            producer=producer,
            producers=self.producers,
            keys=self.keys.pages * max(1, self.keys.regions),
            step_ms=self.step_ms,
            start_ms=start_ms,
            events=None,
            seed=self.seed,
            disorder_share=self.disorder.share,
            disorder_ms=self.disorder.within,
            late_share=self.lateness.share,
            late_by_ms=self.lateness.beyond,
            duplicate_share=self.duplicates.share,
            burst_events=1 if self.sessions is None else self.sessions.events,
            silent_steps=self.silent_steps,
        )
        limits = []
        if self.limit.events is not None:
            limits.append(int(share_of(self.limit.events, producer, self.producers)))
        if self.limit.windows is not None:
            limits.append(events_before(plan, rounds_before(self.window, self.limit.windows, self.step_ms)))
        return replace(plan, events=min(limits, default=None))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.step_ms == 0:
            raise ValueError(
                f"events_per_window leaves less than one millisecond between events; use 1 to {self.window} per window"
            )
        if len(set(self.topics_of_streams)) < len(self.topics_of_streams):
            raise ValueError("update_topic equals topic; use a separate topic for updates")
        self.workload.check(self.load(0, 0))
        if self.sessions is not None and self.sessions.gap < self.step_ms:
            raise ValueError(
                f"sessions.gap is shorter than the {self.step_ms} ms between events, so every event would be a "
                "session of its own; raise sessions.gap or events_per_window"
            )
        if self.disorder.share and self.disorder.within < self.step_ms:
            raise ValueError(
                f"disorder.within is shorter than the {self.step_ms} ms between events, so no event could be out of "
                "order; raise disorder.within or events_per_window"
            )
        if self.lateness.share and self.lateness.beyond < 1:
            raise ValueError("lateness.beyond must be at least 1ms if lateness.share is above 0")
        if self.disorder.share + self.lateness.share > 1:
            raise ValueError("disorder.share and lateness.share add up to more than 1")
        if self.processes > self.producers:
            raise ValueError(f"processes must not exceed producers ({self.producers})")
        return self


_TEXTS: Final = (documents.KAFKA_OPTIONS,)
_OPTIONS: Final = "kafka.options."
"""Everything after this prefix is one option name, and its value is kept as text."""


def load(path: str | os.PathLike[str], overrides: Mapping[str, object] | Iterable[str] = ()) -> GeneratorConfig:
    """Read the YAML file at ``path``. ``overrides`` are ``{"limit.events": 1000}`` or ``["limit.events=1000"]``.

    ``${NAME}`` is replaced from the environment; relative paths of the journal and of `kafka.options` are resolved
    against the file's folder. Raises GeneratorConfigError.
    """
    file = Path(path)
    try:
        text = documents.read(file)
        data = documents.parse(text, texts=_TEXTS)
    except OSError as error:
        raise GeneratorConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except documents.DocumentRefused as error:
        raise GeneratorConfigError(f"{file}: invalid YAML ({error}).") from error
    if not isinstance(data, dict):
        raise GeneratorConfigError(f"{file}: must contain a mapping with kafka: and topic:.")
    origins: dict[documents.Place, str] = {}
    for dotted, value in _pairs(overrides):
        _put(data, dotted, value)
        origins[_steps(dotted)] = f"--set {dotted}"
    try:
        data = expanded(data, os.environ, file.parent)
    except ReferencesUnresolved as unresolved:
        raise GeneratorConfigError("\n".join(unresolved.sentences(str(file), text, origins))) from unresolved
    config = parse(data, str(file), text, origins)
    kafka = config.kafka.model_copy(update={"options": beside(file.resolve().parent, config.kafka.options)})
    config = config.model_copy(update={"kafka": kafka})
    if config.journal is not None and not config.journal.is_absolute():
        config = config.model_copy(update={"journal": file.parent / config.journal})
    return config


def parse(
    data: Mapping[str, object],
    source: str = "generator configuration",
    text: str = "",
    origins: Mapping[documents.Place, str] | None = None,
) -> GeneratorConfig:
    """Validate ``data``; ``source`` names it in error messages, ``text`` is that of its file, ``origins`` are as in
    `documents.at_setting`. Raises GeneratorConfigError."""
    try:
        return GeneratorConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ").rstrip(".")
        if first["type"] == "extra_forbidden":
            reason = "is not a known key; docs/generator.md lists the keys"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        place = documents.at_setting(source, text, first["loc"], origins or {})
        raise GeneratorConfigError(f"{place}: {reason}{more}.") from error


def _pairs(overrides: Mapping[str, object] | Iterable[str]) -> Iterable[tuple[str, object]]:
    if isinstance(overrides, Mapping):
        yield from overrides.items()
        return
    for text in overrides:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise GeneratorConfigError(f"{text}: write an override as path.to.key=value.")
        if dotted.startswith(_OPTIONS):
            yield dotted, documents.text_value(value)
            continue
        try:
            texts = documents.texts_within(_TEXTS, tuple(dotted.split(".")))
            yield dotted, documents.parse(value, texts=texts)
        except documents.DocumentRefused as error:
            raise GeneratorConfigError(f"{dotted}: the value is invalid YAML ({error}).") from error


def _steps(dotted: str) -> tuple[str, ...]:
    option = dotted.removeprefix(_OPTIONS)
    return (*documents.KAFKA_OPTIONS, option) if option != dotted else tuple(dotted.split("."))


def _put(data: dict[str, Any], dotted: str, value: object) -> None:
    *parents, last = _steps(dotted)
    here = data
    for name in parents:
        below = here.setdefault(name, {})
        if not isinstance(below, dict):
            raise GeneratorConfigError(f"{dotted}: {name} is a value and has no keys to override.")
        here = below
    here[last] = value
