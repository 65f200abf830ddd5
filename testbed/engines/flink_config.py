"""The files of Flink's processes: the configurations of the cluster, the job and the log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from testbed.engines.real import RealEngineSettings
from testbed.engines.work import work_options

JOBMANAGER_HEAP_MB: Final = 384
LOOPBACK: Final = "127.0.0.1"
_DELIVERY: Final = {"exactly_once": "EXACTLY_ONCE", "at_least_once": "AT_LEAST_ONCE"}
_MESSAGE_BYTES_MAX: Final = 8_000_000
_COUNTED_SECONDS: Final = 0.5

# Flink's shell scripts would divide a TaskManager's memory. Without them, every part and the JVM's limits are set here.
_MEMORY_MB: Final = {
    "task.heap.size": 448,
    "task.off-heap.size": 64,
    "framework.heap.size": 64,
    "framework.off-heap.size": 64,
    "managed.size": 0,
    "network.min": 64,
    "network.max": 64,
    "jvm-metaspace.size": 192,
    "jvm-overhead.min": 64,
    "jvm-overhead.max": 64,
}
TASKMANAGER_JVM_OPTIONS: Final = ["-XX:MaxDirectMemorySize=192m", "-XX:MaxMetaspaceSize=192m"]

_LOG: Final = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} - %m%n
logger.shaded.name = org.apache.flink.kafka
logger.shaded.level = WARN
logger.kafka.name = org.apache.kafka
logger.kafka.level = WARN
"""
# Loggers of the clients' configurations, for `effective`.
_CONFIG_LOGGERS: Final = (
    "common.config.AbstractConfig",
    "clients.producer.ProducerConfig",
    "clients.consumer.ConsumerConfig",
)


HIGH_AVAILABILITY: Final = "high-availability.type"
THROUGH_ZOOKEEPER: Final = "zookeeper"
"""The value of `HIGH_AVAILABILITY` with which a second JobManager takes over from a dead one."""


def write_config(settings: RealEngineSettings, folder: Path, *, rpc_port: int, zookeeper_port: int) -> None:
    """Write ``config.yaml`` and ``log4j2.properties`` to ``folder``. A JobManager has its REST port on its command
    line. With high availability it takes a free RPC port, and writes it to ZooKeeper."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    times = settings.timeouts
    host = LOOPBACK if settings.node is None else settings.node.host
    options: dict[str, object] = {
        "jobmanager.rpc.address": host,
        "jobmanager.rpc.port": rpc_port,
        "jobmanager.bind-host": host,
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "taskmanager.bind-host": host,
        "taskmanager.host": host,
        "taskmanager.numberOfTaskSlots": 1,
        "taskmanager.cpu.cores": 1,
        **{f"taskmanager.memory.{part}": f"{size}m" for part, size in _MEMORY_MB.items()},
        "parallelism.default": settings.parallelism,
        "state.backend.type": "hashmap",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.interval": _ms(times.commit_interval_seconds),
        # The sink's guarantee is set separately. The state is exactly once with both guarantees, as Flink recommends.
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.snapshot-compression": True,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 1000,
        "restart-strategy.fixed-delay.delay": "300ms",
        "heartbeat.interval": round(times.heartbeat_interval_seconds * 1000),
        "heartbeat.timeout": round(times.session_timeout_seconds * 1000),
        # A TaskManager that starts before its JobManager would otherwise wait ten seconds for a retry.
        "cluster.registration.error-delay": "300ms",
        "cluster.registration.initial-timeout": "300ms",
        "cluster.registration.refused-registration-delay": "1s",
        "resourcemanager.standalone.start-up-time": "60s",
        "slot.request.timeout": "60000ms",
        "io.tmp.dirs": str(folder / "tmp"),
        # The counters are asked each second: records and states of tasks must not be older (default: 10 s and 3 s).
        "metrics.fetcher.update-interval": _ms(_COUNTED_SECONDS),
        "web.refresh-interval": _ms(_COUNTED_SECONDS),
        # Without high availability, these have no effect.
        "high-availability.cluster-id": settings.group,
        "high-availability.storageDir": f"file://{folder}/high-availability",
        "high-availability.zookeeper.quorum": f"{host}:{zookeeper_port}",
        "high-availability.zookeeper.client.session-timeout": _ms(times.session_timeout_seconds),
        **settings.options,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(options, sort_keys=False), encoding="utf-8")
    loggers = [
        f"logger.config{prefix.count('flink')}{i}.name = {prefix}{name}\n"
        f"logger.config{prefix.count('flink')}{i}.level = INFO\n"
        for prefix in ("org.apache.kafka.", "org.apache.flink.kafka.shaded.org.apache.kafka.")
        for i, name in enumerate(_CONFIG_LOGGERS)
    ]
    (folder / "log4j2.properties").write_text(_LOG + "".join(loggers), encoding="utf-8")


def write_job(settings: RealEngineSettings, folder: Path) -> Path:
    """Write the properties file that is the job's argument, and return it."""
    options = {
        "job.bootstrap.servers": settings.bootstrap_servers,
        **work_options(settings),
        "job.group": settings.group,
        "job.guarantee": _DELIVERY[settings.guarantee],
        "job.transaction.timeout.ms": str(round(settings.timeouts.transaction_timeout_seconds * 1000)),
        "job.max.request.size": str(_MESSAGE_BYTES_MAX),
    }
    job = folder / "job.properties"
    job.write_text("".join(f"{name}={value}\n" for name, value in options.items()), encoding="utf-8")
    return job


def _ms(duration_seconds: float) -> str:
    return f"{round(duration_seconds * 1000)}ms"
