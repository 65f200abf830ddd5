"""An option in a configuration file reaches its client as the text in the file, whatever type YAML gives it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.config import load as load_faults
from generator.config import load as load_load
from generator.sender import client_options
from validator.config.load import loads
from validator.config.model import Config
from validator.model.documents import DocumentRefused, parse
from validator.model.kafka_options import java_options, librdkafka_options
from validator.settings.errors import InvalidConfigError

pytestmark = pytest.mark.unit

PIPELINE = """
pipeline: p
guarantee: exactly_once
kafka:
  bootstrap_servers: k:1
  options: {of_kafka}
inputs: [{{topic: in, fields: {{id: id, key: key, event_time: t}}}}]
outputs: [{{topic: out, fields: {{key: key, window_start: w, ids: ids}}}}]
oracle: {{kind: tumbling_window, size: 1s}}
state: {{path: s}}
spark:
  options: {of_spark}
"""
LOAD = "kafka:\n  bootstrap_servers: k:1\n  options: {of_kafka}\n"
FAULTS = LOAD + "targets: {{a: {{type: process, pid_file: a.pid}}}}\nplan: {{name: pgval-crash}}\n"

KNOWN = [
    "0123456",
    "1e3",
    "1E5",
    "1.0e+3",
    "yes",
    "No",
    "on",
    "True",
    "null",
    "~",
    "0x1F",
    "0b1",
    "1_000",
    "12:30:45",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    ".inf",
    "-.INF",
    ".nan",
    "1.50",
    "+1",
    "-0",
    "=",
    "<<",
    "10",
    "9999999999999999999999999999999999999999999999999999999999999999999999",
]
PLAIN = st.sampled_from(KNOWN) | st.text("0123456789_.:+-~=<eExXbaAfFINTnytrulso", min_size=1, max_size=12).filter(
    lambda text: text[0] not in ":-" and not text.endswith(":")
)
"""Plain scalars that YAML allows without quotes; it reads many of them as another type than text."""
ANY = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="$"))
WRITTEN = st.one_of(
    PLAIN.map(lambda text: (text, text)),
    PLAIN.map(lambda text: (f"{text}   # a comment", text)),
    ANY.map(lambda text: ("'" + text.replace("'", "''") + "'", text)),
    ANY.map(lambda text: (json.dumps(text), text)),
)
"""(The text between the key and the end of the line, the value that it stands for.)"""


def pipeline(options: str, *assignments: str) -> Config:
    return loads(PIPELINE.format(of_kafka=options, of_spark=options), "/", assignments, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WRITTEN)
def test_an_option_is_the_text_in_the_file(tmp_path: Path, written: tuple[str, str]) -> None:
    stands, text = written
    options = f"\n    client.id: {stands}"
    config = pipeline(options)
    assert librdkafka_options(config.kafka.options) == {"client.id": text}
    assert java_options(config.kafka.options, str) == {"client.id": text}
    assert config.spark.options == {"client.id": text}
    (tmp_path / "load.yaml").write_text(LOAD.format(of_kafka=options))
    assert client_options(load_load(tmp_path / "load.yaml"))["client.id"] == text
    (tmp_path / "faults.yaml").write_text(FAULTS.format(of_kafka=options))
    kafka = load_faults(tmp_path / "faults.yaml").kafka
    assert kafka is not None
    assert librdkafka_options(kafka.options) == {"client.id": text}


def test_a_password_of_digits_stays_text() -> None:
    login = "sasl.mechanism: PLAIN, sasl.username: 1_0, sasl.password: 0123456"
    options = f"{{security.protocol: SASL_SSL, {login}, linger.ms: 10}}"
    config = loads(PIPELINE.format(of_kafka=options, of_spark="{}"), "/", (), {})
    assert librdkafka_options(config.kafka.options)["sasl.password"] == "0123456"
    assert 'username="1_0" password="0123456"' in java_options(config.kafka.options, str)["sasl.jaas.config"]


@pytest.mark.parametrize("place", ["kafka", "kafka.options", "kafka.options.client.id"])
def test_options_set_with_their_parent_keep_their_texts(tmp_path: Path, place: str) -> None:
    given = {
        "kafka": "kafka={bootstrap_servers: 'k:1', options: {client.id: 0123456}}",
        "kafka.options": "kafka.options={client.id: 0123456}",
        "kafka.options.client.id": "kafka.options.client.id=0123456",
    }[place]
    assert pipeline("{}", given).kafka.options == {"client.id": "0123456"}
    (tmp_path / "load.yaml").write_text(LOAD.format(of_kafka="{}"))
    assert load_load(tmp_path / "load.yaml", [given]).kafka.options == {"client.id": "0123456"}


def test_only_the_named_mappings_keep_their_texts_also_with_aliases() -> None:
    text = "a: {b: &b {c: &c 0x8, d: [0x8, {e: 0x8}], f: , g: '1'}}\nh: *b\ni: *c\nj: {b: *b}"
    other = {"c": 8, "d": [8, {"e": 8}], "f": None, "g": "1"}
    assert parse(text) == {"a": {"b": other}, "h": other, "i": 8, "j": {"b": other}}
    kept = {**other, "c": "0x8"}
    assert parse(text, texts=[("a", "b")]) == {"a": {"b": kept}, "h": other, "i": 8, "j": {"b": other}}
    assert parse(text, texts=[("a", "b"), ("h",)]) == {"a": {"b": kept}, "h": kept, "i": 8, "j": {"b": other}}
    assert parse("0x8", texts=[()]) == 8
    for refused in ("a: {b: {<<: 1}}", "a: {b: {c: 1, c: 1}}", "a: {b: {1: 1}}"):
        with pytest.raises(DocumentRefused):
            parse(refused, texts=[("a", "b")])


@pytest.mark.parametrize("value", ["", "[1]", "{a: 1}"])
def test_an_option_without_a_plain_value_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigError, match="has no plain value"):
        pipeline(f"\n    client.id: {value}")
