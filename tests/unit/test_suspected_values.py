"""Wrong values that are suspected, while newer results of their windows are read before the events (SEMANTICS 4.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.unit.fed_run import confirmed, suspected
from tests.unit.local_run import LATER_US, LocalRun, _LocalRunner
from tests.unit.memory_tables import MemoryTables
from validator.codecs.one_record import Record
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot

S: Final = 1_000_000
START_S: Final = LATER_US // S - 600
TEXT: Final = """
pipeline: wrong
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs: [{topic: in, fields: {key: k, event_time: {path: at, unit: s}}}]
outputs:
  - {topic: out, evidence: values, fields: {key: k, window_start: {path: start, unit: s}, values: {n: n, s: s}}}
oracle: {kind: tumbling_window, size: 10s, values: {n: count, s: sum(a)}}
timing: {missing_after: 5s, overdue_after: 1s}
state: {path: state}
"""


class Live:
    """An engine whose sums are 1 too low in all windows but one, and the sidecar beside it."""

    def __init__(self, state: Path) -> None:
        self.records: dict[str, list[Record]] = {"in": [], "out": []}
        self.run = LocalRun(state, text=TEXT, now_us=LATER_US, tables=MemoryTables())
        cast("_LocalRunner", self.run.runner).logs = self.records

    def restart(self) -> None:
        self.run.restart()
        cast("_LocalRunner", self.run.runner).logs = self.records

    def append(self, topic: str, at: int, **more: Any) -> None:
        log, name = self.records[topic], "at" if topic == "in" else "start"
        value = {"k": "a", name: START_S + at, **more}
        log.append(Record(json.dumps(value).encode(), offset=len(log), timestamp_us=self.run.now_us))
        self.run.logs.ends[topic] = len(log)

    def step(self, *unread: str, after_us: int = S) -> Snapshot:
        return self.run.feed((), after_us=after_us, but=unread)


@pytest.mark.parametrize("restarts", [False, True])
def test_suspected_values_whose_windows_have_newer_results_are_no_pass(restarts: bool, tmp_path: Path) -> None:
    live = Live(tmp_path)
    for start in (0, 10, 20, 30):
        for at in range(3):
            live.append("in", start + at, a=5)
        live.append("out", start, n=3, s=15 if start == 30 else 14)
    live.append("in", 70, a=1)
    live.step()
    assert suspected(live.step(after_us=60 * S)) == {"wrong_value": 3}
    if restarts:
        live.restart()
        assert suspected(live.step()) == {"wrong_value": 3}
    for start in (0, 10, 20):
        live.append("out", start, n=1, s=1)
        live.append("in", start + 5, a=1)
    for shown in (live.step("in"), live.step()):
        # First the newer results are unresolved, then their windows are not due.
        assert (confirmed(shown), shown.verdicts[Guarantee.EXACTLY_ONCE]) == ({}, Verdict.UNKNOWN)
        assert any("3 suspected violations of class wrong_value" in reason for reason in shown.reasons)
    live.step(after_us=60 * S)
    assert suspected(live.step(after_us=60 * S)) == {"wrong_value": 6}
