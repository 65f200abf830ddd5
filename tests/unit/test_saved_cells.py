"""Saved cells are used only if they are valid. Otherwise all facts are folded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import validator
from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.core.judging import new_cells
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.oracles.running_aggregate import RunningAggregate
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.positions import Positions, Settlement, Stretch, reread_mark
from validator.state.tables import Table
from validator.stream.batch import NewGenerationWanted
from validator.stream.commit_rows import mark_row
from validator.stream.generations import _rules_of
from validator.stream.recovery import Recovered, time_rules_of
from validator.stream.retention import Retired
from validator.stream.saved_cells import FILE, SavedCells, Saver, saved_cells

PLACE = PartitionId("click", 0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FedRun:
    """A run that has saved after its third batch. Two windows had closed by then."""
    monkeypatch.setattr(FedRun, "saves", True)
    run = FedRun(tmp_path / "state")
    run.runner.judging.evict_at = 1
    for number in range(3):
        window = 2 * number * MINUTE_US
        run.feed([Fed("click", (number,), window), Fed("output", (number,), window)], after_us=MINUTE_US)
    return run


def shown(run: FedRun) -> tuple[object, ...]:
    now = run.feed([], after_us=10 * MINUTE_US)
    # The choice of cells whose fingerprints are checked depends on what is in memory.
    return now.contributions, {**now.cells, "sampled": 0}, now.violations


def test_a_start_folds_later_facts_only(run: FedRun) -> None:
    assert run.runner.judging.evicted.sums.cells_settled == 2
    run.saves = False
    run.feed([Fed("click", (7,), 6 * MINUTE_US)])
    run.saves = True
    run.restart()
    assert run.folded_from == 3
    found = shown(run)
    (run.state / FILE).unlink()
    run.restart()
    assert run.folded_from == 0
    assert shown(run) == found


def test_a_damaged_file_is_reported_and_not_used(run: FedRun) -> None:
    path = run.state / FILE
    whole = path.read_bytes()
    rules, time_rules = _rules_of(run.config), TimeRules(0, 0)
    for damaged in (b"", b"no", whole[:-9], whole[:90] + bytes([whole[90] ^ 1]) + whole[91:]):
        path.write_bytes(damaged)
        found = saved_cells(run.state, rules, time_rules)
        assert isinstance(found, str)
        assert str(path) in found


def test_a_file_of_other_rules_or_another_version_is_not_used(run: FedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = _rules_of(run.config)
    time_rules = time_rules_of(run.config)
    assert saved_cells(run.state, rules, time_rules) is not None
    assert saved_cells(run.state, replace(rules, missing_after_us=rules.missing_after_us + 1), time_rules) is None
    assert saved_cells(run.state, rules, replace(time_rules, max_disorder_us=1)) is None
    monkeypatch.setattr(validator, "__version__", "0.0.0")
    assert saved_cells(run.state, rules, time_rules) is None


def test_a_file_newer_than_the_tables_is_not_used(run: FedRun, tmp_path: Path) -> None:
    """The tables are restored from an older copy, and the file is not."""
    copy = tmp_path / "copy"
    shutil.copytree(run.state, copy)
    run.feed([Fed("click", (7,), 6 * MINUTE_US)])
    shutil.copy(run.state / FILE, copy / FILE)
    shutil.rmtree(run.state)
    shutil.copytree(copy, run.state)
    run.restart()
    assert run.folded_from == 0


def settled() -> str:
    return Settlement(PLACE, (Stretch(0, 0, 1),), "known").to_mark()


@pytest.mark.parametrize("mark", [settled, lambda: reread_mark(["click"])], ids=["settled", "reread"])
def test_a_mark_that_changes_the_meaning_of_older_facts_invalidates_the_file(
    run: FedRun, mark: Callable[[], str]
) -> None:
    progress = replace(
        run.runner.progress, batch=run.runner.progress.batch + 1, lookup_us=run.runner.progress.lookup_us + 1
    )
    row = mark_row(progress, mark(), run.config.state.retention_us)
    run.runner.tables.append(row, Table.FACTS, writer="test", version=progress.batch)
    run.restart()
    assert run.folded_from == 0


@pytest.mark.full
def test_a_retirement_saves_again_and_a_kill_before_it_invalidates_the_file(run: FedRun) -> None:
    before = (run.state / FILE).read_bytes()
    run.saves = False
    retired = run.runner.retired
    hour = 0
    while run.runner.retired is retired:
        hour += 1
        run.feed([Fed("click", (9 + hour,), hour * 60 * MINUTE_US)], after_us=60 * MINUTE_US)
    run.saves = True
    after = (run.state / FILE).read_bytes()
    assert after != before, "without being asked"
    run.restart()
    assert run.folded_from == run.runner.progress.batch + 1, "nothing is folded"
    (run.state / FILE).write_bytes(before)
    run.restart()
    assert run.folded_from == 0


def test_files_of_a_killed_writer_are_removed(run: FedRun) -> None:
    left = run.state / f".{FILE}.4711.tmp"
    left.write_bytes(b"half")
    Saver(run.state, _rules_of(run.config), TimeRules(0, 0))
    assert not left.exists()
    assert (run.state / FILE).exists()


def test_the_file_states_its_batch_and_version(run: FedRun) -> None:
    content = (run.state / FILE).read_bytes()
    begin = content.index(b'{"made_by"')
    plain, _ = json.JSONDecoder().raw_decode(content[begin:].decode("utf-8", "replace"))
    assert plain["batch"] == run.runner.progress.batch
    assert validator.__version__ in plain["made_by"]


def test_settled_cells_that_a_new_horizon_puts_out_of_scope_are_folded_again(run: FedRun) -> None:
    """The partition's first event turns out to be after cells that were settled."""
    runner, begins_us = run.runner, 3 * MINUTE_US
    late = replace(runner.progress.frontiers[PLACE], hidden_start=True, horizon_us=begins_us)
    runner.progress = replace(runner.progress, frontiers={**runner.progress.frontiers, PLACE: late})
    run.saves = False
    with pytest.raises(NewGenerationWanted):
        run.feed([Fed("click", (7,), 6 * MINUTE_US)])
    run.saves = True
    run.restart()
    assert run.folded_from == 0
    assert run.feed([]).contributions["out_of_scope"] > 0


