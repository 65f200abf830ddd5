"""A live run over updates of windows without ids, read with the default emission: a doubt that names it, also through
restarts, retention, and results that are read before their events (SEMANTICS 4.29)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.unit.fed_run import confirmed, suspected
from tests.unit.local_run import LATER_US, LocalRun, _LocalRunner
from tests.unit.memory_tables import MemoryTables
from validator.codecs.one_record import Record
from validator.core.totals import CellTotals
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot
from validator.state.tables import StateTables

S: Final = 1_000_000
HOUR_US: Final = 3_600 * S
START_MS: Final = LATER_US // 1_000 - 600_000
UNKNOWN: Final = Verdict.UNKNOWN
TEXT: Final = """
pipeline: updated
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs: [{topic: in, fields: {key: k, event_time: {path: at, unit: ms}}}]
outputs:
  - {topic: out, evidence: values, fields: {key: k, window_start: {path: start, unit: ms}, values: {n: n}}}
oracle: {kind: tumbling_window, size: 10s, values: {n: count}}
state: {path: state, retention: 1h}
"""


class Live:
    """A pipeline that writes a window again with each of its events, and the sidecar beside it. ``repeats``: it writes
    a window once, and then once more."""

    def __init__(self, state: Path, tables: StateTables, *, repeats: bool = False) -> None:
        self.records: dict[str, list[Record]] = {"in": [], "out": []}
        self.seen: Counter[int] = Counter()
        self.repeats = repeats
        self.run = LocalRun(state, text=TEXT, now_us=LATER_US, tables=tables)
        self.restart(begins=True)

    def restart(self, *, begins: bool = False) -> None:
        if not begins:
            self.run.restart()
        cast("_LocalRunner", self.run.runner).logs = self.records

    def step(self, at_s: Sequence[int] = (), *, after_us: int = S, but: Iterable[str] = ()) -> Snapshot:
        """Events at these seconds, and the results after each of them. ``but``: topics that the batch does not read."""
        for at in at_s:
            start = at - at % 10
            self._append("in", {"k": "a", "at": START_MS + 1_000 * at})
            self.seen[start] += 1
            if not self.repeats:
                self.result(start, self.seen[start])
            elif self.seen[start] == 4:
                self.result(start, 4)
                self.result(start, 4)
        return self.run.feed((), after_us=after_us, but=tuple(but))

    def result(self, start: int, number: int) -> None:
        self._append("out", {"k": "a", "start": START_MS + 1_000 * start, "n": number})

    def _append(self, topic: str, value: dict[str, Any]) -> None:
        log = self.records[topic]
        log.append(Record(json.dumps(value).encode(), offset=len(log), timestamp_us=self.run.now_us))
        self.run.logs.ends[topic] = len(log)


def window(number: int) -> list[int]:
    return [10 * number + second for second in (1, 3, 5, 8)]


def is_doubted(shown: Snapshot) -> bool:
    return any("write emission: cumulative" in reason for reason in shown.reasons)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("results_first", [False, True])
def test_the_doubt_stands_from_the_third_update_on(restarts: bool, results_first: bool, tmp_path: Path) -> None:
    live = Live(tmp_path, MemoryTables())
    for number in range(5):
        for half in (window(number)[:2], window(number)[2:]):
            shown = live.step(half, but=["in"] if results_first else ())
            if results_first:
                # The results of an open window are not judged before its events are read.
                assert number == 0 or (confirmed(shown), shown.verdicts[Guarantee.EXACTLY_ONCE]) == ({}, UNKNOWN)
                if restarts:
                    live.restart()
                shown = live.step()
            if (number, half) == (0, window(0)[:2]):
                # SEMANTICS 4.29: the price.
                assert confirmed(shown) == {"duplicate": 1}
                continue
            assert confirmed(shown) == {}
            assert suspected(shown)["duplicate"]
            assert is_doubted(shown), shown.reasons
            assert shown.verdicts[Guarantee.EXACTLY_ONCE] is UNKNOWN
            if restarts:
                live.restart()
                shown = live.step()
                assert (confirmed(shown), is_doubted(shown)) == ({}, True)
    live.step([70], after_us=300 * S)
    ended = live.run.end()
    assert (confirmed(ended), is_doubted(ended)) == ({}, True)
    assert ended.verdicts[Guarantee.EXACTLY_ONCE] is UNKNOWN


@pytest.mark.parametrize("restarts", [False, True])
def test_retired_windows_keep_the_doubt(restarts: bool, tmp_path: Path) -> None:
    live = Live(tmp_path, StateTables(tmp_path))
    for number in range(3):
        live.step(window(number))
    live.step([70])
    live.step(after_us=300 * S)
    for hours in range(4):
        shown = live.step(after_us=HOUR_US)
        assert (confirmed(shown), shown.verdicts[Guarantee.EXACTLY_ONCE]) == ({}, UNKNOWN), hours
    sums = live.run.runner.judging.retired
    assert (sums.cells_several, sums.cells_updated, sums.updates, sums.unproven["duplicate"]) == (3, 3, 9, 18)
    if restarts:
        live.restart()
    assert is_doubted(live.step())
    # A single update would be too few without the retired ones.
    at = 4 * 3_600
    shown = live.step([at + 1, at + 2])
    assert (confirmed(shown), is_doubted(shown)) == ({}, True)
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is UNKNOWN


@pytest.mark.parametrize("restarts", [False, True])
def test_an_engine_that_repeats_its_windows_stays_accused(restarts: bool, tmp_path: Path) -> None:
    live = Live(tmp_path, MemoryTables(), repeats=True)
    for number in range(4):
        shown = live.step(window(number))
        assert confirmed(shown) == {"duplicate": 4 * (number + 1)}
        assert not is_doubted(shown)
        if restarts:
            live.restart()
            assert confirmed(live.step()) == {"duplicate": 4 * (number + 1)}


def test_suspected_repeats_that_are_unresolved_again_are_no_pass(tmp_path: Path) -> None:
    """After a restart, new results of every window are read, and not yet their events: nothing shows updates now."""
    live = Live(tmp_path, MemoryTables())
    live.step(window(0))
    assert is_doubted(live.step([21]))
    live.restart()
    shown = live.step([9], but=["in"])
    assert not is_doubted(shown)
    assert (confirmed(shown), shown.verdicts[Guarantee.EXACTLY_ONCE]) == ({}, UNKNOWN)
    assert any("the results are not judged again yet" in reason for reason in shown.reasons)
    assert is_doubted(live.step())


def test_totals_of_an_older_version_have_no_updates() -> None:
    names = ("cells_several", "cells_updated", "updates")
    kept = {name: count for name, count in CellTotals.empty().to_json().items() if name not in names}
    assert CellTotals.from_json(kept) == CellTotals.empty()
