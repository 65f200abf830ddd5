"""The reason of a verdict that stems from records names them, the field, the next step and a command to copy."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.publish_snapshots import clean
from validator.cli import parser
from validator.codecs.one_record import Undecodable
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.publish.report import build
from validator.publish.text import WIDTH, render
from validator.state.positions import HIDDEN, Positions, Stretch
from validator.stream.doubt_sentences import Example
from validator.stream.hidden_sentences import hidden_examples, topics_without_use

NULL_KEY = Undecodable("key", "page", "is null")
BAD_TIME = Undecodable("event_time", "timestamp", "is a text that is not an ISO 8601 time", "01-01-2026 12:00:00:000")


def config(tmp_path: Path, *settings: str) -> Config:
    return loads(EXAMPLES["clickstream"], tmp_path, settings, {})


def progress(topic: str, *, undecodable: int, unowed: int = 0) -> IngestProgress:
    """100 records of an input."""
    frontier = Frontier("input", topic, 0, "t", 0, 100, 0, 100, 100, 20, records=100)
    frontier = replace(frontier, undecodable=undecodable, unowed=unowed)
    return IngestProgress(TimeRules(0, 0), batch=1, lookup_us=20, frontiers={PartitionId(topic, 0): frontier})


def said(at: Config, *why: Undecodable, offset: int = 5, undecodable: int = 3) -> str:
    topic = at.inputs[0].topic
    stretches = (Stretch(5, 6, 2), Stretch(9, 9, 1))
    positions = Positions(by_cause={PartitionId(topic, 0): {HIDDEN: stretches}})
    examples = {topic: Example(0, offset, why)}
    return hidden_examples(at, progress(topic, undecodable=undecodable), positions, examples, "input")


def test_the_reason_names_position_field_next_step_and_command(tmp_path: Path) -> None:
    at = config(tmp_path)
    topic = at.inputs[0].topic
    sentence = said(at, NULL_KEY)
    assert sentence.startswith(f"; for example {topic}-0 offset 5, where field key (path page) is null: if events ")
    assert "set inputs[0].missing_key to `skip`" in sentence
    report = build(clean())
    report["reasons"] = [f"3 input records could not be decoded{sentence}"]
    lines = render(report).splitlines()
    [command] = [line.strip() for line in lines if line.strip().startswith("streamproof ack ") and "position" in line]
    given = parser.build().parse_args(shlex.split(command)[1:])
    assert (Path(given.state), given.position) == (at.state.path, f"{topic}/0/5-9")
    assert all(len(line) <= WIDTH for line in lines if "streamproof" not in line)
    assert "for example" not in said(at, NULL_KEY, undecodable=100), "the doubt about the topic has the example"


@pytest.mark.parametrize(
    ("why", "step"),
    [
        ((BAD_TIME,), 'not an ISO 8601 time ("01-01-2026 12:00:00:000"): check inputs[0].fields.event_time;'),
        ((Undecodable(None, None, "is null"),), "set inputs[0].tombstone to `ignore`, with a new state.path;"),
        ((Undecodable(None, None, "has zero bytes"),), "its value has zero bytes: check inputs[0].fields;"),
        ((Undecodable("where", "kind", "is absent"),), "check oracle.where;"),
        ((NULL_KEY, BAD_TIME), "is null and field event_time (path timestamp) is a text that"),
    ],
    ids=str,
)
def test_each_kind_of_record_has_a_next_step(why: tuple[Undecodable, ...], step: str, tmp_path: Path) -> None:
    assert step in said(config(tmp_path), *why)


def test_an_example_that_is_settled_is_not_shown_and_a_value_only_if_ids_and_keys_are(tmp_path: Path) -> None:
    assert "offset 5: check inputs[0].fields;" in said(config(tmp_path), NULL_KEY, offset=2)
    for setting in ("publish.ids=hashed", "publish.keys=hidden"):
        assert "01-01-2026" not in said(config(tmp_path, setting), BAD_TIME)


def test_a_topic_whose_events_are_all_skipped_is_no_pass(tmp_path: Path) -> None:
    skipping = config(tmp_path, "inputs.0.missing_key=skip")
    topic = skipping.inputs[0].topic
    all_skipped, some = (progress(topic, undecodable=1, unowed=count) for count in (99, 98))
    assert list(topics_without_use(skipping, some)) == []
    assert list(topics_without_use(config(tmp_path), all_skipped)) == []
    [sentence] = topics_without_use(skipping, all_skipped)
    assert sentence.endswith("99 events are skipped: check inputs[0].fields.key")
