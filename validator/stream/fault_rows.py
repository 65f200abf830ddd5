"""Decodes records of the faults topic into rows of the faults table.

Runs in Spark's workers, since the decompressed size of a record is not limited.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from confluent_kafka import Message

from validator.model.classes import EXPECTABLE
from validator.model.cut import shorten

BYTES_MAX: Final = 2**20
"""Larger values are not parsed."""

Row = dict[str, object]
"""Columns of the faults table, without ``batch``."""


def row_of(message: Message) -> Row | bool:
    """The row of a record; True if the record does not decode; False if its value is null."""
    value = message.value()
    row = None if value is None or len(value) > BYTES_MAX else decoded(value)
    if row is None:
        return value is not None
    return {**row, "topic": message.topic(), "partition": message.partition(), "offset": message.offset()}


def decoded(value: bytes) -> Row | None:
    """A record as columns of the faults table; None if it is not a fault record, or if the table cannot hold it."""
    try:
        record = json.loads(value)
        time = datetime.fromisoformat(record["time"])
        if time.tzinfo is None or record["state"] not in ("injected", "verified", "heal_started", "healed"):
            return None
        row: Row = {
            "id": shorten(str(record["id"])),
            "name": shorten(str(record.get("name") or record["kind"])),
            "kind": shorten(str(record["kind"])),
            "target": shorten(str(record["target"])),
            "state": str(record["state"]),
            "time_us": int(time.timestamp() * 1_000_000),
            "plan": shorten(str(record.get("plan", ""))),
            "seed": int(record.get("seed") or 0),
            "parameters": json.dumps(record.get("parameters", {}), sort_keys=True),
            "expects": json.dumps(_expects(record.get("expects"))),
        }
        # A text may contain a lone surrogate, which cannot be stored in a column.
        "".join(value for value in row.values() if isinstance(value, str)).encode()
        return row if -(2**63) <= int(str(row["seed"])) < 2**63 else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _expects(value: object) -> list[str]:
    """The violation classes that a record expects. Unknown names are ignored."""
    return sorted(name for name in EXPECTABLE if name in value) if isinstance(value, list) else []
