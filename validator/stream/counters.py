"""Counters that are not in a table, in one small file beside the report.

The file is replaced before the metrics are published, so that no counter falls after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from validator.measure.histogram import Tally
from validator.model.coverage import ReadTwice
from validator.publish.atomic import replace_file
from validator.publish.published_files import DAMAGED, unreadable
from validator.publish.report import REPORT_FILE
from validator.stream.run_record import RunRecord

FILE: Final = "counters.json"
_PHASED: Final = "phase_latency_"
_COUNTERS_RESTART: Final = (
    ": the counters of classifications, reclassifications, results and batches start from the current totals and "
    "may be lower than before; verdicts and violations come from the tables and are not affected"
)


def write(state: Path, record: RunRecord) -> None:
    """Write the counters that `restore` reads. Raises OSError."""
    kept = {
        "classified": record.classified_total,
        "moves": {f"{old}>{new}": count for (old, new), count in record.reclassified_total.items()},
        "counts": record.last_counts,
        "results_most": record.results_most,
        "processed_most": record.processed_most,
        "batches": record.batches,
        "read_twice": asdict(record.read_twice),
        "tallies": {name: asdict(tally) for name, tally in _tallies(record).items()},
        "measured_batch": record.measured_batch,
        "latency_resolution_us": record.record_times.resolution_us,
        "timings": {"first_batch_us": record.first_batch_us, "last_batch_us": record.last_batch_us},
    }
    replace_file(state / FILE, json.dumps(kept, sort_keys=True))


def restore(state: Path, record: RunRecord) -> str | None:
    """Restore the counters that the last process wrote; none for a new state.

    If the file is damaged or was deleted, ``record`` is unchanged and a sentence that reports it is returned. Counters
    from the tables are still exact; the others begin again. Raises OSError.
    """
    path = state / FILE
    try:
        kept = _Kept.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        # The file is written before each report. If a report exists, the file existed, too.
        return f"{path} does not exist any more{_COUNTERS_RESTART}" if (state / REPORT_FILE).exists() else None
    except DAMAGED as error:
        return f"{unreadable(path, error)}{_COUNTERS_RESTART}"
    kept.give_to(record)
    return None


@dataclass(frozen=True)
class _Kept:
    """The complete content of the file. A file that is damaged in part is not used."""

    classified: dict[str, int]
    moves: dict[tuple[str, str], int]
    counts: dict[str, int]
    results_most: dict[str, int]
    processed_most: int
    batches: int
    read_twice: ReadTwice
    tallies: dict[str, Tally]
    measured_batch: int
    latency_resolution_us: int

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """The content of parsed JSON. Raises one of `DAMAGED` if `write` did not write it."""
        moves = {str(move).partition(">")[::2]: int(count) for move, count in plain["moves"].items()}
        return cls(
            classified=_counts(plain["classified"]),
            moves=moves,
            counts=_counts(plain["counts"]),
            results_most=_counts(plain["results_most"]),
            processed_most=int(plain["processed_most"]),
            batches=int(plain["batches"]),
            read_twice=ReadTwice(**_counts(plain["read_twice"])),
            tallies={str(name): _tally(kept) for name, kept in plain["tallies"].items()},
            measured_batch=int(plain["measured_batch"]),
            latency_resolution_us=int(plain["latency_resolution_us"]),
        )

    def give_to(self, record: RunRecord) -> None:
        record.classified_total, record.last_counts = self.classified, self.counts
        record.reclassified_total |= self.moves
        record.results_most, record.processed_most = self.results_most, self.processed_most
        record.batches, record.measured_batch = self.batches, self.measured_batch
        record.read_twice = self.read_twice
        record.record_times.resolution_us = self.latency_resolution_us
        for name in self.tallies:
            _, _, phased = name.partition(_PHASED)
            if phased:
                definition, _, phase = phased.partition(">")
                record.latency_by_phase[(definition, phase)] = Tally()
        for name, tally in _tallies(record).items():
            _restore_tally(tally, self.tallies.get(name))


def _counts(plain: Mapping[str, Any]) -> dict[str, int]:
    return {str(name): int(count) for name, count in plain.items()}


def _tally(plain: Mapping[str, Any]) -> Tally:
    bounds, counts = tuple(plain["bounds"]), [int(count) for count in plain["counts"]]
    if len(counts) != len(bounds) + 1:
        raise ValueError("a histogram has one more bucket than it has bounds")
    most = plain["max_seconds"]
    return Tally(bounds, counts, float(plain["sum_seconds"]), None if most is None else float(most))


def _tallies(record: RunRecord) -> dict[str, Tally]:
    latencies = {f"latency_{name}": tally for name, tally in record.latency.items()}
    phased = {f"{_PHASED}{name}>{phase}": tally for (name, phase), tally in record.latency_by_phase.items()}
    return {**latencies, **phased, "detection": record.detection, "durations": record.durations}


def _restore_tally(tally: Tally, kept: Tally | None) -> None:
    """Set ``tally`` to the kept values. If the bounds differ it is unchanged, since counts cannot be converted."""
    if kept is not None and kept.bounds == tally.bounds:
        tally.counts, tally.sum_seconds, tally.max_seconds = list(kept.counts), kept.sum_seconds, kept.max_seconds
