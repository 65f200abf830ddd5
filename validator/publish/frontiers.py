"""How far topics and partitions were read, for the status page: one row per topic in each update, one row per partition
on request.

With a row per partition, an update would have 0.6 MB for 2,000 partitions. The page shows partitions only while they
are unfolded.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from validator.model.terminal import plain_json, plain_values
from validator.publish.report_types import PartitionOfReport, Report

COLUMNS: Final = (
    "topic",
    "partition",
    "first_offset",
    "next_offset",
    "high_watermark",
    "last_stable_offset",
    "expired",
    "read_through",
)
"""Columns of a partition's row, as in the page's table."""

Data = dict[str, Any]


class Frontiers:
    """The row of each partition of one report, as JSON that is made at the first request. It is safe to use from any
    thread."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._making = threading.Lock()
        self._encoded: bytes | None = None

    def encoded(self) -> bytes:
        """Return the rows and their batch. May raise an exception of `published_files.DAMAGED` if the report is from a
        file."""
        # This is not the publisher's lock, so a request that waits for the rows does not delay publishing.
        with self._making:
            if self._encoded is None:
                self._encoded = _json(self._rows())
            return self._encoded

    def _rows(self) -> Data:
        partitions = self._report["coverage"]["partitions"]
        return {
            "batches": self._report["validator"]["batches"],
            "time": self._report["time"],
            "columns": list(COLUMNS),
            "rows": [[partition[name] for name in COLUMNS] for partition in partitions],
        }


def no_partitions() -> bytes:
    """Return the answer to a request for partitions before the first report."""
    return _json({"batches": None, "time": None, "columns": list(COLUMNS), "rows": None})


def for_update(report: Report) -> Data:
    """Return ``report`` for an update: with a row per topic instead of a row per partition, and without the phases,
    which the page does not show."""
    coverage = {name: held for name, held in report["coverage"].items() if name != "partitions"}
    shown = {name: held for name, held in report.items() if name != "phases"}
    return {**shown, "coverage": {**coverage, "topics": by_topic(report["coverage"]["partitions"])}}


def by_topic(partitions: list[PartitionOfReport]) -> list[Data]:
    """Return one row per topic, in the order of its first partition.

    ``read_through`` is that of the partition that is furthest behind, and null if a partition was never read through.
    ``newest_event_time`` is the newest known one.
    """
    topics: dict[str, Data] = {}
    for partition in partitions:
        name, through, newest = partition["topic"], partition["read_through"], partition["newest_event_time"]
        known = topics.get(name)
        if known is None:
            topics[name] = {
                "topic": name,
                "role": partition["role"],
                "partitions": 1,
                "records": partition["records"],
                "lag_events": partition["lag_events"],
                "read_through": through,
                "newest_event_time": newest,
            }
            continue
        known["partitions"] += 1
        known["records"] += partition["records"]
        known["lag_events"] += partition["lag_events"]
        # All instants in the report have the same form, so texts sort in the order of time.
        before = known["read_through"]
        known["read_through"] = None if through is None or before is None else min(before, through)
        if newest is not None:
            known["newest_event_time"] = max(known["newest_event_time"] or newest, newest)
    return list(topics.values())


def _json(value: Data) -> bytes:
    return (plain_json(plain_values(value)) + "\n").encode()
