"""Records that are too large: each is counted with its position and not examined, and none ends the sidecar."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts, read_report, set_aside
from validator.stream.oversized_records import FILE

pytestmark = pytest.mark.timeout(900)

LIMITS = ("limits.value_bytes=4000", "limits.key_bytes=50", "limits.id_bytes=40")
LONG = "x" * 60
HUGE_BYTES = 200_000_000
"""Compressed to 200 kB, which any topic accepts."""


def test_records_above_a_limit_are_not_examined_and_confirm_no_violation(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(
        *[click(i, 1) for i in range(1, 9)], click(LONG, 1), click(20, 1, LONG), click(21, 1, pad="x" * 5000)
    )
    # The ids of the result and of the late record of 5,000 bytes are in no other result or late record.
    large = json.dumps({**json.loads(answer([4, 5, 21])), "pad": "x" * 5000})
    pipeline.answers(answer([1, 2, 3]), large, answer([LONG]), answer([20], page=LONG), answer([8]))
    pipeline.put(pipeline.late, set_aside(6, 1), json.dumps({**json.loads(set_aside(7, 1)), "pad": "x" * 5000}))
    assert pipeline.once(state="default").verdicts == ("pass", "pass", "pass")

    for run in (pipeline.once(*LIMITS), pipeline.once(*LIMITS)):
        assert run.verdicts == ("unknown", "unknown", "unknown")
        assert not any(run.report["violations"]["confirmed"].values())
        assert run.counts() == {"expected": 8, "processed": 4, "late": 1, "overdue": 3}
        assert run.report["inputs"]["undecodable"] == 3
        assert run.report["late_records"] == {"read": 2, "undecodable": 1}
        assert run.report["results"]["undecodable"] == 0
        sums = run.report["coverage"]["sums"]
        assert sums == {"records": 11 + 2 + 2, "expired": 3, "invisible": 0, "offsets_spanned": 18}
        said = "\n".join(run.report["reasons"])
        assert f"{pipeline.input}-0 at offset 8 (its id has 60 bytes, above limits.id_bytes) and 2 more" in said
        assert f"{pipeline.late}-0 at offset 1 (its value has 5" in said
        assert f"{pipeline.output}-0 at offset 1 (its value has 5" in said

    # Records within the limits are judged.
    pipeline.answers(*[answer([1]) for _ in range(9)])
    run = pipeline.once(*LIMITS)
    assert run.counts("duplicate") == {"duplicate": 9}
    assert run.verdicts == ("fail", "unknown", "fail")


@pytest.mark.full
def test_a_record_that_does_not_fit_into_memory_is_skipped(pipeline: Pipeline) -> None:
    """Before the record's size is known, it needs more memory than a worker has. Its neighbours are judged."""
    fill(pipeline)
    faults = f"{pipeline.input}-faults"
    report_fault(pipeline, faults)
    status, summary, said = validated(pipeline, f"faults.topic={faults}")
    assert f"offset 4 of {pipeline.input}-0 does not fit" in said
    assert f"{faults}-0 is not read from offset 1 to 1: " in said
    report = read_report(pipeline.state())
    assert report is not None
    (fault,) = report["faults"]
    assert fault["healed"] is not None
    assert status == 3
    check_report(pipeline)
    verdict, _, rest = summary.partition("\n")
    assert "could not be verified" in verdict
    assert "Nothing: " in rest
    assert f"streamproof report {pipeline.state()}" in rest


def fill(pipeline: Pipeline) -> None:
    """Write eleven events with results, and a huge record among them."""
    pipeline.create(inputs=2)
    huge = '{"id": 100, "page": "a", "timestamp": "1970-01-01T00:00:01", "pad": "%s"}' % ("x" * HUGE_BYTES)
    pipeline.clicks(*[click(i, 1) for i in range(4)])
    put_compressed(pipeline, pipeline.input, huge)
    pipeline.clicks(*[click(i, 1) for i in range(5, 8)])
    pipeline.clicks(*[click(i, 1) for i in range(8, 12)], partition=1)
    pipeline.answers(answer([*range(4), *range(5, 12)]))


def report_fault(pipeline: Pipeline, topic: str) -> None:
    """Write a healed fault, with a huge record between its records."""
    pipeline.broker.create_topics({topic: 1})
    fault = {"id": "1", "kind": "process_kill", "target": "e"}
    pipeline.put(topic, json.dumps({**fault, "state": "injected", "time": "2026-01-01T00:00:01Z"}))
    put_compressed(pipeline, topic, '{"id": "%s"}' % ("x" * HUGE_BYTES))
    pipeline.put(topic, json.dumps({**fault, "state": "healed", "time": "2026-01-01T00:00:02Z"}))


def check_report(pipeline: Pipeline) -> None:
    """Every record except the huge one is judged. The report names the huge one."""
    report = read_report(pipeline.state())
    assert report is not None
    assert report["outcome"] == "unknown"
    assert counts(report) == {"expected": 11, "processed": 11}
    assert (report["inputs"]["read"], report["inputs"]["undecodable"]) == (12, 1)
    assert report["coverage"]["sums"] == {"records": 13, "expired": 0, "invisible": 0, "offsets_spanned": 13}
    assert f"{pipeline.input}-0 at offset 4 (it does not fit into the memory" in report["reasons"][0]
    assert not any(report["violations"]["confirmed"].values())
    assert not (pipeline.state() / FILE).exists()


def put_compressed(pipeline: Pipeline, topic: str, value: str) -> None:
    options = {"message.max.bytes": 1_000_000_000, "compression.type": "gzip", "queue.buffering.max.kbytes": 1_500_000}
    producer = Producer({"bootstrap.servers": pipeline.servers, **options})
    producer.produce(topic, value, partition=0)
    assert producer.flush(120) == 0


def validated(pipeline: Pipeline, *settings: str) -> tuple[int, str, str]:
    """Run `validate --once` in a separate process whose workers have the least accepted memory; return the status,
    stdout and stderr."""
    file = pipeline.folder / "pipeline.yaml"
    config = pipeline.config("spark.master=local[2]", "limits.worker_bytes=402653184", *settings)
    file.write_text(json.dumps(config.model_dump(mode="json", by_alias=True)))
    command = [sys.executable, "-m", "validator.cli.main", "validate", str(file), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr
