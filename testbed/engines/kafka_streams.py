"""Kafka Streams: instances that share the partitions of a group, and back up their state on the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testbed.engines.base import EngineError
from testbed.engines.effective import CLIENT_LOGGERS, ClientConfig, Effective, client_configs, seconds
from testbed.engines.jvm import GENERIC, HERE, SOURCES, JvmEngine
from testbed.engines.real import EngineRefused, RealEngineSettings
from testbed.engines.settings import Guarantee
from testbed.engines.work import work_options

_HEAP_MB: Final = 384
_PROCESSING: Final[dict[Guarantee, str]] = {"exactly_once": "exactly_once_v2", "at_least_once": "at_least_once"}
_MESSAGE_BYTES_MAX: Final = 8_000_000


class KafkaStreamsEngine(JvmEngine):
    """``parallelism`` instances, each one process with one stream thread and its own state folder."""

    name = "kafka_streams"
    guarantees = ("exactly_once", "at_least_once")
    operators = ("tumbling", "distinct", "sliding", "session", "passthrough", "running_aggregate", "interval")
    runs_stages = True
    matches = True
    lock = HERE / "kafka_streams.lock"
    sources = (SOURCES / "KafkaStreamsJob.java", *GENERIC)
    standbys = 1
    has_grace = True

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """Raises EngineRefused."""
        if settings.standby >= settings.parallelism:
            raise EngineRefused(
                "A standby replica of kafka_streams needs another instance; raise parallelism, or leave standby at 0."
            )
        if any(name.startswith("job.") for name in settings.options):
            raise EngineRefused("Options that begin with job. are those of the test bed's job; remove them.")
        super().__init__(settings, folder, roles=["worker"] * settings.parallelism)
        self.own_servers: tuple[str, ...] = ()
        """The bootstrap servers of each instance if each has its own link. Set before the start."""

    def _command(self, instance: int) -> list[str | Path]:
        properties = self._folder / f"{self.name}-{instance}.properties"
        own = {"bootstrap.servers": self.own_servers[instance]} if self.own_servers else {}
        options = {**self._options(), **own, "state.dir": str(self._folder / f"state-{instance}"),
                   "client.id": f"{self.settings.group}-{instance}"}  # fmt: skip
        properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()), encoding="utf-8")
        logger = "-Dorg.slf4j.simpleLogger."
        logging = [f"{logger}defaultLogLevel=warn", f"{logger}showDateTime=true",
                   *(f"{logger}log.{name}=info" for name in CLIENT_LOGGERS)]  # fmt: skip
        return self._java(self.sources[0].stem, str(properties), heap_mb=_HEAP_MB, options=logging)

    def _options(self) -> dict[str, str]:
        settings, times = self.settings, self.settings.timeouts
        return {
            "bootstrap.servers": settings.bootstrap_servers,
            "application.id": settings.group,
            "processing.guarantee": _PROCESSING[settings.guarantee],
            "commit.interval.ms": _ms(times.commit_interval_seconds),
            "num.stream.threads": "1",
            "num.standby.replicas": str(settings.standby),
            "replication.factor": "-1",  # the brokers' default
            "consumer.auto.offset.reset": "earliest",
            "consumer.session.timeout.ms": _ms(times.session_timeout_seconds),
            "consumer.heartbeat.interval.ms": _ms(times.heartbeat_interval_seconds),
            "consumer.fetch.max.wait.ms": "50",
            "producer.transaction.timeout.ms": _ms(times.transaction_timeout_seconds),
            "producer.max.request.size": str(_MESSAGE_BYTES_MAX),
            **work_options(settings),
            **({} if settings.grace_ms is None else {"job.grace.ms": str(settings.grace_ms)}),
            "job.suppress": str(settings.suppress).lower(),
            **settings.options,
        }

    def _is_ready(self, instance: int) -> bool:
        states = [
            line for line in self._log_since_start(instance).splitlines() if line.startswith(("ready ", "state "))
        ]
        return bool(states) and states[-1].startswith("ready ")

    def effective(self) -> Effective:
        """Return the guarantee from the live instances' clients. Raises EngineError if there are none."""
        configs = [c for i in self.instances if i.alive for c in client_configs(self._log_since_start(i.number))]
        return effective_of(configs)


def effective_of(configs: list[ClientConfig]) -> Effective:
    """Return the guarantee of an application whose clients have ``configs``. Raises EngineError if some are missing."""
    streams = [c.options for c in configs if c.kind == "StreamsConfig"]
    producers = [c for c in configs if c.kind == "ProducerConfig"]
    # Restore consumers have no group. They read only the application's own writes.
    consumers = [c for c in configs if c.kind == "ConsumerConfig" and c.options.get("group.id", "null") != "null"]
    if not streams or not producers or not consumers:
        raise EngineError("No live instance of kafka_streams has logged the configuration of its clients.")
    processing = {options.get("processing.guarantee", "?") for options in streams}
    transactional = all(p.transactional for p in producers)
    acknowledged = all(p.acknowledged for p in producers)
    committed = all(c.reads_committed for c in consumers)
    guarantee: Guarantee = "at_most_once"
    if acknowledged and not any(c.options.get("enable.auto.commit") == "true" for c in consumers):
        guarantee = "at_least_once"
        if transactional and committed and processing == {"exactly_once_v2"}:
            guarantee = "exactly_once"
    return Effective(
        engine="kafka_streams",
        guarantee=guarantee,
        evidence=(
            f"processing.guarantee {', '.join(sorted(processing))}",
            f"transactional.id {'set' if transactional else 'not set'} in the producers",
            f"isolation.level {'read_committed' if committed else 'read_uncommitted'} in the consumers",
            f"acks {'all' if acknowledged else 'not all'}",
        ),
        commit_interval_seconds=seconds(streams[-1], "commit.interval.ms"),
        transaction_timeout_seconds=seconds(producers[-1].options, "transaction.timeout.ms") if transactional else None,
        session_timeout_seconds=seconds(consumers[-1].options, "session.timeout.ms"),
        heartbeat_interval_seconds=seconds(consumers[-1].options, "heartbeat.interval.ms"),
    )


def _ms(duration_seconds: float) -> str:
    return str(round(duration_seconds * 1000))
