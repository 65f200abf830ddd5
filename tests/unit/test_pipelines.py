"""The configurations of docs/pipelines.md, and what `config init` proposes, on records of well-known pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import GALLERY, SHAPES, Shape
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.file import text_of
from validator.cli.proposal.proposal import Proposal, propose
from validator.config import examples
from validator.config.examples import EXAMPLES
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot

SETTINGS = {
    "pipeline": "p",
    "guarantee": "exactly_once",
    "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
    "schema_registry": {"url": "http://127.0.0.1:8081"},
    "state": {"path": "./state"},
}


def proposed(shape: Shape) -> Proposal:
    def samples(logs: Any) -> list[TopicSample]:
        return [TopicSample(topic, tuple(records), is_whole=True) for topic, records in logs.items()]

    return propose(samples(shape.inputs), samples(shape.outputs), SETTINGS, shape.schemas)


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


NOT_CLEAN = {
    "dead-letter": "an order does not decode, and only the dead-letter topic, which is not named, settles it",
}
"""Shape -> why the proposed file cannot judge it clean."""


@pytest.mark.parametrize("name", SHAPES)
def test_the_proposed_file_judges_a_perfect_engine_clean_and_finds_a_loss(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]()
    proposal = proposed(shape)
    text = text_of(proposal, "records")
    assert proposal.is_proven, text
    if name not in NOT_CLEAN:
        check(text, shape, tmp_path)
    assert yaml.safe_load(text)["outputs"][0]["topic"] == next(iter(shape.outputs))
