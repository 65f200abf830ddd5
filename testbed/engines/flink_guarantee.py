"""The effective guarantee of a running Flink job, from its checkpoints and its Kafka clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from testbed.engines.base import EngineError
from testbed.engines.effective import ClientConfig, Effective, seconds
from testbed.engines.settings import Guarantee

_DISABLED_MS: Final = (1 << 63) - 1
"""The interval in Flink's REST interface if checkpoints are disabled."""
_MS_OF: Final = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}


def effective_of(
    mode: str, interval_ms: int, clients: Sequence[ClientConfig], cluster: Mapping[str, str] | None = None
) -> Effective:
    """Return the guarantee from the checkpoints' mode and interval, and the TaskManagers' clients.

    ``cluster`` are the JobManager's effective options. Raises EngineError if clients are missing.
    """
    producers = [c for c in clients if c.kind == "ProducerConfig"]
    consumers = [c for c in clients if c.kind == "ConsumerConfig"]
    if not producers or not consumers:
        raise EngineError("No live TaskManager of flink has logged the configuration of its Kafka clients.")
    checkpointed = 0 < interval_ms < _DISABLED_MS
    transactional = all(p.transactional for p in producers)
    acknowledged = all(p.acknowledged for p in producers)
    committed = all(c.reads_committed for c in consumers)
    guarantee: Guarantee = "at_most_once"
    if checkpointed and acknowledged:
        guarantee = "at_least_once"
        if transactional and committed and mode.lower() == "exactly_once":
            guarantee = "exactly_once"
    return Effective(
        engine="flink",
        guarantee=guarantee,
        evidence=(
            f"checkpoints {f'{mode.lower()} every {interval_ms} ms' if checkpointed else 'off'}",
            f"transactional.id {'set' if transactional else 'not set'} in the sinks' producers",
            f"isolation.level {'read_committed' if committed else 'read_uncommitted'} in the source",
            f"acks {'all' if acknowledged else 'not all'}",
        ),
        commit_interval_seconds=interval_ms / 1000 if checkpointed else None,
        transaction_timeout_seconds=(
            seconds(producers[-1].options, "transaction.timeout.ms") if transactional else None
        ),
        checkpoint_mode=mode.lower() if checkpointed else None,
        session_timeout_seconds=_duration_seconds((cluster or {}).get("heartbeat.timeout")),
        heartbeat_interval_seconds=_duration_seconds((cluster or {}).get("heartbeat.interval")),
    )


def _duration_seconds(text: str | None) -> float | None:
    """Parse a duration in Flink's notation (``6000``, ``50 s``, ``1500ms``); None if it is absent or not a duration."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|min|h|)", text or "")
    return None if found is None else int(found[1]) * _MS_OF[found[2]] / 1000
