"""Retention while the sidecar is down, behind its topics, or held by an open transaction."""

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from tests.worlds import some
from validator.model.classes import Guarantee, Verdict

HOUR_US = 60 * MINUTE_US
SETTINGS = ("state.retention=24h", "timing.missing_after=2m")


@pytest.fixture(autouse=True, params=some([False, True]), ids=lambda saves: "saves" if saves else "folds")
def saves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process folds all facts, or continues from the cells that the previous one saved."""
    monkeypatch.setattr(FedRun, "saves", request.param)


def _answered(number: int, window: int) -> tuple[Fed, Fed]:
    return Fed("click", (number,), window * MINUTE_US), Fed("output", (number,), window * MINUTE_US)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("down_hours", [30, 80])
def test_a_pause_does_not_hide_duplicates(tmp_path: Path, down_hours: int, is_restarted: bool) -> None:
    run = FedRun(tmp_path, SETTINGS)
    run.feed([*_answered(1, 0), *_answered(2, 2)])
    run.send(Fed("output", (1,)), Fed("click", (3,), 4 * MINUTE_US))
    if is_restarted:
        run.restart()
    shown = run.feed([], after_us=down_hours * HOUR_US, but=["output"])
    assert shown.contributions["out_of_scope"] == 0
    shown = run.feed([])
    assert shown.violations["confirmed"]["duplicate"] == 1
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] == Verdict.FAIL


@pytest.mark.parametrize(("hours", "expected"), [(28, Verdict.FAIL), (60, Verdict.UNKNOWN)])
def test_an_open_transaction_keeps_cells_for_twice_the_retention(tmp_path: Path, hours: int, expected: Verdict) -> None:
    """If the cells leave before the transaction ends, its records are not judged, and the verdict is unknown."""
    run = FedRun(tmp_path, SETTINGS)
    run.feed([*_answered(1, 0), *_answered(2, 2)])
    run.logs.open_from["output"] = 2
    run.send(Fed("output", (1,)))
    run.feed([Fed("click", (3,), 4 * MINUTE_US)], after_us=MINUTE_US)
    for _ in range(hours // 4):
        run.feed([], after_us=4 * HOUR_US)
    assert run.runner.judging.sums.cells_undecided == (2 if expected is Verdict.UNKNOWN else 0)
    del run.logs.open_from["output"]
    run.feed([])
    run.restart()
    shown = run.feed([], after_us=MINUTE_US)
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] == expected
    if expected is Verdict.UNKNOWN:
        assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
        assert [reason for reason in shown.reasons if "before the verdict was decided" in reason]


@pytest.mark.parametrize("is_restarted", some([False, True]))
def test_cells_do_not_accumulate_behind_a_transaction_that_never_ends(tmp_path: Path, is_restarted: bool) -> None:
    run = FedRun(tmp_path, SETTINGS)
    run.logs.open_from["output"] = 0
    run.logs.ends["output"] = 1
    sizes = []
    for hour in range(0, 24 * 6, 6):
        run.feed([Fed("click", (hour,), hour * HOUR_US)], after_us=6 * HOUR_US)
        if is_restarted and hour % 12:
            run.restart()
        sizes.append(len(run.runner.judging.cells))
    assert max(sizes) <= 4 * 3 + 2, sizes
    assert set(run.shown().verdicts.values()) == {Verdict.UNKNOWN}


def test_cells_do_not_accumulate_behind_a_deleted_topic(tmp_path: Path) -> None:
    run = FedRun(tmp_path, SETTINGS)
    run.feed([*_answered(0, 0)])
    # As in a generation that waits for the topic.
    run.runner.sources = [source for source in run.runner.sources if source.topic != "lateOutput"]
    sizes = []
    for hour in range(6, 24 * 5, 6):
        run.feed([*_answered(hour, hour * 60)], after_us=6 * HOUR_US)
        sizes.append(len(run.runner.judging.cells))
    assert max(sizes) <= 4 * 3 + 2, sizes
    assert run.runner.judging.sums.cells_undecided > 0


def test_a_record_of_a_retired_cell_is_not_an_estimate(tmp_path: Path) -> None:
    run = FedRun(tmp_path, SETTINGS)
    run.feed([*_answered(1, 0), *_answered(2, 60)])
    run.feed([*_answered(3, 62)], after_us=30 * HOUR_US)
    run.feed([*_answered(4, 64)], after_us=2 * HOUR_US)
    shown = run.feed([Fed("output", (1,))], after_us=HOUR_US)
    assert run.runner.judging.sums.cells_estimated == 0
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] == Verdict.PASS
