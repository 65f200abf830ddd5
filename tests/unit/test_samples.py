"""Samples of records, read from librdkafka's mock broker beside the stream: no record exhausts this process's
memory.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.cli import samples
from validator.cli.check_result import CheckResult
from validator.codecs.one_record import Undecodable
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.frontier import PartitionId
from validator.stream import bounded
from validator.stream.doubt_sentences import Example
from validator.stream.examples import _SECONDS_MAX, Examples

FIELDS = (("id", "id"), ("key", "page"), ("event_time", "timestamp"))
HUGE_BYTES = 300 * 2**20
"""Compressed it has 0.3 MB, below the usual limit of a topic."""
TOO_LARGE = "cannot be decompressed and decoded within 200 MiB of memory"
BROKER = f"""
import sys
from confluent_kafka import Producer

gzip = {{"compression.type": "gzip", "message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 1_500_000}}
producer = Producer({{"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0, **gzip}})
for topic, values in (
    ("huge", (b"{{}}", b" " * {HUGE_BYTES}, b"{{}}")),
    ("output", (b'{{"page": "home", "windowStart": "2026-01-31T12:00:00", "clickIds": [1], "updateIds": [1]}}',)),
    ("events", (b'{{"id": "id-17", "page": "home", "timestamp": "2026-01-31T12:00:01"}}',)),
):
    broker = producer.list_topics(topic, timeout=10).brokers[1]
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(100) == 0
print(f"{{broker.host}}:{{broker.port}}", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker in another process with the three records of `huge`."""
    with subprocess.Popen(
        [sys.executable, "-c", BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def config(servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(bounded, "MEMORY_BYTES", 200 * 2**20)
    settings = (
        "state.path=state",
        f"kafka.bootstrap_servers={servers}",
        "inputs.0.topic=huge",
        "outputs.0.topic=output",
    )
    return loads(EXAMPLES["clickstream"], tmp_path, settings, environment={})


@pytest.fixture
def memory() -> Iterator[None]:
    """Asserts a limit on the memory that this process uses meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")
    before = most_memory_kb()
    yield
    assert most_memory_kb() - before < HUGE_BYTES // 1024 // 4


def most_memory_kb() -> int:
    """The peak memory of this process since the last reset, in KiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


@pytest.mark.parametrize(("without", "noted"), [(2, True), (1, False)])
def test_results_of_which_none_has_an_id_are_noted(without: int, noted: bool, tmp_path: Path) -> None:
    given = loads(EXAMPLES["clickstream"], tmp_path, environment={})
    topic = samples._Topic({0: 0}, {0: 2})
    for offset in range(2):
        topic.add(samples.SampledRecord("output", 0, offset, content="a result", has_no_id=offset < without))
    notes = [one for one in samples._topic_findings(given, "outputs[0]", "output", topic) if one.status == "note"]
    assert bool(notes) is noted
    assert all("lists of ids are all empty" in one.text and "outputs[0].fields.ids" in one.text for one in notes)


@pytest.mark.parametrize("written", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("right", ["s", "ms", "us", "ns", "1999"])
def test_a_wrong_unit_is_a_problem_that_shows_the_time_it_gives(written: str, right: str, tmp_path: Path) -> None:
    field = "{path: timestamp, unit: " + written + "}"
    given = loads(EXAMPLES["clickstream"], tmp_path, [f"inputs.0.fields.event_time={field}"], environment={})
    now_us = time.time_ns() // 1000
    unit_us = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
    instant_us = 930_000_000_000_000 if right == "1999" else int(now_us / unit_us[right] * unit_us[written])
    topic = samples._Topic({0: 0}, {0: 1})
    topic.add(samples.SampledRecord("click", 0, 0, content="an event", instant_us=instant_us))
    first, *rest = samples._topic_findings(given, "inputs[0]", "click", topic)
    assert first.status == "ok"
    expected = {"1999": ["note"], written: []}.get(right, ["problem"])
    assert [one.status for one in rest] == expected
    if expected == ["problem"]:
        assert f"gives {time.strftime('%Y-%m-%dT')}"[:12] in rest[0].text
        assert rest[0].text.endswith("correct inputs[0].fields.event_time.unit.")


@pytest.mark.full
@pytest.mark.usefixtures("memory")
def test_a_huge_record_is_named_and_the_other_topics_are_read(config: Config) -> None:
    client, *records = samples.check(config, {"huge": (0,), "output": (0,)})
    assert client == CheckResult("ok", "python client", "reads huge, output.")
    assert [(finding.subject, finding.status) for finding in records] == [
        ("records of output", "ok"),
        ("records of huge", "note"),
        ("records of huge", "problem"),
    ]
    assert records[1].text.startswith(f"one of the newest records {TOO_LARGE}: it is in huge-0 at or after offset 1.")
    assert records[2].text.startswith("none of the newest 1 decodes: at huge-0 offset 0, field id")


@pytest.mark.parametrize(
    ("ids", "keys", "event", "result"),
    [
        ("plain", "plain", "event id-17 of key home at", "and key home with 2 ids (1, 1)."),
        ("hashed", "plain", "event (hidden) of key home at", "and key home with 2 ids."),
        ("plain", "hidden", "event id-17 of key (hidden) at", "and key (hidden) with 2 ids (1, 1)."),
        ("hidden", "hashed", "event (hidden) of key (hidden) at", "and key (hidden) with 2 ids."),
    ],
)
def test_ids_and_keys_are_shown_only_if_they_are_published_in_plain_form(
    servers: str, tmp_path: Path, ids: str, keys: str, event: str, result: str
) -> None:
    settings = (
        "state.path=state",
        f"kafka.bootstrap_servers={servers}",
        "inputs.0.topic=events",
        "outputs.0.topic=output",
        f"publish={{ids: {ids}, keys: {keys}}}",
    )
    config = loads(EXAMPLES["clickstream"], tmp_path, settings, environment={})
    _, *records = samples.check(config, {"events": (0,), "output": (0,)})
    [of_event] = [finding.text for finding in records if finding.subject == "records of events"]
    [of_result] = [finding.text for finding in records if finding.subject == "records of output"]
    assert event in of_event
    assert of_result.endswith(result)
    if ids != "plain":
        assert "id-17" not in of_event
    if keys != "plain":
        assert "home" not in of_event + of_result
    assert not (tmp_path / "state").exists()


@pytest.mark.full
@pytest.mark.usefixtures("memory")
def test_an_example_that_is_huge_says_so(config: Config) -> None:
    found: list[tuple[str, Example]] = []
    looked = Examples(config, found=lambda *what: found.append(what))
    for offset in (1, 2):
        looked._look(PartitionId("huge", 0), offset, attempt=len(_SECONDS_MAX) - 1)  # a busy machine needs its time
    assert found == [
        ("huge", Example(0, 1)),
        ("huge", Example(0, 1, unread=TOO_LARGE)),
        ("huge", Example(0, 2)),
        ("huge", Example(0, 2, tuple(Undecodable(*field, "is absent") for field in FIELDS))),
    ]
