"""`streamproof config init`: samples the topics, and prints a configuration that the sample proves."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import yaml

from validator.cli.exits import PASS, UNKNOWN, UsageError
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.file import text_of
from validator.cli.proposal.named_schemas import schemas_named
from validator.cli.proposal.proposal import propose
from validator.cli.proposal.schema_files import formats_of
from validator.codecs.one_record import Record
from validator.config import overrides
from validator.config.load import loads
from validator.config.model import Config
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.oracles.guesses import copying
from validator.settings.formats.seam import Part
from validator.stream import sampling
from validator.stream.bounded import Ended, bounded
from validator.stream.brokers import Brokers, Topic
from validator.stream.registry import Registry, RegistrySilent
from validator.stream.sampling import TopicAnswered, TopicStarted

_SECONDS_MAX: Final = 15.0
_RESULTS_MAX: Final = 5_000
_CONNECTION: Final = ("kafka", "schema_registry")


class SampleFailed(Exception):
    """The topics could not be sampled. The message is one sentence."""

    exit_status = UNKNOWN


def run(
    bootstrap: str,
    topics: Mapping[str, Sequence[str]],
    registry: str | None,
    schema_files: Sequence[str],
    assignments: Sequence[str],
    records: int,
    head: str,
) -> int:
    """Print the file to stdout, and what is proven to stderr. Returns 0 if the sample proves the file, else 3.

    ``topics``: `inputs`, `outputs`, `late` and `rejected`. ``schema_files``: as in `formats_of`. ``assignments``:
    `--set` of the connection. ``records``: number of events per input. ``head``: first lines.
    """
    settings = _settings(bootstrap, topics["outputs"][0], registry, assignments)
    config = _probing(settings, topics["inputs"], topics["outputs"])
    # Results are read first, so that their events are in the sample.
    read = [topic for part in ("outputs", "late", "rejected", "inputs") for topic in topics[part]]
    formats = formats_of(schema_files, read, has_registry=config.schema_registry is not None)
    most = dict.fromkeys(read, _RESULTS_MAX) | dict.fromkeys(topics["inputs"], records)
    samples = {
        topic: replace(sample, formats=formats.get(topic, ())) for topic, sample in _sampled(config, read, most).items()
    }
    schemas = _schemas(config, samples.values())
    of = {part: [samples[topic] for topic in named] for part, named in topics.items()}
    aside = {part: of[part] for part in ("late", "rejected")}
    proposal = propose(of["inputs"], of["outputs"], settings, schemas, aside)
    counts = [f"{plural(len(one.records), 'record')} of {one.topic}" for part in of.values() for one in part]
    sys.stdout.write(f"{head}{text_of(proposal, ' and '.join(counts))}")
    print(plain(proposal.proof), file=sys.stderr)
    return PASS if proposal.is_proven else UNKNOWN


def _settings(bootstrap: str, name: str, registry: str | None, assignments: Sequence[str]) -> dict[str, Any]:
    """The parts of the file that do not depend on the samples."""
    found: dict[str, Any] = {
        "pipeline": name,
        "guarantee": "exactly_once",
        "kafka": {"bootstrap_servers": bootstrap},
        **({} if registry is None else {"schema_registry": {"url": registry}}),
        "state": {"path": f"./state/{name}"},
    }
    applied = overrides.from_assignments(assignments)
    for one in applied:
        if one.place[0] not in _CONNECTION:
            raise UsageError(f"config init: {one.origin} is not a setting of the connection; change it in the file.")
    return overrides.apply(found, applied)


def _probing(settings: Mapping[str, Any], inputs: Sequence[str], outputs: Sequence[str]) -> Config:
    """A configuration to connect with. Nothing is decoded with it."""
    fields = {"id": "$key", "key": "$key", "event_time": "$timestamp"}
    document = {
        **settings,
        "inputs": [{"topic": topic, "fields": fields} for topic in inputs],
        "outputs": [{"topic": topic, "evidence": "id", "fields": fields} for topic in outputs],
        "oracle": dict(copying().oracle),
    }
    return loads(yaml.safe_dump(document), Path.cwd(), source="config init")


def _sampled(config: Config, topics: Sequence[str], most: Mapping[str, int]) -> dict[str, TopicSample]:
    """The newest records of each topic, in this order."""
    seen = Brokers(config, _SECONDS_MAX).seen(topics)
    partitions: dict[str, tuple[int, ...]] = {}
    for topic in topics:
        found = seen[topic]
        if found is None:
            raise UsageError(f"config init: topic {topic} does not exist; name an existing topic.")
        if not isinstance(found, Topic):
            raise SampleFailed(f"config init: {found}.")
        partitions[topic] = found.partitions
    records: dict[str, list[Record]] = {topic: [] for topic in topics}
    whole: dict[str, bool] = {}
    try:
        seconds = (_SECONDS_MAX + 1) * len(topics)
        for item in bounded(seconds, sampling.newest, config, partitions, most, _SECONDS_MAX):
            if isinstance(item, TopicStarted):
                whole[item.topic] = item.is_whole
            elif isinstance(item, TopicAnswered):
                if item.refusal is not None:
                    raise SampleFailed(f"config init: {item.refusal.problem}; {item.refusal.fix}.")
            else:
                records[item[0]].append(item[1])
    except Ended as error:
        raise SampleFailed(f"config init: a record {error}; try fewer with --records.") from None
    return {topic: TopicSample(topic, tuple(of), whole[topic]) for topic, of in records.items()}


def _schemas(config: Config, samples: Iterable[TopicSample]) -> Schemas:
    """The schemas that the records name."""
    if config.schema_registry is None:
        return NO_SCHEMAS
    parts: tuple[Part, ...] = ("value", "key")
    named = {schema for sample in samples for part in parts for schema in schemas_named(sample, part)}
    registry = Registry(config.schema_registry, None, lambda _: None, threading.Event(), wait_seconds=3.0)
    try:
        registry.look_up(named)
    except RegistrySilent as silent:
        raise SampleFailed(f"config init: {silent}; check --registry, and --set schema_registry.") from None
    return registry.schemas
