"""The generator's configuration: valid ones, and one sentence for each error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generator import config
from generator.config import GeneratorConfigError, load, parse
from generator.grid import GridSequence
from generator.producer import journal_header
from generator.sender import Target

pytestmark = pytest.mark.unit

KAFKA = {"kafka": {"bootstrap_servers": "b:9092"}}
DOCS = Path(__file__).parents[2] / "docs" / "generator.md"


def test_the_defaults_are_those_of_pgval() -> None:
    c = parse(KAFKA)
    assert (c.topic, c.keys.pages, c.window, c.events_per_window, c.step_ms, c.start) == (
        "click", 6, 60_000, 5000, 12, "epoch",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"colour": 1}, "colour: "),
        ({"window": 60}, "window: a duration "),
        ({"events_per_window": 60_001}, "use 1 to 60000 per window"),
        ({"disorder": {"share": 0.1, "within": "1ms"}}, "disorder.within"),
        ({"disorder": {"share": 1.1}}, "disorder.share: a share "),
        ({"lateness": {"share": 0.1}}, "lateness.beyond must be at least 1ms"),
        ({"processes": 2}, r"processes .* producers \(1\)"),
        ({"delivery": {"acks": 1}}, "idempotent.*acks: all"),
        ({"rate": {"shape": "burst", "events_per_second": 1, "burst_events_per_second": 2, "every": "1s",
                   "burst": "2s"}}, "burst .* shorter than .*every"),
    ],
)  # fmt: skip
def test_refusals_are_one_sentence_that_names_the_field(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(GeneratorConfigError, match=sentence) as refusal:
        parse({**KAFKA, **change}, "load.yaml")
    assert str(refusal.value).startswith("load.yaml: ")
    assert "\n" not in str(refusal.value)


def test_overrides_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER", "k:1")
    file = tmp_path / "load.yaml"
    file.write_text("kafka: {bootstrap_servers: '${BROKER}'}\njournal: j\n")
    c = load(file, ["limit.events=10", "rate.shape=constant", "rate.events_per_second=5"])
    assert c.kafka.bootstrap_servers == "k:1"
    assert c.limit.events == 10
    assert c.journal == tmp_path / "j"
    assert c.rate.build(1).events_by(2) == 10
    assert load(file, {"seed": 7}).seed == 7


def test_an_option_from_environment_or_arguments_keeps_its_text(tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("kafka: {bootstrap_servers: 'k:1'}\n")
    given = ["kafka.options.ssl.key.password=0123456", "kafka.options.debug=yes"]
    assert load(file, given).kafka.options == {"ssl.key.password": "0123456", "debug": "yes"}


def test_a_path_in_an_option_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    options = "{ssl.ca.location: ca.pem, ssl.certificate.location: /etc/c.pem, ssl.key.location: k.pem}"
    file.write_text(f"kafka: {{bootstrap_servers: 'k:1', options: {options}}}\n")
    assert load(file).kafka.options == {
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": "/etc/c.pem",
        "ssl.key.location": str(tmp_path / "k.pem"),
    }
    assert load(file, ["kafka.options.ssl.ca.location=probe"]).kafka.options["ssl.ca.location"] == "probe"


def test_a_missing_variable_is_named(tmp_path: Path) -> None:
    file = tmp_path / "load.yaml"
    file.write_text("kafka: {bootstrap_servers: '${NO_SUCH_VARIABLE}'}\n")
    with pytest.raises(GeneratorConfigError, match="NO_SUCH_VARIABLE"):
        load(file)


@pytest.mark.parametrize("text", ["[1]", "a: [", ""])
def test_a_file_that_is_not_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "load.yaml"
    file.write_text(text)
    with pytest.raises(GeneratorConfigError):
        load(file)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(GeneratorConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_event_time_rate_follows_the_workload() -> None:
    c = parse({**KAFKA, "rate": {"shape": "event_time", "speed": 2}, "producers": 2})
    assert c.rate.build(c.events_per_event_second).events_by(1) == 2 * 2 * 6 * 1000 / 12


def test_sessions_thin_out_the_clicks() -> None:
    # A step is 12 ms. Between two sessions of 5 clicks are 83 silent steps: a gap of 84 * 12 ms = 1008 ms.
    c = parse({**KAFKA, "sessions": {"events": 5, "gap": "1s"}, "rate": {"shape": "event_time"}})
    assert c.silent_steps == 83
    assert c.events_per_event_second == pytest.approx(6 * 1000 / 12 * 5 / 88)


def test_a_limit_in_windows_counts_the_clicks_that_sessions_leave() -> None:
    c = parse({**KAFKA, "sessions": {"events": 5, "gap": "1s"}, "limit": {"windows": 2}})
    plan = c.load(0, 0).plan
    sequence, times = GridSequence(plan), list[int]()
    while len(batch := sequence.take(1000)):
        times += batch.times_ms
    assert 120_000 - 1_008 < max(times) < 120_000
    assert len(times) == plan.events


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"sessions": {"events": 5, "gap": "11ms"}}, "sessions.gap .* 12 ms "),
        ({"sessions": {"events": 0, "gap": "1s"}}, "sessions.events"),
        ({"sessions": {"events": 5}}, "sessions.gap"),
        ({"sessions": {"events": 5, "gap": "1s"}, "workload": "mst", "update_percent": 2}, "sessions.*sst"),
    ],
)
def test_impossible_sessions_are_refused(more: dict[str, object], problem: str) -> None:
    with pytest.raises(GeneratorConfigError, match=problem):
        parse({**KAFKA, **more})


def test_the_journal_records_sessions() -> None:
    c = parse({**KAFKA, "sessions": {"events": 5, "gap": "1s"}})
    target = Target("click", 1)
    assert journal_header(c, target, 0)["sessions"] == {"events": 5, "gap": 1000}
    assert "sessions" not in journal_header(parse(KAFKA), target, 0)


def test_the_documented_example_is_accepted(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        file = tmp_path / "load.yaml"
        file.write_text(block)
        load(file)


def test_every_key_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    missing = [name for name in config.GeneratorConfig.model_fields if f"{name}:" not in text]
    assert not missing
