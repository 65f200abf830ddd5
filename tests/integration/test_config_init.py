"""`config init` on a real broker: what it proposes is judged by the sidecar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from testbed.registry_stub import RegistryStub
from tests.integration.sidecar_fixtures import read_report, shared_session, verdicts
from tests.tiers import full
from tests.unit.pipeline_shapes import SHAPES
from validator.cli.main import main
from validator.codecs.one_record import Record
from validator.config.load import loads
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

pytestmark = [pytest.mark.timeout(600)]


def sent(servers: str, logs: Mapping[str, Sequence[Record]]) -> None:
    """Create the topics, and write the records to them."""
    admin, producer = AdminClient({"bootstrap.servers": servers}), Producer({"bootstrap.servers": servers})
    forever = {
        "retention.ms": "-1",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str(2**62),
    }
    for future in admin.create_topics([NewTopic(name, 1, 1, config=forever) for name in logs]).values():
        future.result()
    for topic, records in logs.items():
        for record in records:
            key = record.key if isinstance(record.key, bytes) else None
            producer.produce(topic, record.value, key, 0, timestamp=record.timestamp_us // 1_000)
    producer.flush()


@pytest.mark.parametrize(
    "name", ["flink-click-count", *(full(it) for it in ("sst", "kafka-streams-windowed", "amounts"))]
)
def test_the_proposed_file_passes_a_perfect_engine(
    name: str,
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shape = SHAPES[name]()
    arguments = ["--bootstrap", broker.bootstrap_servers]
    for part, logs in (("input", shape.inputs), ("output", shape.outputs), ("late", shape.late)):
        for topic, records in logs.items():
            name = topic_names(topic)
            sent(broker.bootstrap_servers, {name: records})
            arguments += [f"--{part}", name]
    assert main(["config", "init", *arguments]) == 0
    said = capsys.readouterr()
    file = tmp_path / "pipeline.yaml"
    file.write_text(said.out)
    assert said.out.startswith("# yaml-language-server: ")
    assert main(["config", "check", str(file)]) == 0

    config = loads(said.out, tmp_path, ["metrics.port=0", f"state.path={tmp_path / 'state'}"], {})
    lines: list[str] = []
    status = Sidecar(config, once=True, say=lines.append, session=shared_session()).run()
    report = read_report(tmp_path / "state")
    assert report is not None, lines
    assert (status, verdicts(report)) == (0, ("pass", "pass", "pass")), report["reasons"]


def test_schemas_of_a_registry_are_read(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    shape, stub = SHAPES["avro-service"](), RegistryStub()
    for number, schema in shape.schemas.items():
        assert schema is not None
        stub.add(int(number), schema.text)
    logs = {topic_names(topic): records for topic, records in (*shape.inputs.items(), *shape.outputs.items())}
    sent(broker.bootstrap_servers, logs)
    given, out = logs
    arguments = ["--bootstrap", broker.bootstrap_servers, "--input", given, "--output", out]
    assert main(["config", "init", *arguments, "--registry", stub.url]) == 0
    file = yaml.safe_load(capsys.readouterr().out)
    stub.close()
    assert (file["inputs"][0]["format"], file["outputs"][0]["format"]) == ("avro", "avro")
    assert file["schema_registry"] == {"url": stub.url}
    assert main(["config", "init", *arguments]) == 3
    unwrapped = capsys.readouterr().out.replace("\n#   ", " ")
    assert "name the registry with --registry" in unwrapped, unwrapped


def test_topics_without_a_connection_still_give_a_file(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = topic_names("in"), topic_names("out")
    value = json.dumps({"a": "x"}).encode()
    sent(broker.bootstrap_servers, {given: [Record(value)], out: [Record(b"\x00\x01")]})
    arguments = ["--bootstrap", broker.bootstrap_servers, "--input", given, "--output"]
    assert main(["config", "init", *arguments, out]) == 3
    said = capsys.readouterr()
    assert "Nothing is proven" in said.out
    assert "Nothing is proven" in said.err
    file = tmp_path / "pipeline.yaml"
    file.write_text(said.out)
    assert main(["config", "check", str(file)]) == 0
    assert main(["config", "init", *arguments, f"{out}-absent"]) == 2
    assert "does not exist" in capsys.readouterr().err
