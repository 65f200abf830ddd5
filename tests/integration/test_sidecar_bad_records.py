"""Undecodable records: each is counted, none ends the run, and no verdict depends on what they may contain."""

from __future__ import annotations

import json

import pytest

from tests.integration.sidecar_fixtures import WINDOW_SECONDS, Pipeline, answer, click, iso, set_aside
from validator.cli.main import main

pytestmark = pytest.mark.timeout(900)

_PLACE = {"page": "a", "timestamp": iso(1)}
BAD_EVENTS: dict[str, str | bytes] = {
    "no JSON": "click!",
    "JSON cut short": '{"id": 900, "page": "a", "timest',
    "a quote too few": '{"id":"900,"page":"a","timestamp":"1970-01-01T00:00:01"}',
    "junk after a text": '{"id":"900"x,"page":"a","timestamp":"1970-01-01T00:00:01"}',
    "junk after a number": '{"id":900 1,"page":"a","timestamp":"1970-01-01T00:00:01"}',
    "not UTF-8": b'{"id": "\xff\xfe", ',
    "an array": json.dumps([{"id": 900, **_PLACE}]),
    "a number": "17",
    "no id": json.dumps(_PLACE),
    "a null id": json.dumps({"id": None, **_PLACE}),
    "an object as id": json.dumps({"id": {"number": 900}, **_PLACE}),
    "a list as id": json.dumps({"id": [900], **_PLACE}),
    "no key": json.dumps({"id": 900, "timestamp": iso(1)}),
    "a null key": json.dumps({"id": 900, "page": None, "timestamp": iso(1)}),
    "no time": json.dumps({"id": 900, "page": "a"}),
    "a word as time": json.dumps({"id": 900, "page": "a", "timestamp": "yesterday"}),
    "a number as time, without a unit": json.dumps({"id": 900, "page": "a", "timestamp": 1000}),
    "a time without a date": json.dumps({"id": 900, "page": "a", "timestamp": "00:00:01"}),
    "a date that is none": json.dumps({"id": 900, "page": "a", "timestamp": "1970-13-41T00:00:01"}),
    "junk after the object": json.dumps({"id": 900, **_PLACE}) + " junk",
    "two objects": json.dumps({"id": 900, **_PLACE}) * 2,
    "a byte order mark": b"\xef\xbb\xbf" + json.dumps({"id": 900, **_PLACE}).encode(),
    "NaN": json.dumps({"id": 900, **_PLACE, "x": float("nan")}),
    "single quotes": str({"id": 900, **_PLACE}),
    "an id said twice": '{"id": 900, "page": "a", "timestamp": "1970-01-01T00:00:01", "id": 901}',
    "half of a surrogate pair": '{"id": "\\ud800", "page": "a", "timestamp": "1970-01-01T00:00:01"}',
    "an array as key": json.dumps({"id": 900, **_PLACE, "page": ["a"]}),
    "a time zone without an offset": json.dumps(
        {"id": 900, "page": "a", "timestamp": "1970-01-01T00:00:01 Europe/Paris"}
    ),
    "a zero-byte value": b"",
}
_CELL = {"page": "a", "windowStart": iso(0)}
BAD_RESULTS: dict[str, str | bytes | None] = {
    "no JSON": "answer!",
    "JSON cut short": '{"page": "a", "windowStart": "1970-01-01T00:00:00", "clickIds": [1, 2',
    "a zero-byte value": b"",
    "no ids path": json.dumps(_CELL),
    "null in place of the list": json.dumps({**_CELL, "clickIds": None}),
    "a null id among numbers": json.dumps({**_CELL, "clickIds": [1, None]}),
    "a null id among texts": json.dumps({**_CELL, "clickIds": ["x", None]}),
    "a text in place of the list": json.dumps({**_CELL, "clickIds": "1,2"}),
    "a number in place of the list": json.dumps({**_CELL, "clickIds": 1}),
    "an object as an id": json.dumps({**_CELL, "clickIds": [{"number": 1}]}),
    "a list as an id": json.dumps({**_CELL, "clickIds": [[1]]}),
    "no key": json.dumps({"windowStart": iso(0), "clickIds": [1]}),
    "no window": json.dumps({"page": "a", "clickIds": [1]}),
    "junk after the object": json.dumps({**_CELL, "clickIds": [1]}) + "}",
    "an array as key": json.dumps({**_CELL, "page": ["a"], "clickIds": [1]}),
    "a word as window": json.dumps({"page": "a", "windowStart": "now", "clickIds": [1]}),
}
BAD_LATE: dict[str, str | bytes | None] = {"no id": '{"page": "a"}', "a null value": None}


@pytest.mark.full
def test_an_event_after_an_undecodable_record_may_be_late(pipeline: Pipeline) -> None:
    """The bad record may be newer than everything read so far. After a restart, the sidecar still assumes this."""
    pipeline.create(inputs=2)
    pipeline.clicks(click(1, 1), "click!", click(2, 2), click(3, 21))
    pipeline.clicks(click(4, 3), click(5, 21), partition=1)
    pipeline.answers(answer([4]))
    found = {"expected": 5, "missing": 1, "overdue": 1}
    drop = ("timing.late_policy=drop", "timing.lateness_scope=partition")
    with pipeline.live(*drop) as live:
        live.until(lambda r: r["violations"]["confirmed"]["missing"] == 1)
    again = pipeline.once(*drop, leave_open=True)
    assert again.counts("expected", "missing", "overdue") == found
    assert again.report["outcome"] == "fail"
    assert pipeline.once(state="report").counts("missing", "overdue") == {"missing": 4, "overdue": 0}


def test_undecodable_records_are_counted_and_hold_back_what_they_may_hide(pipeline: Pipeline) -> None:
    pipeline.create()
    # A null value has no id: it is not an event.
    pipeline.clicks(click(1, 1), click(2, 2), *BAD_EVENTS.values(), None)
    # A bad event may have had id 900. No event has key b. Id 2 belongs to another cell, unless a bad event was a second
    # 2.
    pipeline.answers(answer([1, 2, 900]), answer([901], page="b"), answer([2], window=5))
    pipeline.put(pipeline.late, *BAD_LATE.values())

    run = pipeline.once()

    assert run.report["inputs"]["read"] == 3 + len(BAD_EVENTS)
    assert run.report["coverage"]["events"]["tombstone"] == 1
    assert run.report["inputs"]["undecodable"] == len(BAD_EVENTS)
    assert run.report["late_records"] == {"read": len(BAD_LATE), "undecodable": len(BAD_LATE)}
    assert run.counts() == {"expected": 2, "processed": 2, "misplaced": 1, "unknown_id": 2}
    assert run.report["violations"]["suspected"]["unknown_id"] == 2
    assert run.report["violations"]["suspected"]["misplaced"] == 1
    assert not any(run.report["violations"]["confirmed"].values())
    assert run.verdicts == ("unknown", "unknown", "unknown")
    in_doubt = (
        f"the configuration of topic {pipeline.late} is in doubt: no record of it decodes ({len(BAD_LATE)} were read); "
        f"for example {pipeline.late}-0 offset 0, where field id (path clickId) is absent and field event_time (path "
        "clickTimestamp) is absent; check late[0].fields.id and late[0].fields.event_time"
    )
    doubts = [
        in_doubt,
        f"{len(BAD_EVENTS)} input records could not be decoded, so it is not known which violations they would explain",
        f"{len(BAD_LATE)} late records could not be decoded, so it is not known which violations they would explain",
    ]
    of_inputs = run.report["reasons"][1]
    assert of_inputs.startswith(doubts[1])
    assert f"; for example {pipeline.input}-0 offset 2, where its value is not JSON" in of_inputs
    doubts[1] = of_inputs
    assert run.report["reasons"] == doubts

    # Undecodable results are violations of their own class. A tombstone is not a violation.
    pipeline.answers(*BAD_RESULTS.values(), None)
    run = pipeline.once()
    results = {name: count for name, count in run.report["results"].items() if count}
    read = 3 + len(BAD_RESULTS) + 1
    assert results == {
        "read": read,
        "misplaced": 1,  # only its id was sent; 900 and 901 of the `excess` results were not
        "excess": 2,
        "undecodable": len(BAD_RESULTS),
        "tombstone": 1,
    }
    assert run.counts() == {"expected": 2, "processed": 2, "misplaced": 1, "unknown_id": 2}
    assert run.report["reasons"][0].startswith(f"{len(BAD_RESULTS)} results ")
    assert run.report["reasons"][1:] == doubts
    assert run.status == 1

    # Each violation is listed with its position, and fails the verdict of the last hour as well as the run's.
    listed = json.loads((pipeline.folder / "state" / "violations.json").read_text())["violations"]
    found = [entry for entry in listed if entry["class"] == "undecodable"]
    assert sum(entry["count"] for entry in found) == len(BAD_RESULTS)
    assert all(entry["key"].startswith(f"{pipeline.output}-") for entry in found)
    assert all(at.startswith(f"{entry['key']}@") for entry in found for at in entry["ids"])
    assert all(entry["ids"] for entry in found)
    assert set(run.report["violations"]["first_confirmed"]) == {"undecodable"}

    # Each bad event can explain one misplaced result. If there are more, the violation is confirmed.
    # As many results are right: if nearly all had misplaced ids, the configuration would be in doubt.
    windows = range(6, 6 + len(BAD_EVENTS))
    pipeline.clicks(*(click(100 + window, window * WINDOW_SECONDS) for window in windows))
    pipeline.answers(*(answer([id_], window) for window in windows for id_ in (2, 100 + window)))
    run = pipeline.once()
    misplaced = 1 + len(BAD_EVENTS)
    assert run.report["violations"]["confirmed"]["misplaced"] == misplaced
    assert run.report["violations"]["suspected"]["unknown_id"] == 2
    assert run.report["reasons"][0].startswith(f"{misplaced} contributions are in a cell ")


def test_events_without_a_key_and_null_values_are_what_is_declared(pipeline: Pipeline) -> None:
    pipeline.create()
    # The event without a key that is far ahead may have closed windows, and need not have.
    pipeline.clicks(click(1, 1), click(2, 2, None), None, click(3, 3, None), click(4, 45, None), click(5, 5))
    pipeline.answers(answer([1]), answer([3], page=None))
    pipeline.put(pipeline.late, json.dumps({"clickId": 2, "page": None, "clickTimestamp": iso(2)}))
    skip, drop = "inputs.0.missing_key=skip", "timing.late_policy=drop"

    skipped = pipeline.once(skip, state="skip")
    assert skipped.counts() == {"expected": 2, "processed": 1, "missing": 1, "misplaced": 1}
    events = skipped.report["coverage"]["events"]
    assert (events["read"], events["settled"], events["in_no_cell"], events["tombstone"]) == (6, 2, 3, 1)
    assert skipped.report["coverage"]["complete"]

    assert pipeline.once(skip, drop, state="drop").counts("missing", "overdue", "dropped_late") == {
        "missing": 0, "overdue": 1, "dropped_late": 0
    }  # fmt: skip

    owed = pipeline.once("inputs.0.missing_key=owed", state="owed")
    assert owed.counts() == {"expected": 5, "processed": 2, "late": 1, "missing": 2}
    assert owed.report["coverage"]["complete"]


@pytest.mark.full
def test_acknowledged_violations_stay_acknowledged_after_a_restart_and_later_ones_are_open(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]), "answer!", "another")
    with pipeline.live() as live:
        live.until(lambda report: report["violations_unacknowledged"] == 2)
        assert main(["ack", str(live.state), "--class", "undecodable", "--reason", "the old version's"]) == 0
        live.until(lambda report: report["violations_unacknowledged"] == 0)
        assert main(["ack", str(live.state), "--class", "undecodable", "--reason", "twice"]) == 2
    pipeline.answers("a third")
    with pipeline.live() as live:
        report = live.until(lambda report: report["results"]["undecodable"] == 3)
    assert report["violations_unacknowledged"] == 1
    assert report["verdicts_over"]["1h"]["exactly_once"] == report["outcome"] == "fail"


@pytest.mark.full
def test_unknown_ids_beside_undecodable_input_leave_the_verdict_unknown(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), "click!")
    pipeline.answers(answer([1]), answer([900], page="unheard of"))

    run = pipeline.once()

    assert run.counts() == {"expected": 1, "processed": 1, "unknown_id": 1}
    assert run.verdicts == ("unknown", "unknown", "unknown")
    [reason] = run.report["reasons"]
    assert reason.startswith("1 input record could not be decoded")
    assert run.status == 3


@pytest.mark.full
def test_a_run_that_read_nothing_is_unknown(pipeline: Pipeline) -> None:
    pipeline.create()
    run = pipeline.once()
    assert run.counts() == {}
    [reason] = run.report["reasons"]
    assert reason.startswith("nothing has settled")
    assert (run.verdicts, run.status) == (("unknown",) * 3, 3)


def test_late_and_rejected_records_count_as_handled(pipeline: Pipeline) -> None:
    """A set-aside record counts for the cell of its own key and time. If no input explains it, it is a violation."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 3))
    pipeline.answers(answer([1]))
    pipeline.put(pipeline.late, set_aside(2, 2), set_aside(3, 13))

    run = pipeline.once()

    assert run.counts() == {"expected": 3, "processed": 1, "late": 1, "missing": 1, "misplaced": 1}
    # The cell was compared before its loss was due. The violation still names the lost id.
    violations = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    assert {(v["class"], v["state"], v["count"], *v["ids"]) for v in violations} == {
        ("missing", "confirmed", 1, "3"),
        ("misplaced", "confirmed", 1, "3"),
    }
    assert run.verdicts == ("fail", "fail", "fail")