def test_the_partitions_of_several_output_topics_keep_their_numbers(tmp_path: Path) -> None:
    """Otherwise the results of one partition would look like those of two, and none of them would be the newest."""
    rules, time_rules = Rules(RunningAggregate.of(replaces=True), 1, 2), TimeRules(0, 0)
    judging = Recovered(IngestProgress(time_rules), new_cells(rules.oracle), Retired()).judging(
        KnownFacts(None, first_batch=0), rules
    )
    assert judging.cells.newest is not None
    judging.cells.newest.topics = ["late", "early"]
    Saver(tmp_path, rules, time_rules).save(judging, IngestProgress(time_rules), Retired(), Positions())
    found = saved_cells(tmp_path, rules, time_rules)
    assert isinstance(found, SavedCells)
    assert found.cells.newest is not None
    assert found.cells.newest.topics == ["late", "early"]


@pytest.mark.parametrize(
    ("settings", "comes"),
    [
        (("inputs.0.duplicates=collapse",), [Fed("click", (0,))]),
        ((), [Fed("output", (0,))]),
        ((), [Fed("click", (8,)), Fed("output", (8,))]),
    ],
    ids=["repeated_event", "repeated_result", "late_event"],
)
def test_a_record_of_a_cell_saved_as_settled_is_judged_with_its_older_facts(
    settings: tuple[str, ...], comes: list[Fed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for saves in (False, True):
        monkeypatch.setattr(FedRun, "saves", saves)
        run = FedRun(tmp_path / str(saves), settings)
        run.runner.judging.evict_at = 1
        for number in range(3):
            window = 2 * number * MINUTE_US
            run.feed([Fed("click", (number,), window), Fed("output", (number,), window)], after_us=MINUTE_US)
        run.saves = False
        run.feed(comes)
        run.saves = saves
        run.restart()
        assert (run.folded_from > 0) is saves
        found.append(shown(run))
    assert found[0] == found[1]


def test_nothing_is_saved_of_a_batch_that_was_not_committed(run: FedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (run.state / FILE).read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(run.runner.tables, "append", full)
        with pytest.raises(OSError, match="No space left"):
            run.feed([Fed("click", (7,), 6 * MINUTE_US)])
    run.runner.save()
    assert (run.state / FILE).read_bytes() == before


def test_a_file_that_cannot_be_written_stops_nothing(
    run: FedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = (run.state / FILE).read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    run.feed([Fed("click", (7,), 6 * MINUTE_US)])
    run.feed([Fed("click", (8,), 6 * MINUTE_US)])
    assert capsys.readouterr().out.count(f"{FILE} cannot be written") == 1
    assert (run.state / FILE).read_bytes() == before


@pytest.mark.full
def test_the_file_does_not_grow_with_runs_and_batches(run: FedRun) -> None:
    """A confirmed loss keeps its cell in memory."""
    run.feed([Fed("click", (50,), 5 * MINUTE_US)])
    for number in range(20):
        run.feed([Fed("click", (100 + number,), (7 + number) * MINUTE_US)], after_us=MINUTE_US)
        run.feed([Fed("output", (100 + number,), (7 + number) * MINUTE_US)])
        run.end()
        run.runner.save()
    judging = run.runner.judging
    assert len(judging.watermark_steps) <= len(judging.cells) + 1
    assert len(judging.run_ends) <= 20
