"""Proves a configuration on the sample: the sidecar's decoders read it, and `validator.cli.comparison` compares it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from validator.cli.comparison import Read, counted, sampled
from validator.cli.proposal.columns import TopicSample
from validator.codecs.one_record import Event, Record, Result, Undecodable
from validator.config.model import Config
from validator.core.fit import Answered, answered, growth
from validator.model.schemas import Schemas
from validator.reconcile.evidence.kinds import evidence_of
from validator.stream.sources import readers_of, sources_of

_CLAIMS_MOST: Final = 20_000
"""Ids of results that are compared."""


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
    _read: dict[str, tuple[list[Read], int]] = field(default_factory=dict)

    def prove(self, document: Mapping[str, Any], linked: Mapping[str, Collection[int]] | None = None) -> Proof | None:
        """Compare events and results. ``linked``: input topic -> positions among its records of the events that results
        name; None: all events count. Returns None if the configuration is refused."""
        try:
            config = Config.model_validate(document, context={"folder": Path()})
        except ValidationError:
            return None
        whole = {topic: sample.is_whole for topic, sample in self.samples.items()}
        records, unread = self._decoded(config, document, linked)
        if not evidence_of(config.oracle).names_ids:
            found = counted(config, records, whole=whole)
            return Proof(found.right, found.of, unread)
        sample = sampled(config, _some(records), whole=whole)
        events = answered(sample, in_every_cell=config.oracle.in_every_cell)
        right = sum(one.is_right for one in events)
        grows = growth(sample, config.oracle) is not None
        return Proof(right, len(events), unread, grows, dict(_of_inputs(config, events)))

    def read(self, document: Mapping[str, Any]) -> list[Read]:
        """All records that decode with a configuration."""
        config = Config.model_validate(document, context={"folder": Path()})
        return self._decoded(config, document, None)[0]

    def _decoded(
        self, config: Config, document: Mapping[str, Any], linked: Mapping[str, Collection[int]] | None
    ) -> tuple[list[Read], int]:
        oracle = document["oracle"]
        decoding = [document["inputs"], document["outputs"], oracle.get("closed"), oracle.get("where")]
        if any("window_end" in output["fields"] for output in document["outputs"]):
            decoding.append(oracle)
        name = json.dumps([decoding, linked is None], sort_keys=True, default=str)
        if name not in self._read:
            self._read[name] = self._decode(config, linked)
        return self._read[name]

    def _decode(self, config: Config, linked: Mapping[str, Collection[int]] | None) -> tuple[list[Read], int]:
        sources = sources_of(config)
        records: list[Read] = []
        unread = 0
        for source, reader in zip(sources, readers_of(config, sources, schemas=self.schemas), strict=True):
            for record in self._chosen(source.topic, linked):
                for found in reader.decoder.decode_all(record):
                    unread += isinstance(found, Undecodable)
                    if isinstance(found, (Event, Result)):
                        records.append((source.topic, record.partition, record.offset, record.timestamp_us, found))
        return records if linked is None else list(_about(records)), unread

    def _chosen(self, topic: str, linked: Mapping[str, Collection[int]] | None) -> Sequence[Record]:
        records = self.samples[topic].records
        if linked is None or topic not in linked:
            return records
        having = [record for record in records if record.value is not None]
        return [having[row] for row in sorted(linked[topic])]


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
