"""The effective guarantee of a running engine, read from the engine instead of its requested settings.

Each Kafka client logs its whole configuration at its creation (``ProducerConfig values:`` and one line per option).
This includes all changes, additions and overrides by the engine. The engine's administration interface reports the
settings of its checkpoints.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from testbed.engines.settings import Guarantee
from validator.publish.atomic import replace_file

ClientKind = Literal["ProducerConfig", "ConsumerConfig", "StreamsConfig"]

CLIENT_LOGGERS: Final = (
    "org.apache.kafka.common.config.AbstractConfig",
    "org.apache.kafka.clients.producer.ProducerConfig",
    "org.apache.kafka.clients.consumer.ConsumerConfig",
    "org.apache.kafka.streams.StreamsConfig",
)
"""The loggers that must log at INFO."""

_HEADING: Final = re.compile(r"\b(ProducerConfig|ConsumerConfig|StreamsConfig) values:\s*$")
_OPTION: Final = re.compile(r"^\t([A-Za-z0-9._]+) = (.*)$")


@dataclass(frozen=True)
class ClientConfig:
    """The logged configuration of one Kafka client; values as logged (``null``, ``[]``)."""

    kind: ClientKind
    options: dict[str, str]

    @property
    def transactional(self) -> bool:
        """Whether a producer writes in transactions."""
        return self.options.get("transactional.id", "null") not in ("null", "")

    @property
    def acknowledged(self) -> bool:
        """Whether a producer waits until all in-sync replicas have a record."""
        return self.options.get("acks") in ("-1", "all")

    @property
    def reads_committed(self) -> bool:
        """Whether a consumer skips records of aborted transactions."""
        return self.options.get("isolation.level") == "read_committed"


@dataclass(frozen=True)
class Effective:
    """The guarantee of the running configuration, and the evidence. Durations are seconds; None: not set there."""

    engine: str
    guarantee: Guarantee
    evidence: tuple[str, ...]
    commit_interval_seconds: float | None = None
    """Interval between commits or checkpoints."""
    transaction_timeout_seconds: float | None = None
    checkpoint_mode: str | None = None
    session_timeout_seconds: float | None = None
    """Time without a heartbeat after which a member of the group, or a process of the cluster, counts as dead."""
    heartbeat_interval_seconds: float | None = None

    def mismatch(self, declared: Guarantee) -> str | None:
        """Return one sentence if the declared guarantee may be broken; None otherwise."""
        if self.guarantee in (declared, "exactly_once"):
            return None
        return (
            f"{self.engine} is declared {_words(declared)} but runs {_words(self.guarantee)}: "
            f"{'; '.join(self.evidence)}."
        )

    def write(self, path: Path) -> None:
        """Write it for a sidecar whose configuration names ``path`` as `engine.effective`. Raises OSError."""
        replace_file(path, json.dumps(asdict(self), indent=1) + "\n")


def client_configs(log: str) -> tuple[ClientConfig, ...]:
    """Return the clients' configurations in the text of a log, in order."""
    found: list[ClientConfig] = []
    options: dict[str, str] | None = None
    for line in log.splitlines():
        if heading := _HEADING.search(line):
            options = {}
            kind = heading.group(1)
            assert kind in ("ProducerConfig", "ConsumerConfig", "StreamsConfig")
            found.append(ClientConfig(kind, options))  # type: ignore[arg-type]
        elif options is not None and (option := _OPTION.match(line)):
            options[option.group(1)] = option.group(2).strip()
        else:
            options = None
    return tuple(found)


def seconds(options: dict[str, str], name: str) -> float | None:
    """Return the client's option ``name``, a duration in ms, as seconds; None if it is absent."""
    text = options.get(name, "")
    return int(text) / 1000 if text.isdigit() else None


def _words(guarantee: Guarantee) -> str:
    return guarantee.replace("_", "-")
