"""Records that look odd and are right: all of them in one run, which must pass without a single finding."""

from __future__ import annotations

import json

import pytest

from tests.integration.sidecar_fixtures import Pipeline, iso

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
"""Every event belongs into one cell, and one result answers that cell whole."""


def test_odd_records_that_are_right_pass(pipeline: Pipeline) -> None:
    pipeline.create(config={"max.message.bytes": "16000000"})
    for (page, region), seconds, ids, answered in CASES.values():
        place = {"page": page, "region": region}
        pipeline.clicks(*[json.dumps({"id": i, **place, "timestamp": iso(seconds)}) for i in ids])
        window = {"windowStart": iso(seconds // 10 * 10)}
        pipeline.answers(json.dumps({**{k: str(v) for k, v in place.items()}, **window, "clickIds": answered}))
    # A time with a zone, for a cell that has an event already; an empty list where nothing was expected; a tombstone.
    pipeline.clicks('{"id": 60, "page": "zone", "region": "r", "timestamp": "1970-01-01T02:00:05.5+02:00"}')
    pipeline.answers('{"page": "zone", "region": "r", "windowStart": "1970-01-01T00:00:00Z", "clickIds": [60]}')
    pipeline.answers('{"page": "none", "region": "r", "windowStart": "1970-01-01T00:00:00Z", "clickIds": []}', None)

    run = pipeline.once(
        "inputs.0.fields.key=[page, region]", "outputs.0.fields.key=[page, region]", "late.0.fields.key=[page, region]"
    )

    events = sum(len(ids) for _, _, ids, _ in CASES.values()) + 1
    assert run.counts() == {"expected": events, "processed": events}
    assert run.report["inputs"] == {
        "read": events,
        "undecodable": 0,
        "expired": 0,
        "sampled_out": None,
        "out_of_scope": 0,
    }
    results = {name: count for name, count in run.report["results"].items() if count}
    assert results == {"read": len(CASES) + 3, "correct": len(CASES) + 2, "tombstone": 1}
    assert run.report["cells"]["violated"] == 0
    assert run.verdicts == ("pass", "pass", "pass")
    assert (run.status, run.report["reasons"]) == (0, [])
