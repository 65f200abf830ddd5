"""Proves a configuration on the sample: the sidecar's decoders read it, and `validator.cli.comparison` compares it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from validator.cli.comparison import Read, counted, sampled
from validator.cli.proposal.columns import TopicSample
from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Undecodable
from validator.config.model import Config
from validator.core.fit import Answered, answered, growth
from validator.model.schemas import Schemas
from validator.stream.sources import readers_of, sources_of

_CLAIMS_MOST: Final = 20_000
"""Ids of results that are compared."""


Place = tuple[int, int]
"""The partition and the offset of a record."""
Linked = Mapping[str, frozenset[Place]]
"""Topic -> the places of some of its records."""


def place_of(record: Record) -> Place:
    """The place of a record in its topic."""
    return record.partition, record.offset


@dataclass(frozen=True)
class Proof:
    """``right`` of ``of`` windows, or of events that results name, are right. ``unread``: records that do not decode.
    ``grows``: each result of a cell contains the one before it, so that the emission is cumulative. ``inputs``: if
    results name events, the same two numbers for each input whose events they should name."""

    right: int
    of: int
    unread: int = 0
    grows: bool = False
    inputs: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of what is right. A large input cannot hide a small one: it is that of the input with the least."""
        return min(right / of if of else 0.0 for right, of in self.inputs.values() or [(self.right, self.of)])


@dataclass
class Prover:
    """Proves configurations on the samples of topics."""

    samples: Mapping[str, TopicSample]
    schemas: Schemas
    _read: dict[tuple[str, frozenset[Place] | None], tuple[list[Read], int]] = field(default_factory=dict)

    def prove(self, document: Mapping[str, Any], linked: Linked | None = None) -> Proof | None:
        """Compare events and results. ``linked``: the events that results name; None: all events count. Returns None if
        the configuration is refused."""
        try:
            config = Config.model_validate(document, context={"folder": Path()})
        except ValidationError:
            return None
        whole = {topic: sample.is_whole for topic, sample in self.samples.items()}
        records, unread = self._decoded(config, document, linked)
        if not config.oracle.reads.names_ids:
            found = counted(config, records, whole=whole)
            return Proof(found.right, found.of, unread)
        sample = sampled(config, _some(records), whole=whole)
        events = answered(sample, in_every_cell=config.oracle.in_every_cell)
        right = sum(one.is_right for one in events)
        grows = growth(sample, config.oracle) is not None
        return Proof(right, len(events), unread, grows, dict(_of_inputs(config, events)))

    def explained(self, document: Mapping[str, Any]) -> float:
        """Share of the ids in results that are those of events; 1 if results have none."""
        records = self.read(document)
        owed = {one.id for *_, one in records if isinstance(one, Event) and one.is_owed}
        named = [id_ for *_, one in records if isinstance(one, Result) for of in one.ids for id_ in of]
        return sum(id_ in owed for id_ in named) / len(named) if named else 1.0

    def read(self, document: Mapping[str, Any]) -> list[Read]:
        """All records that decode with a configuration."""
        config = Config.model_validate(document, context={"folder": Path()})
        return self._decoded(config, document, None)[0]

    def _decoded(self, config: Config, document: Mapping[str, Any], linked: Linked | None) -> tuple[list[Read], int]:
        sources = sources_of(config)
        entries = {
            entry["topic"]: entry
            for part in ("inputs", "outputs", "late", "rejected")
            for entry in document.get(part, ())
        }
        oracle = document["oracle"]
        of_all = [oracle.get(name) for name in ("closed", "where", "values")]
        of_all.append([entry["fields"].get("id") for entry in document["inputs"]])
        records: list[Read] = []
        unread = 0
        for source, reader in zip(sources, readers_of(config, sources, schemas=self.schemas), strict=True):
            entry = entries[source.topic]
            # The size of windows is that between the start and the end of a result.
            windows = oracle if "window_end" in entry["fields"] else None
            name = json.dumps([entry, windows, of_all], sort_keys=True, default=str)
            some = None if linked is None else linked.get(source.topic)
            if (name, some) not in self._read:
                self._read[name, some] = self._decode(source.topic, reader.decoder, some)
            records += self._read[name, some][0]
            unread += self._read[name, some][1]
        return records if linked is None else list(_about(records)), unread

    def _decode(self, topic: str, decoder: RecordDecoder, some: frozenset[Place] | None) -> tuple[list[Read], int]:
        chosen = (it for it in self.samples[topic].records if some is None or place_of(it) in some)
        found = [(record, one) for record in chosen for one in decoder.decode_all(record)]
        records: list[Read] = [
            (topic, record.partition, record.offset, record.timestamp_us, one)
            for record, one in found
            if isinstance(one, (Event, Result))
        ]
        return records, sum(isinstance(one, Undecodable) for _, one in found)


def _of_inputs(config: Config, events: Sequence[Answered]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each input whose events results name -> how many of these are right, and how many there are."""
    for entry in config.oracle.named_inputs(config.inputs):
        mine = [one.is_right for one in events if any(it.topic == entry.topic for it in one.expected)]
        yield entry.topic, (sum(mine), len(mine))


def _about(records: Sequence[Read]) -> Iterator[Read]:
    """All events, and of the results the ids that an event has."""
    ids = {one.id for *_, one in records if isinstance(one, Event)}
    for topic, partition, offset, time_us, one in records:
        some = one
        if isinstance(one, Result):
            some = one._replace(ids=tuple([id_ for id_ in of if id_ in ids] for of in one.ids))
        yield topic, partition, offset, time_us, some


def _some(records: Sequence[Read]) -> list[Read]:
    """All events, and the newest results, up to a number of ids."""
    kept: list[Read] = []
    ids = 0
    for read in reversed(records):
        if isinstance(read[4], Result):
            ids += sum(map(len, read[4].ids))
            if ids > _CLAIMS_MOST and kept:
                continue
        kept.append(read)
    return kept[::-1]
