"""Late events that the engine has not read: they keep no other event's loss on record, and a run with `--once` does not
pass beside them (SEMANTICS 2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from tests.unit import fed_run
from tests.unit.fed_run import Fed, FedRun, confirmed
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.arrays import Bools, Ints
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot
from validator.oracles.ids import Flags, IdCounts, IdVerdicts, window_classes
from validator.oracles.windowed_join import Join, classes

IN, OUT = "click", "output"
DROP = ("timing.late_policy=drop", "engine.consumer_group=g")


@pytest.fixture(autouse=True)
def _reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event makes the events that follow it late if their windows are before its own."""
    made = fed_run._row

    def row(one: Fed, side: str, offset: int, at_us: int) -> dict[str, Any]:
        reach = {"reach_us": one.window_us} if side == "input" and one.window_us else {}
        return made(one, side, offset, at_us) | reach

    monkeypatch.setattr(fed_run, "_row", row)


def lost(folder: Path, *settings: str, example: str = "clickstream") -> FedRun:
    return FedRun(folder, (*DROP, *settings), example)


def later(run: FedRun) -> Snapshot:
    run.feed([], after_us=5 * MINUTE_US)
    return run.feed([], after_us=5 * MINUTE_US)


def found(shown: Snapshot) -> tuple[dict[str, int], dict[str, int], Verdict]:
    classes = {name: count for name, count in shown.contributions.items() if count and name != "expected"}
    return confirmed(shown), classes, shown.verdicts[Guarantee.AT_LEAST_ONCE]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("read", [0, 1])
def test_an_answered_loss_is_retracted_beside_a_late_event_that_is_unread(
    once: bool, read: int, tmp_path: Path
) -> None:
    """``read``: number of late events in the cell that the engine has read."""
    patient = ("timing.overdue_after=10m", "timing.missing_after=20m") if once else ()
    run = lost(tmp_path, *patient)
    run.feed([Fed(IN, (1,)), Fed(IN, (2,), 2 * MINUTE_US), Fed(OUT, (2,), 2 * MINUTE_US)])
    run.logs.committed = 2
    assert found(run.end() if once else later(run)) == ({"missing": 1}, {"processed": 1, "missing": 1}, Verdict.FAIL)
    run.restart()
    run.feed([*(Fed(IN, (90 + number,)) for number in range(read + 1)), Fed(OUT, (1,))])
    run.logs.committed = 2 + read
    left = {"pending": read} if once else {"dropped_late": read}
    expected = {"processed": 2, "unconsumed": 1, **(left if read else {})}
    assert found(run.end() if once else later(run)) == ({}, expected, Verdict.UNKNOWN)
    run.restart()
    run.logs.committed = 3 + read
    assert found(run.end()) == ({}, {"processed": 2, "dropped_late": 1 + read}, Verdict.PASS)


def test_a_late_copy_keeps_no_answered_loss_on_record_after_a_reset_of_the_group(tmp_path: Path) -> None:
    run = lost(tmp_path)
    run.feed([Fed(IN, (1,)), Fed(IN, (2,), 2 * MINUTE_US), Fed(OUT, (2,), 2 * MINUTE_US), Fed(IN, (1,))])
    run.logs.committed = 3
    assert confirmed(later(run)) == {"missing": 1}
    run.logs.committed = 0
    assert confirmed(later(run)) == {"missing": 1}, "the loss is still outstanding"
    run.feed([Fed(OUT, (1,))])
    assert found(later(run)) == ({}, {"processed": 2, "unconsumed": 1}, Verdict.UNKNOWN)


class Published(FedRun):
    """A run with `--once` that keeps what it publishes."""

    def restart(self) -> None:
        super().restart()
        self.published: list[Snapshot] = []
        self.runner.record.is_once = True
        self.runner.publish = lambda: self.published.append(self.shown())


@pytest.mark.parametrize("committed", [0, 3])
def test_a_run_publishes_no_pass_before_it_has_concluded(committed: int, tmp_path: Path) -> None:
    run = Published(tmp_path, ("engine.consumer_group=g",))
    run.feed([*(Fed(IN, (number,), number * MINUTE_US) for number in range(3)), Fed(OUT, (0,))])
    run.logs.committed = committed
    last = run.end()
    assert last == run.published[-1]
    assert {shown.verdicts[Guarantee.AT_LEAST_ONCE] for shown in run.published[:-1]} == {Verdict.UNKNOWN}
    assert all("has not reached its end" in shown.reasons[0] for shown in run.published[:-1])
    if committed:
        assert confirmed(last) == {"missing": 2}
    else:
        [reason] = last.reasons
        assert reason.startswith("2 events have not been consumed by group g at the end of the run")


def copies(rng: Random) -> Iterator[tuple[int, int, bool, bool]]:
    """Random events of some cells: cell, id, whether it is late, and whether a reset of the group makes it unread."""
    for cell in range(200):
        for id_ in range(rng.randint(1, 4)):
            for _ in range(rng.choice((1, 1, 2, 3))):
                yield cell, id_, rng.random() < 0.4, rng.random() < 0.9


def judged(rng: Random, kind: str, *, reset: bool) -> tuple[IdVerdicts, Ints]:
    """The classes of random cells, some of whose ids are answered. Returns them, and the missing contributions."""
    events = list(copies(rng))
    keys = sorted({(cell, id_) for cell, id_, _, _ in events})
    number = {key: i for i, key in enumerate(keys)}
    group = np.array([number[cell, id_] for cell, id_, _, _ in events])
    late = np.array([it[2] for it in events])
    unread = np.array([it[3] for it in events]) & reset
    nothing = np.zeros(len(keys), dtype=np.int64)
    answered: Ints = np.array([rng.choice((0, 0, 1)) for _ in keys], dtype=np.int64)
    set_aside: Ints = np.array([rng.choice((0, 0, 0, 1)) for _ in keys], dtype=np.int64)
    each = IdCounts(
        cell=np.array([cell for cell, _ in keys]),
        is_text=nothing,
        id=np.array([id_ for _, id_ in keys]),
        expected=np.bincount(group, minlength=len(keys)),
        processed=answered,
        late=set_aside,
        rejected=nothing,
        unowed=nothing,
        group=group,
        from_input=np.ones(len(events), dtype=np.bool_),
    )
    certain = np.zeros(len(events), dtype=np.bool_)
    flags = Flags(late=late, doubtful=certain, elsewhere=certain, unread=unread, unsure=certain, apart=certain)
    if kind in ("windows", "collapse"):
        shown = window_classes(each, flags, collapse=kind == "collapse")
    else:
        is_right: Bools = each.id >= 2
        shown = classes(each, flags, is_right, cast("Join", kind), drops_late=True)
    return shown, shown.outstanding - shown.dropped_late - shown.unconsumed


@pytest.mark.parametrize("kind", ["windows", "collapse", "inner", "left", "semi"])
def test_after_a_reset_of_the_group_exactly_the_losses_that_were_missing_stay_on_record(kind: str) -> None:
    """``missing``: the losses if the engine has read all events. After a reset they are missing or unconsumed on
    time."""
    several = 0
    for seed in range(20):
        before, missing = judged(Random(seed), kind, reset=False)
        after, still = judged(Random(seed), kind, reset=True)
        assert not before.unconsumed_on_time.any()
        assert (after.unconsumed_on_time <= after.unconsumed).all()
        assert (after.unconsumed_on_time >= 0).all()
        assert (still + after.unconsumed_on_time == missing).all()
        several += int((after.unconsumed_on_time > 0).sum())
    assert several > 100
