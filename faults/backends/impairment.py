"""What is done to the bytes of a link, as plain data."""

from __future__ import annotations

from typing import Literal

from faults.section import Section

Way = Literal["to_upstream", "to_client"]
WAYS: tuple[Way, ...] = ("to_upstream", "to_client")


class Impairment(Section):
    """No impairment by default. ``ways`` are the directions that it holds for; a reset knows none."""

    ways: tuple[Way, ...] = WAYS
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    bytes_per_second: int | None = None
    is_blocked: bool = False
    is_reset: bool = False


class LinkStatus(Section):
    """A link as the proxy sees it."""

    listen: str
    upstream: str
    probe_port: int
    """A port of 127.0.0.1 that leads through the same link to an echo inside the proxy."""
    probe_bytes: int
    """What that echo has received."""
    connections: int
    impairment: Impairment
