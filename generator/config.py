"""The generator's configuration file: YAML, read once, checked at the edge. See docs/generator.md for an example.

Raises ``GeneratorConfigError`` (a ``ValueError``) with one sentence that names the file, the field and the mend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

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
from generator.workloads import mst, sst
from validator.model import documents
from validator.model.references import ReferencesUnresolved, expanded


class GeneratorConfigError(ValueError):
    """The configuration cannot be used; the message is one sentence for a person."""


class GeneratorConfig(Section):
    """Everything that determines a run but the clock."""

    kafka: KafkaSection
    topic: str = "click"
    update_topic: str = "update"
    """Where the updates of workload `mst` go."""
    workload: Literal["sst", "mst"] = "sst"
    """PGVal's: clicks alone (`sst`), or clicks and updates (`mst`)."""
    keys: KeysSection = KeysSection()
    id: IdSection = IdSection()
    window: Annotated[Milliseconds, Field(gt=0)] = 60_000
    events_per_window: Count = 5000
    """Clicks per window and key, of each producer (PGVal's ``events``)."""
    update_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0
    """This share of events is reserved for updates, which thins out the clicks; PGVal's default is 2. The workload
    `mst` sends them."""
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
    sessions: SessionsSection | None = None
    """Keys are silent at times; None: each key has a click in every step."""
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
        of_a_key = 1000 / self.step_ms
        if self.sessions is not None:
            of_a_key *= self.sessions.events / (self.sessions.events + self.silent_rounds)
        return max(1, self.keys.regions) * self.keys.pages * self.producers * of_a_key

    @property
    def silent_rounds(self) -> int:
        """Steps without a click of a key between two of its bursts, so that more than the gap is without one."""
        return 0 if self.sessions is None else self.sessions.gap // self.step_ms

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.step_ms == 0:
            raise ValueError(
                f"events_per_window leaves no whole millisecond between events; use 1 to {self.window} per window"
            )
        if self.workload == "mst" and not mst.updates_per_window(self.events_per_window, self.update_percent):
            raise ValueError("workload mst has no update in a window; raise update_percent or events_per_window")
        if self.workload == "mst" and self.update_topic == self.topic:
            raise ValueError("update_topic is topic; give updates a topic of their own")
        if self.sessions is not None and self.workload == "mst":
            raise ValueError("sessions are of clicks alone; use workload sst, or leave sessions out")
        if self.sessions is not None and self.sessions.gap < self.step_ms:
            raise ValueError(
                f"sessions.gap is shorter than the {self.step_ms} ms between events, so that each would be a session "
                "of its own; raise it or events_per_window"
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


_TEXTS: Final = (documents.KAFKA_OPTIONS,)
_OPTIONS: Final = "kafka.options."
"""Below it the rest of a place is one key, and its value is the text that is given."""


def load(path: str | os.PathLike[str], overrides: Mapping[str, object] | Iterable[str] = ()) -> GeneratorConfig:
    """Read the YAML file at ``path``. ``overrides`` are ``{"limit.events": 1000}`` or ``["limit.events=1000"]``.

    ``${NAME}`` is taken from the environment; a relative journal folder resolves against the file.
    Raises GeneratorConfigError.
    """
    file = Path(path)
    try:
        data = documents.parse(documents.read(file), texts=_TEXTS)
    except OSError as error:
        raise GeneratorConfigError(f"{file}: cannot be read ({error.strerror}).") from error
    except documents.DocumentRefused as error:
        raise GeneratorConfigError(f"{file}: is not accepted as YAML ({error}).") from error
    if not isinstance(data, dict):
        raise GeneratorConfigError(f"{file}: must hold a mapping that starts with kafka: and topic:.")
    for dotted, value in _pairs(overrides):
        _put(data, dotted, value)
    try:
        data = expanded(data, os.environ, file.parent)
    except ReferencesUnresolved as error:
        raise GeneratorConfigError(f"{file}: {error}") from error
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


def _pairs(overrides: Mapping[str, object] | Iterable[str]) -> Iterable[tuple[str, object]]:
    if isinstance(overrides, Mapping):
        yield from overrides.items()
        return
    for text in overrides:
        dotted, equals, value = text.partition("=")
        if not equals:
            raise GeneratorConfigError(f"{text}: an override is written path.to.key=value.")
        if dotted.startswith(_OPTIONS):
            yield dotted, documents.text_value(value)
            continue
        try:
            texts = documents.texts_within(_TEXTS, tuple(dotted.split(".")))
            yield dotted, documents.parse(value, texts=texts)
        except documents.DocumentRefused as error:
            raise GeneratorConfigError(f"{dotted}: its value is not accepted as YAML ({error}).") from error


def _put(data: dict[str, Any], dotted: str, value: object) -> None:
    option = dotted.removeprefix(_OPTIONS)
    *parents, last = [*_OPTIONS.split(".")[:-1], option] if option != dotted else dotted.split(".")
    here = data
    for name in parents:
        below = here.setdefault(name, {})
        if not isinstance(below, dict):
            raise GeneratorConfigError(f"{dotted}: {name} is a value, not a section that could be overridden.")
        here = below
    here[last] = value
