"""Spark's standalone cluster: a master, and workers that each start an executor for the driver."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testbed.engines.real import RealEngineSettings
from testbed.engines.spark_jvm import java_options
from validator.stream.jars import ivy_jar

LOOPBACK: Final = "127.0.0.1"
MASTER: Final = "spark.master"
STANDALONE: Final = "standalone"
"""The value of `MASTER` with which the executors are processes of a cluster; else the driver has their threads."""
_DAEMON_MB: Final = 128
_EXECUTOR_MB: Final = 512
_WORKER_MB: Final = 2 * _EXECUTOR_MB
"""What a worker offers. It has one core, and so one executor."""
_HAS_EXECUTOR: Final = "Asked to launch executor"
_LEADS: Final = "I have been elected leader"


def host_of(settings: RealEngineSettings) -> str:
    """Return the address of the driver and of the master."""
    return settings.node.host if settings.node is not None and is_standalone(settings.options) else LOOPBACK


def is_standalone(options: Mapping[str, str]) -> bool:
    """Return whether these options have the executors in a cluster."""
    return options.get(MASTER) == STANDALONE


def master_command(host: str, port: int) -> list[str | Path]:
    """Return the command line of the master."""
    return class_command("master.Master", "--host", host, "--port", str(port), "--webui-port", "0")


def worker_command(host: str, master: str, folder: Path) -> list[str | Path]:
    """Return the command line of a worker at ``host``, with the logs of its executors in ``folder``."""
    return class_command(
        "worker.Worker", "--host", host, "--webui-port", "0", "--cores", "1", "--memory", f"{_WORKER_MB}M",
        "--work-dir", str(folder), master,
    )  # fmt: skip


def class_command(main: str, *arguments: str) -> list[str | Path]:
    """Return the command line of one of Spark's own classes."""
    return ["bash", _home() / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", *arguments]


def _home() -> Path:
    """Return PySpark's folder."""
    return ivy_jar().parents[1]


def spark_jars() -> list[Path]:
    """Return PySpark's jars."""
    return sorted((_home() / "jars").glob("*.jar"))


def environment(settings: RealEngineSettings, host: str, folder: Path) -> dict[str, str]:
    """Return the environment of a JVM of Spark at ``host``. Executors inherit that of their worker."""
    timeout = max(1, round(settings.timeouts.session_timeout_seconds))
    return {
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "SPARK_DAEMON_MEMORY": f"{_DAEMON_MB}m",
        # Workers send four heartbeats in this time.
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.worker.timeout={timeout}",
        "JDK_JAVA_OPTIONS": shlex.join(java_options(folder)),
    }


def driver_options(settings: RealEngineSettings) -> dict[str, str]:
    """Return the options with which the driver uses the cluster."""
    times = settings.timeouts
    heartbeat = f"{round(times.heartbeat_interval_seconds * 1000)}ms"
    return {
        "spark.executor.memory": f"{_EXECUTOR_MB}m",
        "spark.executor.heartbeatInterval": heartbeat,
        "spark.network.timeoutInterval": heartbeat,
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{round(times.session_timeout_seconds * 1000)}ms",
    }


def is_ready(role: str, log: str) -> bool:
    """Return whether a master leads, or a worker has an executor, by its log since its start."""
    return (_LEADS if role == "master" else _HAS_EXECUTOR) in log
