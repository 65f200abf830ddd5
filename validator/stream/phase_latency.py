"""The latencies of each phase, for the report's plots: from the files that its phases are measured from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from validator.measure.output import second_after
from validator.model.snapshot import Histogram
from validator.publish.report_plots import PhaseLatency
from validator.publish.sentences import clock
from validator.publish.times import parse_rfc3339
from validator.stream import counters, measuring
from validator.stream.run_record import RunRecord


def phase_latencies(state: Path, report: Mapping[str, Any]) -> tuple[PhaseLatency, ...]:
    """Those of the phases of ``report`` that were measured, in order; of the whole run where it has no phases.

    ``state``: its folder. The sidecar writes `measures.json` every 10 s and at its end: of a run that goes on, the last
    phase may lack as much. What is damaged has no plot. Raises OSError.
    """
    if report["latency_absent_because"]:
        return ()
    if not report["phases"]:
        return (PhaseLatency("whole run", _of_the_run(state)),)
    series = measuring.opened(state).series
    found = []
    for phase in report["phases"]:
        # One that was not measured: it is older than what is kept, or its edge was told too late.
        if phase.get("results") is None:
            continue
        end_s = second_after(parse_rfc3339(phase["end"])) if phase["end"] else sys.maxsize
        output = series.total(second_after(parse_rfc3339(phase["start"])), end_s)
        latency: Mapping[str, Histogram] = {}
        if output is not None:
            latency = {name: spread.histogram() for name, spread in output.latency.items()}
        found.append(PhaseLatency(_name(phase), latency))
    return tuple(found)


def _of_the_run(state: Path) -> Mapping[str, Histogram]:
    record = RunRecord()
    if counters.restore(state, record) is not None:
        # Damaged or gone: a plot decides nothing.
        return {}
    return {name: tally.frozen() for name, tally in record.latency.items()}


def _name(phase: Mapping[str, Any]) -> str:
    fault = f", {phase['fault']}" if phase["fault"] else ""
    return f"{phase['phase']}{fault}, from {clock(phase['start'])[11:]}"
