"""The files of a small Storm cluster on this machine: one ZooKeeper, one Nimbus, one Supervisor with one slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml

from testbed import gc_log
from testbed.engines.real import Timeouts
from testbed.engines.zookeeper import write_zookeeper

WORKER_HEAP_MB: Final = 512
LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class StormPorts:
    """The ports of a cluster. ``slot`` is the worker's."""

    zookeeper: int
    nimbus: int
    supervisor: int
    slot: int


def write_cluster(
    folder: Path, ports: StormPorts, jars: Sequence[Path], *, times: Timeouts, log: Path, host: str = LOOPBACK,
    options: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Make ``folder`` a Storm home whose worker logs to ``log``. ``host``: the address of ZooKeeper and Nimbus.
    ``options``: values as YAML, which replace ours. A topology's options may be among them."""
    for name in ("conf", "log4j2", "logs", "lib-worker"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for jar in jars:
        link = folder / "lib-worker" / jar.name
        if not link.is_symlink():
            link.symlink_to(jar)
    (folder / "conf" / "storm.yaml").write_text(
        yaml.safe_dump(
            storm_options(folder, ports, times, host) | {name: yaml.safe_load(text) for name, text in options.items()}
        ),
        encoding="utf-8",
    )
    write_zookeeper(folder, host=host, port=ports.zookeeper)
    (folder / "log4j2" / "daemon.xml").write_text(_logging(_CONSOLE), encoding="utf-8")
    (folder / "log4j2" / "worker.xml").write_text(_logging(_file(log)), encoding="utf-8")


def storm_options(folder: Path, ports: StormPorts, times: Timeouts, host: str = LOOPBACK) -> dict[str, object]:
    """Return the options of ``storm.yaml``, on one network interface. Storm takes whole seconds."""
    session = max(2, round(times.session_timeout_seconds))
    heartbeat = max(1, round(times.heartbeat_interval_seconds))
    return {
        "storm.zookeeper.servers": [host],
        "storm.zookeeper.port": ports.zookeeper,
        "storm.local.hostname": host,
        "storm.local.dir": str(folder / "local"),
        "storm.log.dir": str(folder / "logs"),
        "storm.workers.artifacts.dir": str(folder / "logs" / "workers"),
        "storm.log4j2.conf.dir": str(folder / "log4j2"),
        "storm.health.check.dir": str(folder / "health"),
        "storm.metrics.reporters": [],
        # Nimbus works without a metrics store; RocksDB would add a jar of 73 MB.
        "storm.metricstore.class": "none",
        "nimbus.seeds": [host],
        "nimbus.thrift.port": ports.nimbus,
        "nimbus.monitor.freq.secs": 2,
        "nimbus.task.timeout.secs": round(times.task_timeout_seconds or 5 * session),
        "supervisor.thrift.port": ports.supervisor,
        "supervisor.slots.ports": [ports.slot],
        "supervisor.monitor.frequency.secs": 1,
        "supervisor.worker.timeout.secs": session,
        "supervisor.worker.start.timeout.secs": 120,
        "supervisor.memory.capacity.mb": 4096.0,
        "worker.heartbeat.frequency.secs": heartbeat,
        "worker.heap.memory.mb": WORKER_HEAP_MB,
        "worker.childopts": " ".join(
            ("-Xmx%HEAP-MEM%m", *JAVA_OPTIONS, gc_log.option(folder), "-Dcom.sun.management.jmxremote=false")
        ),
        "topology.worker.logwriter.childopts": "-Xmx64m -XX:+UseSerialGC -XX:-UsePerfData -XX:TieredStopAtLevel=1",
        "topology.worker.max.heap.size.mb": float(WORKER_HEAP_MB),
        "topology.component.resources.onheap.memory.mb": 32.0,
        "task.heartbeat.frequency.secs": heartbeat,
        "executor.metrics.frequency.secs": 60,
    }


JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")


_LAYOUT: Final = '<PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/>'
_CONSOLE: Final = f'<Console name="A">{_LAYOUT}</Console>'


def _file(log: Path) -> str:
    """Return the log's appender. The process that watches a worker uses the same file."""
    return f'<File name="A" fileName="{log}" append="true">{_LAYOUT}</File>'


def _logging(appender: str) -> str:
    return (
        f"<Configuration><Appenders>{appender}</Appenders>"
        '<Loggers><Root level="info"><AppenderRef ref="A"/></Root></Loggers></Configuration>'
    )
