"""The impairment and the status of a link or relay, as plain data."""

from __future__ import annotations

from typing import Literal

from faults.section import Section

Way = Literal["to_upstream", "to_client"]
WAYS: tuple[Way, ...] = ("to_upstream", "to_client")


class Impairment(Section):
    """The impairment of a link or relay in the directions ``ways``; by default none. A reset ignores ``ways``."""

    ways: tuple[Way, ...] = WAYS
    delay_seconds: float = 0.0
    jitter_seconds: float = 0.0
    lost_share: float = 0.0
    """Share of a relay's packets that are dropped, 0 to 1. A link has no packets."""
    corrupt_share: float = 0.0
    """Share of a relay's packets of which one bit is inverted."""
    duplicated_share: float = 0.0
    """Share of a relay's packets that are passed on twice."""
    reordered_share: float = 0.0
    """Share of a relay's packets that are delayed, so that later ones overtake them; 0: all are delayed."""
    bytes_per_second: int | None = None
    is_blocked: bool = False
    is_reset: bool = False


class LinkStatus(Section):
    """The status of a link or a relay, from the proxy."""

    listen: str
    upstream: str
    probe_port: int
    """Port of 127.0.0.1 that is connected through the same link to an echo inside the proxy; 0 for a relay."""
    probe_bytes: int
    """Bytes that the echo has received. For a relay: number of packets that it has forwarded."""
    lost_packets: int = 0
    """Packets that the present impairment of a relay has dropped."""
    altered_packets: int = 0
    """Packets that the present impairment of a relay has corrupted, duplicated or held back alone."""
    dropped_packets: int = 0
    """Packets that a relay has dropped since its start because too many were waiting."""
    is_lost: bool = False
    """Whether the device of a relay was deleted. No packet then passes until the proxy is restarted."""
    connections: int
    impairment: Impairment
