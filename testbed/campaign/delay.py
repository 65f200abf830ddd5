"""PGVal's delay: the packets that one worker sends are delayed during the whole failure phase, by the fault runner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from faults.config import parse
from faults.errors import NotHealed
from faults.healing import HealPolicy
from faults.runner import run
from faults.schedule import timeline
from testbed.node import TARGET, NodeRelay

BELOW_TIMEOUT: Final = 1 / 6
"""PGVal's delays are 0.5 s and 5 s with a timeout of 3 s; these are the same fractions of the plan's timeout."""
ABOVE_TIMEOUT: Final = 5 / 3
_VERIFIED_SECONDS_MAX: Final = 30.0


def delay(
    relay: NodeRelay, *, name: str, delay_seconds: float, lasts_seconds: float, bootstrap_servers: str, topic: str,
    probe: str, seed: int, stop: threading.Event, say: Callable[[str], None],
) -> None:  # fmt: skip
    """Inject, verify, hold, heal, verify and report. Raises FaultRefused, NotVerified, NotHealed, NotPublished."""
    fault = {
        "kind": "namespace_delay",
        "target": TARGET,
        "name": name,
        "for": f"{lasts_seconds:g}s",
        "parameters": {"delay": f"{delay_seconds:g}s"},
    }
    config = parse(
        {
            "seed": seed,
            "state": str(relay.folder),
            "kafka": {"bootstrap_servers": bootstrap_servers, "topic": topic},
            "targets": {TARGET: relay.target(probe)},
            "limits": {"verified_within": f"{_VERIFIED_SECONDS_MAX:g}s"},
            "schedule": {"faults": [fault]},
        },
        "the campaign's delay",
    )

    def check_relay() -> None:
        if not relay.process.is_running:
            raise NotHealed("the packet relay has ended; the worker's network is removed at the end of the run.")

    run(config, timeline(config), say, stop, HealPolicy(config.limits.healed_within, check_relay))
