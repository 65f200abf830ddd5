"""The sections of the generator's configuration, one class per section. See docs/generator.md."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from generator import shapes
from validator.model.kafka_options import fitting

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _duration_ms(value: object) -> object:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError('a duration is a number with ms, s, m, h or d, such as "60s"')
    return round(float(match[1]) * _UNIT_MS[match[2]])


def _share(value: object) -> object:
    # A `${NAME}` reference is replaced by text.
    if isinstance(value, str) and re.fullmatch(r"[0-9]*\.?[0-9]+", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError("a share is a number from 0 to 1")
    return float(value)


Milliseconds = Annotated[int, BeforeValidator(_duration_ms)]
"""Written as a duration ("60s"), stored as milliseconds."""
Share = Annotated[float, BeforeValidator(_share)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]


class Section(BaseModel):
    """Immutable; rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSection(Section):
    """Connection to Kafka."""

    bootstrap_servers: str
    options: Annotated[dict[str, str | int | float | bool], AfterValidator(fitting)] = {}
    """librdkafka producer options, including security options (docs/security.md); they override the generator's own."""


class KeysSection(Section):
    """The keys of events."""

    pages: Count = 6
    regions: Annotated[int, Field(ge=0)] = 0
    """Number of regions. Above 0 the key is composite: each page is combined with each region."""


class IdSection(Section):
    """The form of ids."""

    kind: Literal["integer", "string"] = "integer"
    prefix: str = "click-"
    """Prefix of string ids."""
    update_prefix: str = "update-"
    """Prefix of string ids of updates."""


class MaxRate(Section):
    """The producers send as fast as they can."""

    shape: Literal["max"] = "max"

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Max()


class ConstantRate(Section):
    """A constant rate."""

    shape: Literal["constant"]
    events_per_second: Rate

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Constant(self.events_per_second)


class EventTimeRate(Section):
    """The rate at which event time advances ``speed`` times as fast as the clock: at 1, a window of 60 s takes 60 s."""

    shape: Literal["event_time"]
    speed: Rate = 1.0

    def build(self, events_per_event_second: float) -> shapes.RateShape:
        """The combined rate of all producers."""
        return shapes.Constant(events_per_event_second * self.speed)


class RampRate(Section):
    """A linear change from one rate to another within ``over``. The second rate is then kept."""

    shape: Literal["ramp"]
    from_events_per_second: Annotated[float, Field(ge=0)]
    to_events_per_second: Rate
    over: Annotated[Milliseconds, Field(gt=0)]

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Ramp(self.from_events_per_second, self.to_events_per_second, self.over / 1000)


