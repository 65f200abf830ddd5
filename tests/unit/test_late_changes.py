"""Late topics whose records are changes of rows."""

from __future__ import annotations

from pathlib import Path

from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import log, one
from validator.model.classes import Verdict

TEXT = """
pipeline: clicks
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
  - {topic: in, fields: {id: id, key: k, event_time: {path: at, unit: s}}}
outputs:
  - {topic: out, fields: {key: k, window_start: {path: start, unit: s}, ids: ids}}
late:
  - {topic: late, envelope: maxwell, operations: OPERATIONS, fields: {id: id, key: k, event_time: {path: at, unit: s}}}
oracle: {kind: tumbling_window, size: 10s}
state: {path: state}
"""
EVENTS = [{"id": number, "k": "a", "at": 1_767_225_600 + number} for number in range(5)]


def test_a_declared_change_on_a_late_topic_is_a_late_event(tmp_path: Path) -> None:
    changes = [one({"type": kind, "data": EVENTS[n]}) for n, kind in ((3, "insert"), (4, "update"), (3, "table-alter"))]
    logs = {
        "in": log(map(one, EVENTS)),
        "out": log([one({"k": "a", "start": EVENTS[0]["at"], "ids": [0, 1, 2]})]),
        "late": log([*changes, one(None, "a")]),
    }
    for operations, late, ignored, verdict in (
        ("[create]", 1, 3, Verdict.FAIL),
        ("[create, update]", 2, 2, Verdict.PASS),
    ):
        shown = judged(TEXT.replace("OPERATIONS", operations), logs, tmp_path / str(late))
        assert shown.contributions["late"] == late
        assert shown.verdicts[shown.guarantee] is verdict, shown.reasons
        assert (shown.answers_accounted["tombstone"], shown.coverage_differences) == (ignored, ())
