"""The measured figures as a page: ``python -m bench.table`` writes docs/bench/README.md, with ``check`` it compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "bench"
PAGE: Final = FOLDER / "README.md"
WHAT: Final = {
    "once": "A plain Spark read of the same topics, then `validate --once` on them, in one run.",
    "flat": "The same from 3 M to 30 M events.",
    "live": "The live job at a constant rate, with losses and repeats to be found.",
    "keys": "A million cells a window.",
    "restart": "A start with settled cells, from the file of saved cells and without it; Spark's start is not in it.",
    "disk": "Bytes of an event and its place in an answer in the table facts, by kind of id and size of batch.",
    "many": "Sidecars that read 100 events a second each: memory (PSS) at the end, CPU over 40 s.",
    "idle": "A batch without records, with settled cells and 10,000 open ones: CPU seconds, all tables included.",
    "shapes": "As `once`, for each way in which topics write ids, times and names.",
}


def page() -> str:
    """The page, from the JSON files beside it."""
    parts = ["# Measured", "", "<!-- Written by `python -m bench.table` from the JSON files of `scripts/bench`. -->"]
    for name, what in WHAT.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            parts += ["", f"## {name}", "", f"{what} **Not measured to its end yet.**"]
            continue
        kept = json.loads(path.read_text())
        parts += ["", f"## {name}", "", f"{what} Machine: {kept['machine']}.", "", *_table(kept["rows"])]
    return "\n".join(parts) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    head = ["|  |" + " |" * len(rows), "|---|" + "---:|" * len(rows)]
    names = dict.fromkeys(name for row in rows for name in row)
    return [*head, *[f"| {name} | " + " | ".join(_shown(row.get(name, "-")) for row in rows) + " |" for name in names]]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:,.3g}" if value < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["check"]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        print("docs/bench/README.md is not what the JSON files say: run python -m bench.table", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
