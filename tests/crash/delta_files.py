"""Rows of a Delta table without Spark: the log's JSON commits, then the Parquet files of the current version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def rows_of(table: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Return ``columns`` of all rows of the newest version. Fails if the log was compacted into a checkpoint."""
    commits = sorted((table / "_delta_log").glob("*.json"))
    assert commits, table
    assert int(commits[0].stem) == 0, "the log begins later: read its checkpoint too"
    live: dict[str, None] = {}
    for commit in commits:
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = None
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
    rows: list[dict[str, Any]] = []
    for name in live:
        rows += pq.ParquetFile(table / unquote(name)).read(columns=columns).to_pylist()
    return rows
