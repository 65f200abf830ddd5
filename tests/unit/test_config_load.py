"""From a text, the environment and --set to a Config: precedence, expansion and paths."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from validator.config.examples import EXAMPLES
from validator.config.load import load, loads
from validator.config.model import Config
from validator.config.schema import json_schema, keys_at
from validator.settings.errors import ConfigError, ConfigFileError, ExpansionError, OverrideError

pytestmark = pytest.mark.unit

ENVIRONMENT = {"KAFKA_USER": "app", "KAFKA_PASSWORD": "hunter2"}
FOLDER = Path("/etc/streamproof")


def example(name: str = "minimal", *assignments: str, **environment: str) -> Config:
    return loads(EXAMPLES[name], FOLDER, assignments, {**ENVIRONMENT, **environment})


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_loads_and_its_dump_loads_to_the_same(name: str) -> None:
    config = example(name)
    again = Config.model_validate(config.model_dump(by_alias=True, mode="json"))
    assert again.model_dump() == config.model_dump()
    assert hash(again.inputs) == hash(config.inputs)


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        example().timing.tick_us = 5


def test_no_text_of_a_configuration_shows_a_secret() -> None:
    config = example("secured")
    assert config.kafka.options["sasl.password"] == "hunter2"
    for text in (repr(config), str(config), config.model_dump_json(), str(config.model_dump())):
        assert "hunter2" not in text


def test_set_overrides_the_environment_and_the_environment_overrides_the_file() -> None:
    assert example("clickstream").timing.idle_after_us == 10_000_000
    assert example("clickstream", STREAMPROOF__TIMING__IDLE_AFTER="5s").timing.idle_after_us == 5_000_000
    both = example("clickstream", "timing.idle_after=3s", STREAMPROOF__TIMING__IDLE_AFTER="5s")
    assert both.timing.idle_after_us == 3_000_000


def test_overrides_reach_lists_and_free_maps_and_parse_yaml() -> None:
    config = example(
        "minimal",
        "inputs.0.topic=clicks",
        "inputs.0.fields.key=[a, b]",
        "outputs.0.fields.key=[a, b]",
        "late.0={topic: too-late, fields: {id: id, key: [a, b], event_time: t}}",
        "kafka.options.security.protocol=SSL",
        STREAMPROOF__KAFKA__OPTIONS__FETCH__MAX__BYTES="1024",
    )
    assert config.inputs[0].topic == "clicks"
    assert [path.path for path in config.inputs[0].fields.key] == ["a", "b"]
    assert config.late[0].topic == "too-late"
    assert config.kafka.options == {"security.protocol": "SSL", "fetch.max.bytes": "1024"}


@pytest.mark.parametrize(
    "assignment", ["timing", "=1", "timing..x=1", "inputs.x.topic=a", "inputs.2.topic=a", "pipeline.a=1"]
)
def test_an_override_without_a_path_is_an_error(assignment: str) -> None:
    with pytest.raises(OverrideError):
        example("minimal", assignment)


def test_the_error_of_an_invalid_assignment_does_not_show_its_value() -> None:
    with pytest.raises(OverrideError) as caught:
        example("minimal", "kafka.options.=hunter2")
    assert "hunter2" not in str(caught.value)


def test_references_are_expanded_by_value(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2\n", encoding="utf-8")
    text = (
        EXAMPLES["minimal"]
        .replace("pipeline: orders", 'pipeline: "${NAME} $${x}"')
        .replace(
            'kafka: {bootstrap_servers: "127.0.0.1:9092"}',
            'kafka: {bootstrap_servers: "127.0.0.1:9092", options: {sasl.password: "${file:password}"}}',
        )
    )
    config = loads(text, tmp_path, environment={"NAME": "a: b # c"})
    assert config.pipeline == "a: b # c ${x}"
    assert config.kafka.options["sasl.password"] == "hunter2"


def test_an_unresolved_reference_names_file_field_and_fix(tmp_path: Path) -> None:
    text = EXAMPLES["secured"]
    with pytest.raises(ExpansionError) as caught:
        loads(text, tmp_path, environment={"KAFKA_USER": "u"}, source="payments.yaml")
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "KAFKA_PASSWORD" in line)
    [problem] = caught.value.problems
    place = f"payments.yaml, line {line}: kafka.options.sasl.password"
    assert problem == f"{place}: environment variable KAFKA_PASSWORD is not set; set it."


def test_a_reference_to_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "password")
    text = EXAMPLES["minimal"].replace("pipeline: orders", 'pipeline: "${file:password}"')
    with pytest.raises(ExpansionError, match="file password is not a regular file; name one"):
        loads(text, tmp_path, environment={})


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("guarantee: ${file:secret}", "guarantee"),
        ("start: ${file:secret}", "start"),
        ("oracle: {kind: tumbling_window, size: 60s, time_zone: '${file:secret}'}", "oracle.time_zone"),
        ("kafka: {bootstrap_servers: '${file:secret},b:1'}", "kafka.bootstrap_servers"),
    ],
)
def test_an_error_does_not_show_the_content_of_a_file(tmp_path: Path, setting: str, place: str) -> None:
    (tmp_path / "secret").write_text("hunter2\n", encoding="utf-8")
    name = setting.partition(":")[0]
    lines = [line for line in EXAMPLES["minimal"].splitlines() if not line.startswith(f"{name}:")]
    with pytest.raises(ConfigError) as caught:
        loads("\n".join([*lines, setting]), tmp_path, environment={}, source="orders.yaml")
    said = str(caught.value)
    assert f"orders.yaml, line {len(lines) + 1}: {place}: " in said
    assert "hunter2" not in said
    assert "${file:secret}" in said


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "orders.yaml"
    file.parent.mkdir()
    file.write_text(EXAMPLES["minimal"], encoding="utf-8")
    assert load(file, environment={}).state.path == tmp_path / "deep" / "state" / "orders"
    absolute = load(file, ["state.path=/var/lib/streamproof"], environment={})
    assert absolute.state.path == Path("/var/lib/streamproof")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "c.yaml, line 2, column 1: key 'a' occurs twice; fix the YAML there."),
        ("- 1", "c.yaml, line 1: it is not a mapping of settings; see `streamproof config example clickstream`."),
        ("a: [", "fix the YAML there."),
    ],
)
def test_a_file_that_is_not_a_mapping_of_unique_keys_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        loads(text, FOLDER, environment={}, source="c.yaml")
    assert str(caught.value).endswith(said)


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml.* no such file"):
        load(tmp_path / "none.yaml")


def test_an_unquoted_time_is_a_start() -> None:
    assert example("clickstream", "start=2026-01-31T12:00:00Z").start.time_us == 1_769_860_800_000_000


def test_the_schema_has_the_keys_at_every_path() -> None:
    assert keys_at(("inputs", 0, "fields", "event_time")) == ("path", "unit", "pattern", "time_zone")
    assert keys_at(("inputs", 0, "fields", "key", 1)) == ("path", "unit", "pattern", "time_zone")
    assert keys_at(("faults",)) == ("topic",)
    assert "slide" in keys_at(("oracle", "sliding_window"))
    assert "slide" not in keys_at(("oracle", "tumbling_window"))
    assert keys_at(("pipeline",)) == ()
    assert json_schema()["properties"]["pipeline"]["type"] == "string"


def test_the_schema_refuses_an_empty_path() -> None:
    text, mapping = json_schema()["$defs"]["FieldPath"]["anyOf"]
    assert text["minLength"] == mapping["properties"]["path"]["minLength"] == 1
    with pytest.raises(ConfigError, match="'' is not a path; write names joined by dots"):
        example("clickstream", "inputs.0.fields.id=''")


def test_examples_are_commented_yaml() -> None:
    for text in EXAMPLES.values():
        assert text.startswith("# ")
        assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("inputs.0.fields.event_time=$offset", "inputs[0].fields.event_time: $offset is not a time; use $timestamp"),
        ("late.0.fields.event_time=$partition", "late[0].fields.event_time: $partition is not a time"),
        ("outputs.0.fields.window_start=$offset", "outputs[0].fields.window_start: $offset is not a time"),
        ("outputs.0.fields.ids=$timestamp", "outputs[0].fields.ids: $timestamp is one number, not a list of ids"),
        ("outputs.0.fields.ids=[a, a]", "outputs[0].fields.ids: a is named twice"),
        ("outputs.0.fields.ids=[page]", "outputs[0].fields.ids: page cannot be both the list of ids and the key"),
        ("outputs.0.fields.window_end=windowStart", "outputs[0].fields.window_end: windowStart is already"),
        ("inputs.0.fields.id=page.id", "inputs[0].fields.id: page.id is inside page, which key reads as a single"),
        ("outputs.0.fields.ids=[page.ids]", "outputs[0].fields.ids: page.ids is inside page, which key reads"),
    ],
)
def test_fields_that_no_record_can_have_are_refused(assignment: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        example("clickstream", assignment)
    assert said in str(caught.value).replace(f" (from --set {assignment.partition('=')[0]})", "")


@pytest.mark.parametrize(
    "assignment",
    [
        "outputs.0.fields.window_start=$timestamp",
        "outputs.0.fields.window_end=$timestamp",
        "outputs.0.fields.ids=$header.ids",
        "outputs.0.fields.ids=$key",
        "inputs.0.fields.id=$offset",
    ],
)
def test_parts_of_a_record_that_can_hold_a_field_are_accepted(assignment: str) -> None:
    example("clickstream", assignment)


GIVEN = ["0123456", "1e5", "yes", "True", "null", "~", "", "0x1F", "1_000", "12:30:45", "[a]", "{a: b}", "a: b",
         " x ", "x #1", "*x", "&x", "!x", "1.50", "2026-01-01", "-", "<<", "\\n"]  # fmt: skip


@pytest.mark.parametrize("given", GIVEN)
def test_options_from_environment_and_arguments_keep_their_text(given: str) -> None:
    by_environment = example("minimal", STREAMPROOF__SPARK__OPTIONS__X__Y=given)
    by_assignment = example("minimal", f"spark.options.x.y={given}")
    assert by_environment.spark.options == by_assignment.spark.options == {"x.y": given}


@pytest.mark.parametrize("given", [text for text in GIVEN if text])
def test_texts_from_environment_and_arguments_keep_their_text(given: str) -> None:
    assert example("minimal", f"pipeline={given}").pipeline == given
    assert example("minimal", STREAMPROOF__PIPELINE=given).pipeline == given
    group = None if given in ("null", "~") else given
    assert example("minimal", f"engine.consumer_group={given}").engine.consumer_group == group
    assert example("minimal", f"state.path=a{given}").state.path.name == f"a{given}"


def test_quotes_around_a_text_are_those_of_yaml() -> None:
    for given, text in {"'q'": "q", '"q"': "q", '"a\\nb"': "a\nb", "'0123456'": "0123456", '"open': '"open'}.items():
        assert example("minimal", f"spark.options.x.y={given}").spark.options == {"x.y": text}
        assert example("minimal", STREAMPROOF__SPARK__OPTIONS__X__Y=given).spark.options == {"x.y": text}
        assert example("minimal", f"pipeline={given}").pipeline == text


def test_options_given_as_one_mapping_keep_their_texts() -> None:
    options = example("minimal", "spark.options={a.b: 0123456, c: yes, d: 1e5, e: 'x'}").spark.options
    assert options == {"a.b": "0123456", "c": "yes", "d": "1e5", "e": "x"}


def test_a_value_that_is_not_a_text_is_parsed_as_yaml() -> None:
    config = example("minimal", "kafka.bootstrap_servers=[a:1, b:2]", "limits.id_bytes=8192", "inputs.0.id_type=string")
    assert config.kafka.bootstrap_servers == "a:1,b:2"
    assert (config.limits.id_bytes, config.inputs[0].id_type) == (8192, "string")
