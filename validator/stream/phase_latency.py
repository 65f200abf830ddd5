"""The latencies of each phase for the HTML report, read from the files of the sidecar's measurements."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from validator.measure.output import second_after
from validator.model.snapshot import Histogram
from validator.publish.html_sections import PhaseLatency
from validator.publish.report_types import PhaseOfReport, Report
from validator.publish.sentences import clock
from validator.publish.times import parse_rfc3339
from validator.stream import counters, measuring
from validator.stream.run_record import RunRecord


def phase_latencies(state: Path, report: Report) -> tuple[PhaseLatency, ...]:
    """Latencies of the measured phases of ``report``, in time order, or of the whole run if there are no phases.

    ``state``: the state folder. The sidecar writes `measures.json` every 10 s and at its end, so the last phase of an
    active run may lack up to 10 s. A damaged file gives no latency. Raises OSError.
    """
    if report["latency_absent_because"]:
        return ()
    if not report["phases"]:
        return (PhaseLatency("whole run", _run_latency(state)),)
    series = measuring.read_ledger(state).series
    found = []
    for phase in report["phases"]:
        # This phase was not measured: it is older than the kept output, or its boundary was reported too late.
        if phase["results"] is None or phase["start"] is None:
            continue
        end_s = second_after(parse_rfc3339(phase["end"])) if phase["end"] else sys.maxsize
        output = series.total(second_after(parse_rfc3339(phase["start"])), end_s)
        latency: Mapping[str, Histogram] = {}
        if output is not None:
            latency = {name: spread.histogram() for name, spread in output.latency.items()}
        found.append(PhaseLatency(_name(phase), latency))
    return tuple(found)


def _run_latency(state: Path) -> Mapping[str, Histogram]:
    record = RunRecord()
    if counters.restore(state, record) is not None:
        # The file is damaged or absent: only the table is omitted, since no verdict depends on it.
        return {}
    return {name: tally.frozen() for name, tally in record.latency.items()}


def _name(phase: PhaseOfReport) -> str:
    fault = f", {phase['fault']}" if phase["fault"] else ""
    return f"{phase['phase']}{fault}, from {clock(phase['start'])[11:]}"
