"""The digests of the page sources that the committed pictures show: written by `scripts/screenshots`, compared by a
unit test.

``python -m tests.pages.picture_sources`` writes them without new pictures, for a change that the pictures do not show.
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
        "html.py", "html_sections.py", "html_windows.py", "page.css", "page.html", "page.js", "plots.js", "report.css",
        "style.css",
    )
)  # fmt: skip
"""Files that determine the look of the pictures. Wording is left out: an added sentence does not make a picture
wrong."""


def listing(root: Path = ROOT) -> str:
    """Return one line per source below ``root``: its digest and path."""
    return "".join(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n" for name in SOURCES)


def changed_since(listed: str, root: Path = ROOT) -> list[str]:
    """Return the sources below ``root`` that differ from ``listed``."""
    before = set(listed.splitlines())
    return [line.split("  ", 1)[1] for line in listing(root).splitlines() if line not in before]


def write() -> None:
    """Record the current sources as those of the pictures."""
    LISTED.write_text(listing(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(write())
