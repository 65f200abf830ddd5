"""The doctor with a real broker, and without one."""

from __future__ import annotations

import fcntl
import io
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from validator.cli import machine, pipeline
from validator.cli.check_result import CheckResult
from validator.cli.doctor import print_findings, run
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.frontier import PartitionId
from validator.state import identity
from validator.stream import bounded
from validator.stream.doubt_sentences import Example
from validator.stream.examples import Examples

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

pytestmark = pytest.mark.contract

HUGE_BYTES = 300 * 2**20
"""Compressed to 0.3 MB, which any topic accepts."""
TOO_LARGE = "cannot be decompressed and decoded within 200 MiB of memory"
HUGE_PRODUCER = f"""
import sys
from confluent_kafka import Producer

gzip = {{"compression.type": "gzip", "message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 1_500_000}}
producer = Producer({{"bootstrap.servers": sys.argv[1], **gzip}})
producer.produce(sys.argv[2], b" " * {HUGE_BYTES})
sys.exit(producer.flush(100))
"""


def config(folder: Path, *assignments: str) -> Config:
    settings = ["state.path=state", "metrics.port=0", *assignments]
    return loads(EXAMPLES["clickstream"], folder, settings, environment={})


def found(findings: Iterable[CheckResult]) -> dict[str, CheckResult]:
    return {finding.subject: finding for finding in findings}


def test_each_problem_of_this_machine_comes_with_its_fix() -> None:
    findings = list(machine.check())
    assert [f.subject for f in findings][:2] == ["python", "java"]
    assert all(f.text.endswith(".") for f in findings)


def test_unreachable_brokers_are_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(machine, "check", list)
    stream = io.StringIO()
    assert run(config(tmp_path, "kafka.bootstrap_servers=127.0.0.1:1"), stream) == 3
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "1 problem to fix."
    assert lines[-3].startswith("problem  brokers")
    assert lines[-3].endswith(": check kafka.bootstrap_servers.")
    assert "127.0.0.1:1" in lines[-3]


def test_a_machine_without_problems_is_status_0() -> None:
    assert print_findings([CheckResult("ok", "a", "fine."), CheckResult("note", "b", "so it is.")], io.StringIO()) == 0


@pytest.mark.integration
def test_a_pipeline_is_checked_against_a_real_broker(broker: EmbeddedBroker, tmp_path: Path) -> None:
    click, output, absent = (f"doctor-{name}-{uuid.uuid4().hex[:8]}" for name in ("click", "output", "absent"))
    broker.create_topics({click: 3}, {"message.timestamp.type": "CreateTime"})
    broker.create_topics({output: 1}, {"message.timestamp.type": "LogAppendTime"})
    given = config(
        tmp_path,
        f"kafka.bootstrap_servers={broker.bootstrap_servers}",
        f"inputs.0.topic={click}",
        f"outputs.0.topic={output}",
        f"late.0.topic={absent}",
        f"engine.consumer_group={absent}",
        f'canary={{"input": "{absent}-in", "output": "{absent}-out"}}',
    )
    findings = found(pipeline.check(given))
    assert findings["brokers"].status == "ok"
    assert findings[f"topic {click}"] == CheckResult("ok", f"topic {click}", "3 partitions.")
    assert findings[f"topic {absent}"].text.endswith(" fix late[0].topic.")
    assert findings[f"topic {absent}-in"].text.endswith(" fix canary.input.")
    assert findings["timestamps"].status == "note"
    assert findings["timestamps"].text.startswith(f"{click}: timestamps are CreateTime, ")
    assert findings["consumer group"].text.startswith(f"{absent} does not exist;")
    assert findings["state"].text == f"{tmp_path / 'state'} will be created."
    assert findings["retention"].status == "ok"


@pytest.mark.integration
def test_topics_whose_records_may_expire_before_they_are_read_are_named(broker: EmbeddedBroker, tmp_path: Path) -> None:
    click, output, late = (f"doctor-{name}-{uuid.uuid4().hex[:8]}" for name in ("click", "output", "late"))
    broker.create_topics({click: 1}, {"retention.bytes": "1000000"})
    broker.create_topics({output: 1}, {"cleanup.policy": "compact,delete", "retention.ms": "1000"})
    broker.create_topics({late: 1})
    given = config(
        tmp_path,
        f"kafka.bootstrap_servers={broker.bootstrap_servers}",
        *(f"{place}.0.topic={topic}" for place, topic in (("inputs", click), ("outputs", output), ("late", late))),
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(3):
        producer.produce(late, b"{}")
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(late, 0, 2)]).values():
        done.result(30)
    notes = [(it.subject, it.text) for it in pipeline.check(given) if it.subject.startswith("retention")]
    assert [subject.removeprefix("retention of ") for subject, _ in notes] == [click, output, output, late]
    for (_, said), expected in zip(
        notes,
        ("retention.bytes", "cleanup.policy=compact,delete", "expire after 1s", "begins at offset 2"),
        strict=True,
    ):
        assert expected in said


