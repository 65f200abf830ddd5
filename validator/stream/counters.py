"""Counters that no table keeps, in one small file beside the report.

It is replaced before the metrics are: whatever was shown is in it, so that a restart never shows less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from validator.measure.histogram import Tally
from validator.publish.atomic import replace_file
from validator.stream.run_record import RunRecord

FILE: Final = "counters.json"
_PHASED: Final = "phase_latency_"


def write(state: Path, record: RunRecord) -> None:
    """Keep what `restore` brings back."""
    kept = {
        "classified": record.classified_total,
        "moves": {f"{old}>{new}": count for (old, new), count in record.reclassified_total.items()},
        "counts": record.last_counts,
        "results_most": record.results_most,
        "processed_most": record.processed_most,
        "batches": record.batches,
        "tallies": {name: asdict(tally) for name, tally in _tallies(record).items()},
        "measured_batch": record.measured_batch,
        "timings": {"first_batch_us": record.first_batch_us, "last_batch_us": record.last_batch_us},
    }
    replace_file(state / FILE, json.dumps(kept, sort_keys=True))


def restore(state: Path, record: RunRecord) -> None:
    """Bring back what the last process kept; nothing for a new state."""
    path = state / FILE
    if not path.exists():
        return
    kept = json.loads(path.read_text())
    record.classified_total = {str(name): int(count) for name, count in kept["classified"].items()}
    record.batches = int(kept["batches"])
    record.last_counts = {str(name): int(count) for name, count in kept["counts"].items()}
    # A file of before knows neither: they begin at what is.
    record.results_most = {str(name): int(count) for name, count in kept.get("results_most", {}).items()}
    record.processed_most = int(kept.get("processed_most", 0))
    for move, count in kept["moves"].items():
        old, _, new = str(move).partition(">")
        record.reclassified_total[(old, new)] = int(count)
    record.measured_batch = kept.get("measured_batch")
    tallies = kept.get("tallies", {})
    for name in tallies:
        _, _, phased = str(name).partition(_PHASED)
        if phased:
            definition, _, phase = phased.partition(">")
            record.latency_by_phase[(definition, phase)] = Tally()
    for name, tally in _tallies(record).items():
        _take_back(tally, tallies.get(name))
    if "measured_batch" not in kept:
        # A file of before knew no phases: what it counted was shown as control.
        record.latency_by_phase = {
            (name, "control"): replace(tally, counts=list(tally.counts)) for name, tally in record.latency.items()
        }


def _tallies(record: RunRecord) -> dict[str, Tally]:
    latencies = {f"latency_{name}": tally for name, tally in record.latency.items()}
    phased = {f"{_PHASED}{name}>{phase}": tally for (name, phase), tally in record.latency_by_phase.items()}
    return {**latencies, **phased, "detection": record.detection, "durations": record.durations}


def _take_back(tally: Tally, kept: Mapping[str, Any] | None) -> None:
    """Make ``tally`` what was kept of it; other bounds cannot be converted, so it then stays."""
    if kept is None or tuple(kept["bounds"]) != tally.bounds:
        return
    tally.counts = [int(count) for count in kept["counts"]]
    tally.sum_seconds, tally.max_seconds = kept["sum_seconds"], kept["max_seconds"]
