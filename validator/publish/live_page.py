"""The live status page: one file, with its style, its script and the plotting library in it."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

PARTS: Final = {
    "/*STYLE*/": ("style.css", "vendor/uPlot.min.css", "page.css"),
    "/*UPLOT*/": ("vendor/uPlot.iife.min.js",),
    "/*PLOTS*/": ("plots.js",),
    "/*PAGE*/": ("page.js",),
}
"""Place in `page.html` -> the files that go there."""


def resource(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("validator.publish").joinpath(name).read_text(encoding="utf-8")


@cache
def live_page() -> str:
    """The status page; it listens to `/events` beside it, and loads nothing else but `/partitions.json` while these are
    unfolded."""
    page = resource("page.html")
    for place, names in PARTS.items():
        page = page.replace(place, "\n".join(resource(name) for name in names))
    return page
