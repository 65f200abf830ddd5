"""The impairment and the status of a link or relay, as plain data."""

from __future__ import annotations

from typing import Literal

from faults.section import Section

Way = Literal["to_upstream", "to_client"]
WAYS: tuple[Way, ...] = ("to_upstream", "to_client")


class Impairment(Section):
    """The default impairs nothing. ``ways`` are the directions that are impaired; a reset ignores them."""

    ways: tuple[Way, ...] = WAYS
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    lost_share: float = 0.0
    """Of the packets of a relay, 0 to 1; a link has no packets."""
    bytes_per_second: int | None = None
    is_blocked: bool = False
    is_reset: bool = False


class LinkStatus(Section):
    """The status of a link or a relay, from the proxy."""

    listen: str
    upstream: str
    probe_port: int
    """A port of 127.0.0.1 that leads through the same link to an echo inside the proxy; 0 for a relay."""
    probe_bytes: int
    """What that echo has received; the packets that a relay has passed on."""
    lost_packets: int = 0
    """By the present impairment of a relay."""
    dropped_packets: int = 0
    """By a relay since its start, because too many were waiting."""
    is_lost: bool = False
    """A relay whose device somebody deleted: nothing passes until the proxy is started again."""
    connections: int
    impairment: Impairment
