"""Lateness scope `idle`: other partitions excuse a loss only after a pause of its own (SEMANTICS 2.31)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun, _FedRunner
from tests.unit.lateness_rows import judged, passing, poison
from tests.unit.publish_snapshots import NOON_US
from tests.unit.reconcile_rows import MINUTE_US, fact
from validator.codecs.columns import PAUSED
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.frontier import Frontier, PartitionId, Pauses
from validator.model.progress import IngestProgress
from validator.model.snapshot import Snapshot
from validator.settings.errors import ConfigError

SECOND_US = 1_000_000
STEP_US = 10 * SECOND_US
STEPS = 40
LOST = 13
"""The step at which partition 1 has an event, 20 s behind partition 0, that no result names."""


class _Reaching(_FedRunner):
    def _rows_of(self, progress: IngestProgress) -> pa.Table:
        # An event is at the start of its window, which is the end of the window before.
        self.rows = [
            {**row, "reach_us": row["window_start_us"] if row["side"] == "input" else None} for row in self.rows
        ]
        return super()._rows_of(progress)


class _Run(FedRun):
    runs = _Reaching


def told(
    folder: Path,
    scope: str,
    silent: Collection[int],
    restarts: Collection[int] = (),
    *,
    first: Mapping[str, str] | None = None,
    corrected: Mapping[int, Mapping[str, str]] | None = None,
) -> Snapshot:
    """The report of a run: at each step, every 10 s, an event on each partition, and each window's result a minute
    later. Partition 1 is 20 s behind, and has no event at the ``silent`` steps. ``first``: other settings of `timing`.
    ``corrected``: step -> settings of `timing` from there on."""
    timing = {
        "late_policy": "drop",
        "lateness_scope": scope,
        "idle_after": "1m",
        "missing_after": "2m",
        **(first or {}),
    }
    zero = {"max_disorder": "0s", "allowed_lateness": "0s"}
    given = [f"timing.{name}={value}" for name, value in (timing | zero).items()]
    run = _Run(folder, (*given, "late=[]", "oracle.size=1m"))
    run.send(Fed("click", (0,), NOON_US))
    run.logs.added[PartitionId("click", 1)] = (0, 0)
    ids: dict[int, list[int]] = defaultdict(list)
    shown = run.shown()
    for step in range(STEPS):
        events = [(0, 1 + step, 0)] + ([] if step in silent else [(1, 1_001 + step, 20)])
        fed = []
        for partition, id_, behind in events:
            window_us = (NOON_US + step * STEP_US - behind * SECOND_US) // MINUTE_US * MINUTE_US
            fed.append(Fed("click", (id_,), window_us, partition=partition))
            if id_ != 1_001 + LOST:
                ids[window_us].append(id_)
        closed_us = NOON_US + step * STEP_US - 2 * MINUTE_US
        if step % 6 == 0 and (named := ids.pop(closed_us, None)):
            fed.append(Fed("output", (*named, *([0] if closed_us == NOON_US else [])), closed_us))
        shown = run.feed(fed, after_us=STEP_US)
        if step in restarts:
            run.restart()
        for name, value in (corrected or {}).get(step, {}).items():
            run.correct(f"timing.{name}={value}")
    return shown


@pytest.mark.parametrize(
    ("first", "corrected"),
    [
        ({"lateness_scope": "global"}, {LOST + 3: {"lateness_scope": "idle"}}),
        ({"late_policy": "report"}, {LOST + 3: {"late_policy": "drop"}}),
        ({}, {5: {"lateness_scope": "global"}, LOST + 3: {"lateness_scope": "idle"}}),
        ({"idle_after": "3m"}, {LOST + 3: {"idle_after": "1m"}}),
    ],
)
def test_pauses_from_before_they_were_followed_are_not_known(
    first: Mapping[str, str], corrected: Mapping[int, Mapping[str, str]], tmp_path: Path
) -> None:
    shown = told(tmp_path, "idle", range(LOST - 4, LOST), first=first, corrected=corrected)
    assert (shown.contributions["missing"], shown.contributions["overdue"]) == (0, 1)


def test_without_a_pause_a_loss_is_proven_that_other_partitions_would_excuse(tmp_path: Path) -> None:
    for scope in ("idle", "partition", "global"):
        shown = told(tmp_path / scope, scope, silent=())
        missing, overdue = (1, 0) if scope != "global" else (0, 1)
        assert (shown.contributions["missing"], shown.contributions["overdue"]) == (missing, overdue), scope


@pytest.mark.parametrize("restarts", [(), (8,), (11, 14)])
def test_a_pause_before_the_event_excuses_it_and_the_reason_names_the_scope(
    restarts: Collection[int], tmp_path: Path
) -> None:
    shown = told(tmp_path, "idle", silent=range(LOST - 4, LOST), restarts=restarts)
    assert (shown.contributions["missing"], shown.contributions["overdue"]) == (0, 1)
    [reason] = [reason for reason in shown.reasons if "timing.lateness_scope is idle" in reason]
    assert "may have had no events for 30s before" in reason


def test_a_pause_of_another_event_excuses_nothing(tmp_path: Path) -> None:
    for silent in (range(LOST - 9, LOST - 5), range(LOST + 1, LOST + 6)):
        shown = told(tmp_path / str(silent), "idle", silent)
        assert (shown.contributions["missing"], shown.contributions["overdue"]) == (1, 0), silent


def test_what_others_passed_in_a_pause_makes_only_later_events_late() -> None:
    event = {**fact("input", [7], batch=0, lookup_us=1), "first_offset": 5, "ids": [{"id": 7, "offset": 5}]}
    answer = fact("output", [8], batch=0, lookup_us=1, window_us=MINUTE_US)
    paused = {**poison(4), "status": PAUSED, "records": 0}
    others, lost = passing("input", 1), {"expected": 2, "processed": 1, "missing": 1}
    assert judged(event, others, answer, scope="idle") == lost
    assert judged(event, others, answer, paused, scope="idle") == {"expected": 2, "processed": 1, "overdue": 1}
    assert judged(event, others, answer, {**paused, "first_offset": 5}, scope="idle") == lost, "an earlier event"
    assert judged(event, others, answer, {**paused, "reach_us": MINUTE_US - 1}, scope="idle") == lost, "not passed"
    assert judged(event, others, answer, {**paused, "partition": 2}, scope="idle") == lost, "another partition"
    assert judged(event, others, answer, paused, scope="partition") == lost


IDLE = Frontier("input", "click", 0, "id", 3, 10, 0, 10, 10, 5, read_through_us=5)


@pytest.mark.parametrize(
    ("after_us", "known", "at_us", "read_us", "pauses"),
    [
        pytest.param(None, None, 50, None, ((3, 60),), id="the first batch"),
        pytest.param(41, None, 50, None, ((3, 60),), id="the first batch after they were not followed"),
        pytest.param(None, (), 50, None, ((8, 60),), id="no event yet"),
        pytest.param(41, (), 50, None, (), id="an event just before"),
        pytest.param(40, (), 50, None, ((8, 60),), id="an event a pause before"),
        pytest.param(41, ((6, 55),), 50, 54, ((6, 55),), id="others are not read through"),
        pytest.param(41, ((6, 55),), 50, 55, (), id="others are read through"),
        pytest.param(40, ((6, 55), (8, 58)), 50, 50, ((6, 55), (8, 60)), id="it lasts"),
    ],
)
def test_a_pause_lasts_until_half_of_idle_after_later(
    after_us: int | None, known: Pauses | None, at_us: int, read_us: int | None, pauses: Pauses
) -> None:
    before = replace(IDLE, next_offset=8, pauses=known, pause_us=None if known is None else 10)
    assert replace(IDLE, event_after_us=after_us).with_pauses(before, at_us, 10, read_us).pauses == pauses


def test_a_bounded_number_of_pauses_is_kept_and_joined_ones_excuse_more() -> None:
    frontier = replace(IDLE, pauses=(), pause_us=9)
    for offset in range(30):
        frontier = replace(frontier, next_offset=offset)
        frontier = frontier.with_pauses(frontier, offset, 9, None)
    assert frontier.pauses is not None
    assert len(frontier.pauses) == 16
    assert [frontier.pauses[0], frontier.pauses[-1]] == [(0, 14 + 9), (29, 29 + 9)]


def test_a_scope_with_idle_partitions_needs_time_for_their_pauses(tmp_path: Path) -> None:
    given = ("timing.lateness_scope=idle", "timing.idle_after=5m", "metrics.port=0")
    with pytest.raises(ConfigError, match=r"timing\.missing_after: 2m is below half of idle_after"):
        loads(EXAMPLES["minimal"], tmp_path, given, environment={})
