"""Of which page sources the committed pictures are: written by `scripts/screenshots`, compared by a unit test.

``python -m tests.pages.picture_sources`` writes it without new pictures: for a change that cannot be seen in them.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LISTED: Final = ROOT / "docs" / "pictures" / "sources.sha256"
"""In the form of `sha256sum`."""
SOURCES: Final = tuple(
    f"validator/publish/{name}"
    for name in (
        "html.py", "page.css", "page.html", "page.js", "plots.js", "report.css", "report_plots.py", "style.css",
        "svg.py", "window_plots.py",
    )
)  # fmt: skip
"""What gives the pictures their look. Wording is left out: a sentence more does not make a picture wrong."""


def listing(root: Path = ROOT) -> str:
    """One line a source below ``root``: its digest and path."""
    return "".join(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n" for name in SOURCES)


def changed_since(listed: str, root: Path = ROOT) -> list[str]:
    """The sources below ``root`` that are not as ``listed``."""
    before = set(listed.splitlines())
    return [line.split("  ", 1)[1] for line in listing(root).splitlines() if line not in before]


def write() -> None:
    """Say that the pictures are of the sources as they are now."""
    LISTED.write_text(listing(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
