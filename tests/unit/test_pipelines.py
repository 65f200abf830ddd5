"""The configurations of docs/pipelines.md, and what `config init` proposes, on records of well-known pipelines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import GALLERY, NOT_PROPOSED, SHAPES, Shape
from validator.cli.comparison import compare
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.file import text_of
from validator.cli.proposal.proposal import Proposal, propose
from validator.codecs.one_record import Event, Record, Result
from validator.config import examples
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot
from validator.stream.sources import readers_of, sources_of

SETTINGS = {
    "pipeline": "p",
    "guarantee": "exactly_once",
    "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
    "schema_registry": {"url": "http://127.0.0.1:8081"},
    "state": {"path": "./state"},
}


def proposed(shape: Shape) -> Proposal:
    def samples(logs: Mapping[str, Sequence[Record]]) -> list[TopicSample]:
        whole = {topic for topic, records in logs.items() if not records or not records[0].offset}
        return [TopicSample(topic, tuple(records), is_whole=topic in whole) for topic, records in logs.items()]

    aside = {"late": samples(shape.late), "rejected": samples(shape.rejected)}
    return propose(samples(shape.inputs), samples(shape.outputs), SETTINGS, shape.schemas, aside)


def verdict(shown: Snapshot) -> Verdict:
    return shown.verdicts[shown.guarantee]


def check(text: str, shape: Shape, state: Path) -> None:
    perfect = judged(text, shape.logs, state / "perfect", shape.schemas)
    assert verdict(perfect) is Verdict.PASS, (perfect.reasons, perfect.contributions)
    assert perfect.contributions["processed"]
    broken = judged(text, shape.broken, state / "broken", shape.schemas)
    assert verdict(broken) is Verdict.FAIL, (broken.reasons, broken.contributions)
    assert broken.violations["confirmed"]["missing"] == broken.contributions["expected"] - sum(
        broken.contributions[name] for name in ("processed", "late", "rejected")
    )


def test_every_pipeline_of_the_gallery_has_its_records() -> None:
    files = {file.stem for file in Path(examples.__file__).with_name("pipelines").glob("*.yaml")}
    assert files == set(GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_a_pipeline_of_the_gallery_is_judged_and_a_loss_is_found(name: str, tmp_path: Path) -> None:
    check(EXAMPLES[name], SHAPES[name](), tmp_path)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in NOT_PROPOSED])
def test_the_proposed_file_judges_a_perfect_engine_clean_and_finds_a_loss(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]()
    proposal = proposed(shape)
    text = text_of(proposal, "records")
    assert proposal.is_proven, text
    check(text, shape, tmp_path)


@pytest.mark.parametrize("name", ["sst", "sliding-ids", "flink-click-count", "kafka-streams-windowed"])
def test_a_sample_of_the_newest_records_proves_the_same(name: str) -> None:
    """The first half of the events is not in it, so some results are about events that it lacks."""
    shape = SHAPES[name]()
    whole, half = proposed(shape), proposed(replace(shape, inputs=newest(shape.inputs), outputs=newest(shape.outputs)))
    assert half.is_proven, half
    for part in ("inputs", "outputs", "oracle"):
        assert half.document[part] == whole.document[part]
    right, of = re.findall(r"(\d+) of (\d+)", half.proof)[0]
    assert right == of


def newest(logs: Mapping[str, Sequence[Record]]) -> dict[str, Sequence[Record]]:
    return {topic: records[len(records) // 2 :] for topic, records in logs.items()}


@pytest.mark.parametrize(
    ("lost", "settings", "said"),
    [
        (False, (), ("ok", "the results of 24 of 24 windows state the values of their events.")),
        (
            True,
            (),
            ("note", "the results of 23 of 24 windows state the values of their events; that of key /help from "),
        ),
        (False, ("oracle.offset=1s",), ("problem", "the results of 0 of ")),
    ],
    ids=["perfect", "a loss", "other windows"],
)
def test_doctor_compares_stated_counts(
    lost: bool, settings: tuple[str, ...], said: tuple[str, str], tmp_path: Path
) -> None:
    shape = SHAPES["kafka-streams-suppressed"]()
    config = loads(EXAMPLES["kafka-streams-suppressed"], tmp_path, settings, {})
    sources = sources_of(config)
    logs = shape.broken if lost else shape.logs
    records = [
        (source.topic, record.partition, record.offset, record.timestamp_us, decoded)
        for source, reader in zip(sources, readers_of(config, sources), strict=True)
        for record in logs[source.topic]
        if isinstance(decoded := reader.decoder.decode(record), (Event, Result))
    ]
    [found] = compare(config, records, whole=dict.fromkeys(logs, True))
    assert (found.status, found.text[: len(said[1])]) == said


def test_aggregates_of_fields_are_proposed_beside_the_count() -> None:
    proposal = proposed(SHAPES["sums"]())
    assert proposal.document["oracle"]["values"] == {
        "orders": "count",
        "revenue": "sum(amount)",
        "smallest": "min(amount)",
        "mean": "avg(amount)",
    }
    assert "18 of 18 windows" in proposal.proof