class BurstRate(Section):
    """A base rate, and a higher rate for the time ``burst`` at the end of each period ``every``."""

    shape: Literal["burst"]
    events_per_second: Rate
    burst_events_per_second: Rate
    every: Annotated[Milliseconds, Field(gt=0)]
    burst: Annotated[Milliseconds, Field(gt=0)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.burst >= self.every:
            raise ValueError("burst must be shorter than the period of the bursts (every)")
        return self

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Burst(self.events_per_second, self.burst_events_per_second, self.every / 1000, self.burst / 1000)


class SingleBurstRate(Section):
    """A high rate for the time ``burst`` at the start, then a lower one (OSPBench's single burst)."""

    shape: Literal["single_burst"]
    events_per_second: Rate
    burst_events_per_second: Rate
    burst: Annotated[Milliseconds, Field(gt=0)]

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.SingleBurst(self.events_per_second, self.burst_events_per_second, self.burst / 1000)


class _Between(Section):
    """A rate that varies between two bounds, with a period."""

    from_events_per_second: Annotated[float, Field(ge=0)]
    to_events_per_second: Rate
    every: Annotated[Milliseconds, Field(gt=0)]

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.to_events_per_second < self.from_events_per_second:
            raise ValueError("to_events_per_second is below from_events_per_second; exchange them")
        return self


class CosineRate(_Between):
    """A wave between two rates that begins with the higher one; a period lasts ``every``."""

    shape: Literal["cosine"]

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Cosine(self.from_events_per_second, self.to_events_per_second, self.every / 1000)


class RandomRate(_Between):
    """A rate that is drawn between two bounds for each ``every``."""

    shape: Literal["random"]
    every: Annotated[Milliseconds, Field(gt=0)] = 1_000
    seed: int = 0

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.RandomSteps(self.from_events_per_second, self.to_events_per_second, self.every / 1000, self.seed)


class StairsRate(_Between):
    """Rates at equal distances between two bounds, each for ``every``, upward or downward. The last one is kept."""

    shape: Literal["increase", "decrease"]
    steps: Annotated[int, Field(ge=2)] = 5

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        step = (self.to_events_per_second - self.from_events_per_second) / (self.steps - 1)
        rates = tuple(self.from_events_per_second + step * number for number in range(self.steps))
        return shapes.Steps(rates if self.shape == "increase" else rates[::-1], self.every / 1000)


class SpikingRate(Section):
    """A base rate, and a higher rate for the time ``spike`` somewhere in each period ``every``."""

    shape: Literal["spiking"]
    events_per_second: Rate
    spike_events_per_second: Rate
    every: Annotated[Milliseconds, Field(gt=0)]
    spike: Annotated[Milliseconds, Field(gt=0)]
    seed: int = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.spike >= self.every:
            raise ValueError("spike must be shorter than the period of the spikes (every)")
        return self

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.Spikes(
            self.events_per_second, self.spike_events_per_second, self.every / 1000, self.spike / 1000, self.seed
        )


class MicroBatchesRate(Section):
    """A constant rate in batches, as OSPBench publishes: ten a second."""

    shape: Literal["micro_batches"]
    events_per_second: Rate
    batches_per_second: Rate = 10.0

    def build(self, events_per_event_second: float) -> shapes.RateShape:  # noqa: ARG002 - one signature for all
        """The combined rate of all producers."""
        return shapes.MicroBatches(self.events_per_second, self.batches_per_second)


class DisorderSection(Section):
    """A share of events is sent out of order, with a bounded delay."""

    share: Share = 0.0
    within: Milliseconds = 0
    """Maximum delay in event time. An event with a longer delay is late."""


class LatenessSection(Section):
    """A share of events is sent with a longer delay than ``disorder.within``."""

    share: Share = 0.0
    beyond: Milliseconds = 0
    """Minimum event time by which a late event exceeds ``disorder.within``."""


class DuplicatesSection(Section):
    """A share of events is sent twice with the same id."""

    share: Share = 0.0


class SessionsSection(Section):
    """Bursts of clicks per key, separated by silences."""

    events: Count
    """Clicks of a key per burst, one step apart (the window length divided by `events_per_window`)."""
    gap: Annotated[Milliseconds, Field(gt=0)]
    """The event time between the last click of a burst and the next click of the key is longer than this."""


class LimitSection(Section):
    """The run ends at the first limit that is reached. Without limits it ends when it is stopped."""

    events: Count | None = None
    """Number of distinct ids of all producers together, without second copies and flush events."""
    windows: Count | None = None
    """Number of windows of event time that each producer fills."""
    duration: Milliseconds | None = None


class DeliverySection(Section):
    """How Kafka's client sends and acknowledges events."""

    acks: Literal["0", "1", "all"] = "all"
    idempotent: bool = True
    flush_deadline: Milliseconds = 30_000
    """Time to wait for delivery reports at the end of the run. A send without a report by then is indeterminate."""
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
            raise ValueError("idempotent requires acks: all; set idempotent: false or acks: all")
        return self


AnyRate = Annotated[
    MaxRate
    | ConstantRate
    | EventTimeRate
    | RampRate
    | BurstRate
    | SingleBurstRate
    | CosineRate
    | RandomRate
    | StairsRate
    | SpikingRate
    | MicroBatchesRate,
    Field(discriminator="shape"),
]
