"""Unusual but correct records: one run reads all of them and must pass without a violation."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.integration.sidecar_fixtures import Pipeline, click, iso

pytestmark = pytest.mark.timeout(900)

Case = tuple[tuple[object, object], float, list[object], list[object]]
_MEGABYTES = [f"{i:01000d}x" for i in range(3000)]
_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)

CASES: dict[str, Case] = {
    # name: (page, region), event time in seconds, ids as events write them, ids as the result writes them
    "number 1 and string 1 are the same id": (("a", "r"), 0, [1, "2"], ["1", 2]),
    "integers at the 64-bit edges": (("edges", "r"), 0, [_LARGEST, _SMALLEST, 0], [0, _SMALLEST, _LARGEST]),
    "integers beyond 64 bits are exact": (("beyond", "r"), 0, [2**63, 2**63 + 1], [2**63 + 1, 2**63]),
    "text ids": (("text", "r"), 0, ["x-1", "007", "-0", "", "é", "1e3"], ["-0", "é", "", "007", "1e3", "x-1"]),
    "text ids in braces": (("braces", "r"), 0, ["{550e8400-e29b}", "[a]", "[7]x"], ["[a]", "[7]x", "{550e8400-e29b}"]),
    "text ids that look like JSON": (
        ("json", "r"),
        0,
        ["[1]", "[]", "{}", '{"a":1}', "NaN"],
        ["{}", "[]", '{"a":1}', "NaN", "[1]"],
    ),
    "a key that looks like an array": (('["a"]', "r"), 0, [34], [34]),
    "a number in another form is the same id": (("forms", "r"), 0, [50.0, 51, 52.0], [50, 51.0, 52]),
    "numbers and texts in one list": (("mixed", "r"), 0, [10, "y", 11], [11, 10, "y"]),
    "scalars that are neither integer nor text": (("scalars", "r"), 0, [True, 1.5], [1.5, True]),
    "an event sent twice is expected twice": (("twice", "r"), 0, [20, 20], [20, 20]),
    "a number as a key": ((7, 8), 0, [30], [30]),
    "composite keys do not run together, left": (("x", "y,z"), 0, [31], [31]),
    "composite keys do not run together, right": (("x,y", "z"), 0, [32], [32]),
    "quotes in keys": (('x","y', "z"), 0, [33], [33]),
    "event times before the epoch": (("negative", "r"), -5, [40, 41], [41, 40]),
    "the first instant of a window": (("first", "r"), -10, [42], [42]),
    "the year 2100": (("future", "r"), 4_102_444_800, [43], [43]),
    "a list of several megabytes": (("huge", "r"), 0, [*_MEGABYTES], [*_MEGABYTES]),
}
"""Every event belongs to one cell, and one result covers that cell completely."""


def test_odd_but_correct_records_pass(pipeline: Pipeline) -> None:
    pipeline.create(config={"max.message.bytes": "16000000"})
    for (page, region), seconds, ids, answered in CASES.values():
        place = {"page": page, "region": region}
        pipeline.clicks(*[json.dumps({"id": i, **place, "timestamp": iso(seconds)}) for i in ids])
        window = {"windowStart": iso(seconds // 10 * 10)}
        pipeline.answers(json.dumps({**{k: str(v) for k, v in place.items()}, **window, "clickIds": answered}))
    # A time with a zone, for a cell that already has an event; an empty list for a cell without events; a tombstone.
    pipeline.clicks('{"id": 60, "page": "zone", "region": "r", "timestamp": "1970-01-01T02:00:05.5+02:00"}')
    pipeline.answers('{"page": "zone", "region": "r", "windowStart": "1970-01-01T00:00:00Z", "clickIds": [60]}')
    # Different forms of a time, for one cell; white space around a value; escaped member names.
    forms = ["1970-01-01T00:00Z", "1970-01-01T00:00:05,5Z", "1970-01-01t00:00:09.999999999z", "19700101T000005Z",
             "1969-12-31T24:00:00", "1970-01-01 01:00:00+01", "1970-01-01T00:00:01.0000000Z", "1970-01-01"]  # fmt: skip
    for number, form in enumerate(forms):
        event = json.dumps({"id": 70 + number, "page": "times", "region": "r", "timestamp": form})
        pipeline.clicks("\n\t" + event.replace('"id"', '"\\u0069d"') + " \r\n")
    listed = json.dumps([70 + number for number in range(len(forms))])
    pipeline.answers(
        f'\r\n{{"page": "times", "region": "r", "windowStart": "1970-01-01T00:00Z", "clickIds": {listed}}}\n'
    )
    pipeline.answers('{"page": "none", "region": "r", "windowStart": "1970-01-01T00:00:00Z", "clickIds": []}', None)

    run = pipeline.once(
        "inputs.0.fields.key=[page, region]", "outputs.0.fields.key=[page, region]", "late.0.fields.key=[page, region]"
    )

    events = sum(len(ids) for _, _, ids, _ in CASES.values()) + 1 + len(forms)
    assert run.counts() == {"expected": events, "processed": events}
    assert run.report["inputs"] == {
        "read": events,
        "undecodable": 0,
        "expired": 0,
        "sampled_out": None,
        "out_of_scope": 0,
    }
    results = {name: count for name, count in run.report["results"].items() if count}
    assert results == {"read": len(CASES) + 4, "correct": len(CASES) + 3, "tombstone": 1}
    assert run.report["cells"]["violated"] == 0
    assert run.verdicts == ("pass", "pass", "pass")
    assert (run.status, run.report["reasons"]) == (0, [])


def test_results_whose_parts_are_in_the_record_pass(pipeline: Pipeline) -> None:
    """The window is in the record's timestamp, the ids are in a header. Of repeated headers, the last one counts."""
    pipeline.create(config={"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    pipeline.clicks(click(1, 11), click("x", 19.999999), click(2, 20))
    producer = Producer({"bootstrap.servers": pipeline.servers})
    for window, ids in ((10, b'["x", 1]'), (20, b" [2]\n")):
        headers = [("ids", b"[900]"), ("ids", ids)]
        producer.produce(pipeline.output, b"any", key=b"a", headers=headers, timestamp=window * 1_000)
    assert producer.flush(30) == 0
    fields = ["key=$key", "window_start=$timestamp", "ids=$header.ids"]
    run = pipeline.once(*[f"outputs.0.fields.{field}" for field in fields])
    assert run.counts() == {"expected": 3, "processed": 3}
    assert (run.verdicts, run.status) == (("pass",) * 3, 0)
