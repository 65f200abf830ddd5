"""The interface of a workload: its streams, its events and their bytes, the operation on them, and how it is judged.

A module of this package that defines a class with a `kind` is a workload. `generator.workloads.kinds` finds it. The
generator, the reference engine, the demo and campaigns use a workload only through the methods of `Workload`.
docs/generator.md describes how to add one.

Settings of engines and of the sidecar are plain mappings, because this package knows neither of them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt

from generator.grid import GridPlan, GridSequence
from generator.sections import Section
from generator.sends import SendBatch

Numbers = npt.NDArray[np.int64]
Columns = tuple[list[int], list[int]]
CLOSING_PER_PARTITION: Final = 256
"""Number of events per partition among which one for each partition is searched."""


@dataclass(frozen=True)
class Stream:
    """An input topic."""

    name: str
    """Name of the topic, unless a configuration gives another one. Results list the ids of its events as `NAMEIds`."""
    fields: Mapping[str, str]
    """The fields of a value: its `id`, `key` and `event_time`."""
    id_paths: tuple[str, ...] = ()
    """If an id has several fields, as that of a result of another workload: their paths, in place of `id`."""
    time_unit: str | None = None
    """Unit of a number in `event_time`; None: it is ISO 8601 text."""
    columns: tuple[str, ...] = ()
    """If values are lines of texts that tabs separate: their names. Empty: values are JSON."""
    layout: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """If values are raw bytes: field -> its place, as in the sidecar's format `raw`."""
    has_words: bool = False
    """Whether the key is a text of which each word is a key: a field, or what rules find (`matched`)."""
    matched: str | None = None
    """The field by which rules find the keys of an event; None: the key is a field."""
    late: str = "lateOutput"
    """Name of the topic for late events."""
    late_fields: Mapping[str, str] = field(default_factory=dict)
    """The fields of late events; empty: those of the events. Late events are JSON."""

    @property
    def set_aside(self) -> dict[str, Any]:
        """The sidecar's fields of late events. An id of several fields is an array there."""
        several = {"id": [f"id.{place}" for place in range(len(self.id_paths))]} if self.id_paths else {}
        return several | dict(self.late_fields or self.fields)

    @property
    def is_split(self) -> bool:
        """Whether a field has the words that are the keys."""
        return self.has_words and self.matched is None

    def input(self, topic: str, *, has_ids: bool = True) -> dict[str, Any]:
        """The sidecar's section for the topic. Beside results without ids it has none, either."""
        at = self.fields["event_time"]
        event_time = at if self.time_unit is None else {"path": at, "unit": self.time_unit}
        words = {"explode": {"at": "whitespace"}} if self.is_split else {}
        several = {"id": list(self.id_paths)} if self.id_paths else {}
        fields: dict[str, Any] = {**several, **self.fields, "event_time": event_time}
        if self.matched is not None:
            fields["key"] = self.matched
        if not has_ids:
            fields.pop("id")
        return {"topic": topic, **self._format, **words, "fields": fields}

    @property
    def _format(self) -> dict[str, Any]:
        if self.layout:
            return {"format": {"kind": "raw", "fields": {name: dict(place) for name, place in self.layout.items()}}}
        if self.columns:
            return {"format": {"kind": "csv", "columns": list(self.columns), "delimiter": "\t"}}
        return {}


@dataclass(frozen=True)
class Load:
    """The settings of the load of one producer. Times are milliseconds."""

    plan: GridPlan
    window_ms: int
    events_per_window: int
    update_percent: float
    pages: int
    regions: int
    id_prefixes: Mapping[str, str] | None
    """Stream -> prefix of its text ids; None: ids are integers."""


class Events(Protocol):
    """The sends of one producer, in order. They do not depend on how they are cut into batches."""

    @property
    def taken(self) -> int:
        """The sends so far that count for rates and limits."""

    @property
    def next_numbers(self) -> tuple[int, ...]:
        """Per stream, a number above those of all ids so far."""

    def take(self, n: int) -> tuple[SendBatch, ...]:
        """The next ``n`` sends that count, and others that follow them: a batch per stream. All are empty at the
        end."""

    def drain(self) -> tuple[SendBatch, ...]:
        """End the sequence: the sends that were delayed."""


class GridEvents:
    """Events of a grid: those of the only stream, or after `split` those of several."""

    def __init__(self, plan: GridPlan) -> None:
        self._grid = GridSequence(plan)
        self.taken = 0

    @property
    def next_numbers(self) -> tuple[int, ...]:
        """See `Events`."""
        return (self._grid.next_number,)

    def take(self, n: int) -> tuple[SendBatch, ...]:
        """See `Events`."""
        return self._counted(self._grid.take(n))

    def drain(self) -> tuple[SendBatch, ...]:
        """See `Events`."""
        return self._counted(self._grid.drain())

    def split(self, batch: SendBatch) -> tuple[SendBatch, ...]:
        """The sends of each stream."""
        return (batch,)

    def _counted(self, batch: SendBatch) -> tuple[SendBatch, ...]:
        self.taken += len(batch)
        return self.split(batch)


class Keyed(GridEvents):
    """The events of a grid, with the keys that ``key_of`` finds."""

    def __init__(self, plan: GridPlan, key_of: Callable[[Numbers], Numbers]) -> None:
        super().__init__(plan)
        self._key_of = key_of

    def split(self, batch: SendBatch) -> tuple[SendBatch, ...]:
        """The same numbers and times."""
        batch.keys = self._key_of(np.array(batch.numbers, np.int64)).tolist()
        return (batch,)


class Wire(ABC):
    """The bytes of a stream's events."""

    journaled: Mapping[str, object]
    """How the header of a journal describes keys and ids."""

    @abstractmethod
    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """The values of the events, in order. If ``created_ms`` is negative, the creation time is the event time."""

    @abstractmethod
    def number_in(self, value: bytes) -> int:
        """The id number in a value that ``render`` produced."""

    @abstractmethod
    def kafka_key(self, key: int) -> bytes:
        """The key of the record of an event with this key."""

    @abstractmethod
    def closing(self, first_number: int, partition_of: Callable[[bytes], int], partitions: int) -> Columns:
        """Numbers (from ``first_number``) and keys of events that reach every partition to which events go."""


class NumberedWire(Wire):
    """The bytes of events whose fields, and therefore keys, follow from their numbers. Keys have no bound."""

    journaled: Mapping[str, object] = {"keys": [], "key_form": "%d", "id_prefix": None}

    @abstractmethod
    def keys_of(self, numbers: Numbers) -> Numbers:
        """The keys of the events with these numbers."""

    def kafka_key(self, key: int) -> bytes:
        """The key in decimal digits."""
        return b"%d" % key

    def closing(self, first_number: int, partition_of: Callable[[bytes], int], partitions: int) -> Columns:
        """Consecutive events until each partition has one. Gives up after many, since some partition has no key."""
        numbers = np.arange(first_number, first_number + CLOSING_PER_PARTITION * partitions)
        keys: list[int] = self.keys_of(numbers).tolist()
        reached: dict[int, int] = {}
        for place, key in enumerate(keys):
            reached.setdefault(partition_of(self.kafka_key(key)), place)
            if len(reached) == partitions:
                break
        end = max(reached.values()) + 1
        return numbers[:end].tolist(), keys[:end]


class Workload(Section, ABC):
    """One workload. Its pydantic fields are its parameters. Topics are given in the order of `streams`."""

    kind: ClassVar[str]
    """Its name in configurations."""
    streams: ClassVar[tuple[Stream, ...]]
    follows: ClassVar[type[Workload] | None] = None
    """The workload whose results are its events: the stage before it. None: the generator sends its events."""
    rarest_share: ClassVar[float] = 1.0
    """Share of the rate that the stream with the fewest events has in demos and campaigns."""
    sets_aside: ClassVar[bool] = True
    """Whether its late events can be judged. If not, its load has none."""
    has_text_ids: ClassVar[bool] = False
    """Whether its ids may be texts."""
    factors: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Of `kept`: field -> the decimal number by which a result multiplies it."""
    aggregates: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What results state in place of ids: name -> aggregate, as in the sidecar's `oracle.values`."""
    states_beside_ids: ClassVar[bool] = False
    """Whether results state `aggregates` beside ids, not in place of them."""
    carried: ClassVar[tuple[str, ...]] = ()
    """Fields of its events that a result has, too."""
    changes: ClassVar[tuple[str, ...]] = ()
    """Fields of its events of which a result of a sliding window states the relative changes: from the event of one
    slide before to that of the last slide (`NAMEChange1`), from two slides before (`NAMEChange2`), and so on."""
    partitioned_by: ClassVar[str | None] = None
    """Which of `carried` is the key of the record of a result; None: the key of the result."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Its parameters that do not have their default values."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def stages(self) -> tuple[Workload, ...]:
        """The workloads of its chain up to itself, the first of which has the generator's events."""
        return (self,) if self.follows is None else (*self.follows().stages, self)

    @property
    def needs_shuffle(self) -> bool:
        """Whether events of one key may be in several partitions."""
        if self.follows is None:
            return any(stream.has_words for stream in self.streams)
        return self.streams[0].fields["key"] != (self.follows.partitioned_by or self.follows().key)

    @property
    def has_ids(self) -> bool:
        """Whether results list ids."""
        return self.states_beside_ids or not self.aggregates

    @property
    def key(self) -> str:
        """The field of a result with its key."""
        return self.streams[0].fields["key"]

    @property
    def id_lists(self) -> tuple[str, ...]:
        """The fields of a result with the ids of each stream."""
        return tuple(f"{stream.name}Ids" for stream in self.streams)

    def check(self, load: Load) -> None:
        """Raise ValueError with one sentence if ``load`` does not fit."""
        if load.id_prefixes is not None and not self.has_text_ids:
            raise ValueError(f"ids of workload {self.kind} are integers; leave id.kind out")

    def events(self, load: Load) -> Events:
        """The events of one producer."""
        return GridEvents(load.plan)

    @abstractmethod
    def wire(self, stream: Stream, load: Load) -> Wire:
        """The bytes of the events of a stream."""

    def settings(self, window_ms: int, events_per_window: int) -> dict[str, Any]:
        """Settings of the load in demos and campaigns beside those that all workloads have."""
        del window_ms, events_per_window
        return {}

    def operator(self, window_ms: int) -> dict[str, Any]:
        """Settings of the reference engine, for windows, buckets or bursts of ``window_ms``."""
        del window_ms
        return {}

    def routed(self, value: bytes) -> Sequence[str] | None:
        """The keys of an event that may have several, computed from its bytes; None: its key is a field."""
        del value
        return None

    @property
    def kept(self) -> tuple[str, ...]:
        """The fields of an event that the engine keeps for its result, beside id, key and time."""
        paths = (what.rstrip(")").partition("(")[2] for what in self.aggregates.values())
        return tuple(dict.fromkeys([*(path for path in paths if path), *self.carried, *self.changes]))

    def stated(self, members: dict[str, Any]) -> bytes:
        """The bytes of a result with aggregates: its key, its window and what it states."""
        return json.dumps(members, separators=(",", ":")).encode()

    @abstractmethod
    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The sidecar's section `oracle` for the operator."""

    def output(self, inputs: Sequence[str]) -> dict[str, Any]:
        """The sidecar's settings of the output topic: evidence, emission and fields. Default: windows with ids,
        `aggregates`, or both."""
        window = {"key": self.key, "window_start": "windowStart"}
        stated = {"values": {name: name for name in self.aggregates}} if self.aggregates else {}
        if not self.has_ids:
            return {"evidence": "values", "fields": {**window, **stated}}
        ids: list[Any] = list(self.id_lists)
        if len(inputs) > 1:
            ids = [{"path": path, "input": topic} for path, topic in zip(self.id_lists, inputs, strict=True)]
        return {"fields": {**window, "ids": ids, **stated}}


class Stage(Workload):
    """A workload whose events are the results of the one that it `follows`."""

    follows: ClassVar[type[Workload]]

    def check(self, load: Load) -> None:
        """It has no load of its own."""
        del load
        first = self.stages[0].kind
        raise ValueError(f"workload {self.kind} reads results of an engine; send the events of {first}")

    def wire(self, stream: Stream, load: Load) -> Wire:
        """Its events are written by an engine."""
        raise NotImplementedError(f"{self.kind} has no load")
