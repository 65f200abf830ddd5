"""A sidecar is killed during a fault and again in the recovery: its report has the same faults as an undisturbed
sidecar's report."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from testbed.processes import OwnedProcess
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, await_no_orphan, kill_group, until
from tests.integration.fault_load import ANSWERED, LOST, MEASURES, run_load
from tests.integration.sidecar_fixtures import Pipeline, counts, read_report

TICK_SECONDS = 0.5
WINDOW = "250ms"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_sidecar_killed_during_a_fault_reports_it_as_an_undisturbed_one(pipeline: Pipeline) -> None:
    faults = f"{pipeline.name}-faults"
    # With broker time, a violation is attributed by when it happened, not by when it was read.
    pipeline.create(config={"message.timestamp.type": "LogAppendTime"})
    pipeline.broker.create_topics({faults: 1})
    sidecars = Sidecars(pipeline.name, pipeline.servers, pipeline.folder)
    # A window is at most one tick long, so a missing event is dated by its window's end. The load has two windows
    # per second: if they were 10 s long, the date would depend on when a sidecar happened to read the event.
    own = (f"faults.topic={faults}", f"oracle.size={WINDOW}", *MEASURES)
    settings = [part for one in own for part in ("--set", one)]

    def lasts(report: dict[str, Any]) -> bool:
        return bool(report["faults"]) and report["faults"][0]["healed"] is None

    def is_healed(report: dict[str, Any]) -> bool:
        return bool(report["faults"]) and report["faults"][0]["healed"] is not None

    settled = {"processed": ANSWERED, "missing": LOST}
    process = sidecars.start("killed", *settings)
    load = threading.Thread(target=run_load, args=(pipeline, faults, TICK_SECONDS), name="load")
    try:
        reported(sidecars, process, lambda report: True)
        load.start()
        for moment in (lasts, is_healed):
            reported(sidecars, process, moment)
            kill_group(process)
            await_no_orphan(process.pid)
            process = sidecars.start("killed", *settings)
        load.join()
        reported(sidecars, process, lambda report: counts(report, "processed", "missing") == settled)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 1
        await_no_orphan(process.pid)
    finally:
        process.kill()
        if load.ident is not None:
            load.join()
    assert sidecars.once("undisturbed", "--leave-open", *settings) == 1
    killed, undisturbed = sidecars.report("killed"), sidecars.report("undisturbed")
    assert killed["validator"]["restarts"] == 2
    assert undisturbed["faults"][0]["recovered"] is True
    assert killed["faults"] == undisturbed["faults"]
    assert killed["phases"] == undisturbed["phases"]


def reported(sidecars: Sidecars, process: OwnedProcess, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the report of the killed state satisfies ``holds``."""

    def found() -> bool:
        assert process.is_running, process.last_lines()
        report = read_report(sidecars.state("killed"))
        return report is not None and holds(report)

    until(found, PROCESS_SECONDS_MAX, process.last_lines)
