"""A sink's transaction expires before its commit: a real loss under exactly once, which Flink reports.

The expectations were written before the first run. The cluster dies after a checkpoint is complete and before its
transactions are committed, and stays down until the broker has aborted them. The checkpoint covers their clicks, but
the results are lost. So ids are missing, none occurs twice, and the log says "data loss". The sidecar reports the
same number missing: exactly once and at least once fail, at most once passes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.flink import FlinkEngine
from testbed.engines.real import Timeouts
from tests.engines.killed_run import READY_SECONDS_MAX, SETTLE_SECONDS_MAX, KilledRun

pytestmark = [pytest.mark.full, pytest.mark.timeout(420)]
ATTEMPTS_MAX = 5
LOAD_SECONDS = 100
"""An attempt takes up to 20 s."""


def test_an_expired_transaction_loses_results_of_a_completed_checkpoint(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    run = KilledRun(broker, topic_names, LOAD_SECONDS)
    times = Timeouts(commit_interval_seconds=1, transaction_timeout_seconds=6)
    attempts = 0
    with run.engine("flink", tmp_path / "engine", timeouts=times, parallelism=1) as engine:
        assert isinstance(engine, FlinkEngine)
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        while attempts < ATTEMPTS_MAX and run.loads() and not logs_loss(engine):
            attempts += 1
            run.await_answers(uncommitted=True)
            await_checkpoint(tmp_path / "engine")
            # The JobManager is stopped first, since it makes the sinks commit.
            engine.process(engine.jobmanager).send_signal(signal.SIGSTOP)
            engine.kill()
            await_abort(run)
            engine.restart()
            engine.ready(READY_SECONDS_MAX)
        run.finish(settle=not logs_loss(engine))
        engine.stop()
        has_lost = logs_loss(engine)
    counted = run.agreed(tmp_path / "sidecar", "exactly_once", effective)
    print(attempts, "attempts;", counted)
    assert has_lost, f"in {attempts} attempts every transaction was committed before the kill"
    assert counted.missing > 0, counted
    assert (counted.duplicates, counted.misplaced) == (0, 0), counted


def await_checkpoint(folder: Path) -> None:
    """Return as soon as another checkpoint is complete."""
    before = completed(folder)
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while completed(folder) <= before:
        assert time.monotonic() < deadline, "no checkpoint is completed any more"


def completed(folder: Path) -> set[Path]:
    return set(folder.glob("checkpoints/*/chk-*/_metadata"))


def await_abort(run: KilledRun) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while run.uncommitted():
        assert time.monotonic() < deadline, "the broker has not aborted the transaction"


def logs_loss(engine: FlinkEngine) -> bool:
    return any("data loss" in i.log_path.read_text(errors="replace") for i in engine.instances)
