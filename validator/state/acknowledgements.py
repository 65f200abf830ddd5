"""Acknowledged violations: they stay in the record and leave the alert (SEMANTICS section 4)."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path


class UnknownViolation(Exception):
    """The state's report has no such violation."""


@dataclass(frozen=True)
class Acknowledgement:
    """``count``: contributions in the violation when it was acknowledged; what comes on top is open again."""

    violation: str
    violation_class: str
    count: int
    reason: str
    fault: str | None = None


def read(state: Path) -> dict[str, Acknowledgement]:
    """By violation; empty where nothing was acknowledged."""
    path = state / "acknowledgements.jsonl"
    if not path.exists():
        return {}
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {
        entry["violation"]: Acknowledgement(
            entry["violation"], entry["class"], entry["count"], entry["reason"], entry.get("fault")
        )
        for entry in entries
    }


def acknowledge(state: Path, violation: str, reason: str) -> None:
    """Acknowledge one violation for good; the running sidecar takes it up with its next batch.

    Raises `UnknownViolation` where the state never recorded it.
    """
    known = state / "violations.json"
    listed = json.loads(known.read_text()).get("violations", []) if known.exists() else []
    found = next((entry for entry in listed if entry.get("id") == violation), None)
    if found is None:
        raise UnknownViolation(
            f"the state {state} has no violation {violation!r} among its latest: see violations.json in it"
        )
    entry = {
        "violation": violation,
        "class": found["class"],
        "count": found["count"],
        "fault": found.get("fault"),
        "reason": reason,
        "time_us": time.time_ns() // 1000,
    }
    line = json.dumps(entry)
    with (state / "acknowledgements.jsonl").open("a") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
