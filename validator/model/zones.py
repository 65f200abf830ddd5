"""The time zones of the package `tzdata`. The machine's own files, which may be of any age, are never used."""

from __future__ import annotations

import functools
from importlib import resources
from zoneinfo import ZoneInfo


@functools.cache
def zone_names() -> frozenset[str]:
    """All IANA names."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def zone(name: str) -> ZoneInfo:
    """Return the zone with one of `zone_names`."""
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
