"""The live status page: one file that contains its style, its script and the plotting library."""

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
"""Placeholder in `page.html` -> the files that replace it."""


def resource(name: str) -> str:
    """Return the text of a file of this package."""
    return resources.files("validator.publish").joinpath(name).read_text(encoding="utf-8")


@cache
def live_page() -> str:
    """Return the status page. It listens to `/events`. While the partitions are unfolded, it also loads
    `/partitions.json`."""
    page = resource("page.html")
    for place, names in PARTS.items():
        page = page.replace(place, "\n".join(resource(name) for name in names))
    return page
