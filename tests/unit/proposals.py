"""What `config init` proposes for records in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.unit.pipeline_shapes import Shape
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.proposal import Proposal, propose
from validator.codecs.one_record import Record
from validator.settings.formats.guesses import Setting

SETTINGS = {
    "pipeline": "p",
    "guarantee": "exactly_once",
    "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
    "schema_registry": {"url": "http://127.0.0.1:8081"},
    "state": {"path": "./state"},
}


def proposed(shape: Shape, formats: Mapping[str, tuple[Setting, ...]] = {}) -> Proposal:
    def samples(logs: Mapping[str, Sequence[Record]]) -> list[TopicSample]:
        whole = {topic for topic, records in logs.items() if not records or not records[0].offset}
        return [
            TopicSample(topic, tuple(records), topic in whole, formats.get(topic, ()))
            for topic, records in logs.items()
        ]

    aside = {"late": samples(shape.late), "rejected": samples(shape.rejected)}
    return propose(samples(shape.inputs), samples(shape.outputs), SETTINGS, shape.schemas, aside)