def test_a_locked_state_is_a_problem_and_the_check_takes_no_lock(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT)
    try:
        assert found(pipeline._state(state))["state"].status == "ok"
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = found(pipeline._state(state))["state"]
        assert (held.status, held.text) == (
            "problem",
            f"another sidecar is running on {state}; stop that sidecar, or set another state.path.",
        )
    finally:
        os.close(lock)


def test_a_state_of_another_pipeline_is_a_problem(tmp_path: Path) -> None:
    given = config(tmp_path)
    given.state.path.mkdir()
    assert list(pipeline._identity(given)) == []
    identity.check_or_write(given.state.path, given)
    assert list(pipeline._identity(given)) == []
    [finding] = pipeline._identity(config(tmp_path, "oracle.size=7s"))
    assert finding.status == "problem"
    difference = 'oracle.size was "1m" and is "7s" now'
    fix = "give state.path a new folder, or restore the configuration."
    assert finding.text == f"the state {given.state.path} belongs to another pipeline: {difference}; {fix}"


def test_a_port_in_use_is_a_problem(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        finding = pipeline._port(config(tmp_path, f"metrics.port={port}"))
    assert finding.status == "problem"
    assert finding.text.startswith(f"port {port} on 127.0.0.1 ")
    assert "(Address already in use)" in finding.text


@pytest.mark.integration
def test_the_newest_records_of_every_topic_are_decoded_and_shown(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MEMORY_BYTES", HUGE_BYTES * 2 // 3)
    names = ("in", "out", "late", "none", "huge")
    click, output, late, empty, huge = (f"doctor-{name}-{uuid.uuid4().hex[:8]}" for name in names)
    broker.create_topics({click: 1, output: 1, late: 1, empty: 1, huge: 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(150):
        time = "soon" if number == 120 else "2026-01-31T12:00:01.5"
        producer.produce(click, json.dumps({"id": number, "page": "home", "timestamp": time}))
    producer.produce(output, json.dumps({"page": "home", "windowStart": "2026-01-31T12:00:00", "ids": [1, 2]}))
    producer.produce(late, json.dumps({"clickId": "a", "page": "home", "clickTimestamp": "1970-01-01T00:00:01"}))
    assert producer.flush(30) == 0
    # A separate process, since the producer's memory must not count in this test.
    subprocess.run([sys.executable, "-c", HUGE_PRODUCER, broker.bootstrap_servers, huge], check=True, timeout=120)
    fields = "fields: {id: id, key: page, event_time: timestamp}"
    given = config(
        tmp_path,
        f"kafka.bootstrap_servers={broker.bootstrap_servers}",
        f"inputs.0.topic={click}",
        f"outputs.0.topic={output}",
        "outputs.0.fields.ids=[clickIds]",
        f"late.0.topic={late}",
        f"rejected=[{{topic: {huge}, {fields}}}, {{topic: {empty}, {fields}}}]",
    )
    Path("/proc/self/clear_refs").write_text("5")
    memory_kb = most_memory_kb()
    checked = list(pipeline.check(given))
    findings = [finding for finding in checked if finding.subject.startswith("records of ")]
    print_findings(findings, sys.stdout)
    said = {(finding.subject.removeprefix("records of "), finding.status): finding.text for finding in findings}
    assert said[output, "problem"] == (
        f"none of the newest 1 decodes: at {output}-0 offset 0, field ids (path clickIds) is absent; "
        "check outputs[0].fields.ids."
    )
    assert said[late, "ok"].startswith(
        f"1 of the newest 1 decodes; {late}-0 offset 0 is event a of key home at 1970-01-01T"
    )
    assert "unit of late[0].fields.event_time" in said[late, "note"]
    assert said[empty, "note"].startswith("no committed record is visible")
    assert said[click, "note"].startswith(
        f"1 of the newest 100 does not decode: at {click}-0 offset 120, field event_time (path timestamp) "
    )
    assert said[click, "ok"] == (
        f"99 of the newest 100 decode; {click}-0 offset 149 is event 149 of key home at 2026-01-31T12:00:01.500000Z, "
        "in the window from 2026-01-31T12:00:00.000000Z."
    )

    # A record that decompresses to more than the memory limit ends no process, and no topic is skipped because of it.
    assert said[huge, "note"].startswith(
        f"one of the newest records {TOO_LARGE}: it is in {huge}-0 at or after offset 0."
    )
    clients = {finding.subject: finding.status for finding in checked if finding.subject.endswith(" client")}
    assert clients == {"python client": "ok", "java client": "ok"}
    examples: list[Example] = []
    looked = Examples(given, found=lambda topic, example: examples.append(example))
    looked._look(PartitionId(huge, 0), 0)
    looked._look(PartitionId(click, 0), 120)
    assert [example.offset for example in examples] == [0, 0, 120, 120]
    assert examples[1].unread == TOO_LARGE
    assert [one.field for one in examples[3].why] == ["event_time"]
    assert most_memory_kb() - memory_kb < HUGE_BYTES // 1024 // 2


def most_memory_kb() -> int:
    """Return the peak memory of this process in kB since its last reset."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
