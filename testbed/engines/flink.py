"""Flink as a cluster of processes: one JobManager that runs the job, and TaskManagers with one slot each.

After a restart the JobManager continues from the newest completed checkpoint, as an operator would do. With option
`high-availability.type: zookeeper` there are two, and Flink keeps in ZooKeeper which one leads, and the checkpoint.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from testbed.engines import zookeeper
from testbed.engines.base import EngineError
from testbed.engines.effective import Effective, client_configs
from testbed.engines.flink_config import (
    HIGH_AVAILABILITY,
    JOBMANAGER_HEAP_MB,
    LOOPBACK,
    TASKMANAGER_JVM_OPTIONS,
    THROUGH_ZOOKEEPER,
    write_config,
    write_job,
)
from testbed.engines.flink_guarantee import effective_of
from testbed.engines.flink_jars import flink_jars
from testbed.engines.jvm import GENERIC, HERE, SOURCES, JvmEngine
from testbed.engines.real import RealEngineSettings
from testbed.ports import free_ports
from validator.stream.jars import resolve

_TASKMANAGER_HEAP_MB: Final = 512
_ANSWER_SECONDS_MAX: Final = 5.0
_CHECK_SECONDS: Final = 0.1
RUNNING_TASKS: Final = "running-tasks"
"""The counter of the subtasks that run. It falls when the JobManager has noticed the death of a TaskManager."""
# Flink uses classes of the JDK that are closed by default. Its own scripts open the same packages.
_OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time",
        "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
    )
]  # fmt: skip


class FlinkEngine(JvmEngine):
    """Instances: ``parallelism`` TaskManagers, then ``standby`` additional ones, then the JobManager; with high
    availability then its standby, and ZooKeeper."""

    name = "flink"
    guarantees = ("exactly_once", "at_least_once")
    operators = ("tumbling", "distinct", "sliding", "session", "passthrough", "running_aggregate", "interval")
    runs_stages = True
    matches = True
    lock = HERE / "flink.lock"
    sources: tuple[Path, ...] = (SOURCES / "FlinkJob.java", *GENERIC)
    standbys = 1
    setups: Mapping[str, tuple[str, ...]] = MappingProxyType({HIGH_AVAILABILITY: ("NONE", THROUGH_ZOOKEEPER)})
    is_led = True

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """Raises EngineRefused."""
        workers = ["worker"] * settings.parallelism + ["standby"] * settings.standby
        more = ("jobmanager", zookeeper.ROLE) if self.setup(settings.options) else ()
        super().__init__(settings, folder, roles=[*workers, "jobmanager", *more])
        self.jobmanager = len(workers)
        """The number among the instances of the JobManager, of several of the first."""
        self._jobmanagers = range(self.jobmanager, self.jobmanager + self._roles.count("jobmanager"))
        rpc_port, self._zookeeper_port, *rest_ports = free_ports(2 + len(self._jobmanagers))
        self._rest_urls = {
            n: f"http://{LOOPBACK}:{port}" for n, port in zip(self._jobmanagers, rest_ports, strict=True)
        }
        self._job_id = uuid.uuid4().hex
        self._starts = [0] * len(self._roles)
        write_config(settings, folder, rpc_port=rpc_port, zookeeper_port=self._zookeeper_port)
        self._job = write_job(settings, folder)

    @classmethod
    def engine_jars(cls) -> list[Path]:
        """Return Flink's jars and its connector. The first call downloads 313 MB."""
        return [*flink_jars(), *resolve(cls.lock)]

    def _command(self, instance: int) -> list[str | Path]:
        logging = f"-Dlog4j2.configurationFile=file:{self._folder}/log4j2.properties"
        self._starts[instance] += 1
        if self._roles[instance] == zookeeper.ROLE:
            host = LOOPBACK if self.node is None else self.node.host
            file = zookeeper.write_zookeeper(self._folder, host=host, port=self._zookeeper_port)
            return self._java(
                f"org.apache.flink.shaded.zookeeper3.{zookeeper.MAIN}", str(file),
                heap_mb=zookeeper.HEAP_MB, options=[logging],
            )  # fmt: skip
        if instance in self._jobmanagers:
            # With high availability, ZooKeeper has the newest checkpoint.
            snapshot = None if self._has_standby else self._latest_snapshot()
            rest_port = self._rest_urls[instance].rpartition(":")[2]
            return self._java(
                "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint",
                "--configDir", str(self._folder), "--job-classname", self.sources[0].stem, "--job-id", self._job_id,
                *(["--fromSavepoint", str(snapshot)] if snapshot else []),
                "-D", f"rest.port={rest_port}", str(self._job),
                heap_mb=JOBMANAGER_HEAP_MB, options=[*_OPENS, logging],
            )  # fmt: skip
        options = {"taskmanager.resource-id": self._resource(instance)}
        if self.node is not None and self._is_on_node(instance):
            options |= {"taskmanager.host": self.node.address, "taskmanager.bind-host": self.node.address}
        return self._java(
            "org.apache.flink.runtime.taskexecutor.TaskManagerRunner",
            "--configDir", str(self._folder), *(part for o in options.items() for part in ("-D", "=".join(o))),
            heap_mb=_TASKMANAGER_HEAP_MB, options=[*_OPENS, *TASKMANAGER_JVM_OPTIONS, logging],
        )  # fmt: skip

    @property
    def _has_standby(self) -> bool:
        return len(self._jobmanagers) > 1

    @property
    def leader(self) -> int:
        """The number of the JobManager that leads; of several, the first if none does."""
        living = [number for number in self._jobmanagers if self.instances[number].alive]
        return next((number for number in living if _leads(self._log_since_start(number))), self.jobmanager)

    @property
    def rest_url(self) -> str:
        """The address of the leading JobManager's REST interface."""
        return self._rest_urls[self.leader]

    def _resource(self, instance: int) -> str:
        """Return an id that differs at each start, so that a dead TaskManager is not confused with its successor."""
        return f"taskmanager-{instance}-{self._starts[instance]}"

    def _latest_snapshot(self) -> Path | None:
        """Return the newest completed checkpoint or savepoint of this run; None if there is none."""
        found = [*self._folder.glob("checkpoints/*/chk-*/_metadata"), *self._folder.glob("savepoints/*/_metadata")]
        return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None

    def _is_ready(self, instance: int) -> bool:
        """Return whether the instance is ready. A JobManager: the job runs, all of it on live TaskManagers (a standby
        asks the leading one). A TaskManager: it is registered."""
        if self._roles[instance] == zookeeper.ROLE:
            return "binding to port" in self._log_since_start(instance)
        try:
            if instance in self._jobmanagers:
                return self._runs_on_the_living(self._rest_urls[instance])
            return self._resource(instance) in self._registered()
        except (urllib.error.URLError, OSError, ValueError, KeyError):
            return False  # not up yet, or in a recovery

    def _registered(self) -> set[str]:
        return {manager["id"] for manager in self._rest("/taskmanagers")["taskmanagers"]}

    def _runs_on_the_living(self, url: str) -> bool:
        job = self._rest(f"/jobs/{self._job_id}", url=url)
        if job["state"] != "RUNNING":
            return False
        living = {self._resource(i.number) for i in self.instances if i.alive and i.number < self.jobmanager}
        tasks = self._tasks(job)
        return all(status == "RUNNING" for status, _ in tasks) and {where for _, where in tasks} <= living

    def working(self) -> list[int]:
        """Return the numbers of the TaskManagers with tasks; the others are standbys. Raises OSError if Flink does
        not answer."""
        busy = {where for _, where in self._tasks(self._rest(f"/jobs/{self._job_id}"))}
        return [number for number in range(self.jobmanager) if self._resource(number) in busy]

    def _tasks(self, job: Any) -> list[tuple[str, str]]:
        """Return status and TaskManager of each subtask."""
        return [(subtask["status"], subtask["taskmanager-id"]) for subtask in self._subtasks(job)]

    def _subtasks(self, job: Any) -> Iterator[Any]:
        for vertex in job["vertices"]:
            yield from self._rest(f"/jobs/{self._job_id}/vertices/{vertex['id']}")["subtasks"]

    def counters(self) -> dict[str, dict[str, float]]:
        """Return records of each operator chain and of each TaskManager, and checkpoints, from the JobManager."""
        job = self._rest(f"/jobs/{self._job_id}")
        checkpoints = self._rest(f"/jobs/{self._job_id}/checkpoints")
        found = {
            vertex["name"]: {name: float(vertex["metrics"][name]) for name in ("read-records", "write-records")}
            for vertex in job["vertices"]
        }
        subtasks = list(self._subtasks(job))
        for subtask in subtasks:
            # The id of `_resource`: the number of the TaskManager, and that of its start.
            parts = subtask["taskmanager-id"].split("-")
            if parts[0] != "taskmanager":
                continue  # it waits for a slot
            of = found.setdefault(f"worker-{parts[1]}", {"read-records": 0.0, "write-records": 0.0})
            for name in of:
                of[name] += float(subtask["metrics"][name])
        last = checkpoints["latest"]["completed"]
        sizes = {} if last is None else {
            "last-checkpoint-ms": float(last["end_to_end_duration"]),
            "last-checkpoint-bytes": float(last["state_size"]),
        }  # fmt: skip
        counts = {f"checkpoints-{name}": float(count) for name, count in checkpoints["counts"].items()}
        running = {RUNNING_TASKS: float(sum(subtask["status"] == "RUNNING" for subtask in subtasks))}
        return {**found, "job": counts | sizes | running}

    def effective(self) -> Effective:
        """Return the guarantee from the JobManager's REST interface and the TaskManagers' Kafka clients. Raises
        EngineError."""
        try:
            checkpoints = self._rest(f"/jobs/{self._job_id}/checkpoints/config")
            cluster = {option["key"]: str(option["value"]) for option in self._rest("/jobmanager/config")}
        except (urllib.error.URLError, OSError) as error:
            raise EngineError(f"The JobManager of flink does not answer: {error}.") from error
        clients = [
            client
            for i in self.instances
            if i.alive and i.number < self.jobmanager
            for client in client_configs(self._log_since_start(i.number))
        ]
        return effective_of(str(checkpoints["mode"]), int(checkpoints["interval"]), clients, cluster)

    def stop(self, timeout: float = 30.0) -> None:
        """Stop the job with a savepoint, which commits its results, then end the processes."""
        deadline = time.monotonic() + timeout
        try:
            request = self._rest(
                f"/jobs/{self._job_id}/stop", {"targetDirectory": f"file://{self._folder}/savepoints", "drain": False}
            )
            while time.monotonic() < deadline:
                status = self._rest(f"/jobs/{self._job_id}/savepoints/{request['request-id']}")
                if status["status"]["id"] == "COMPLETED":
                    break
                time.sleep(_CHECK_SECONDS)
        except (urllib.error.URLError, OSError, ValueError):
            pass  # the job does not run, or the JobManager has ended together with the job
        super().stop(max(1.0, deadline - time.monotonic()))

    def _rest(self, path: str, body: dict[str, object] | None = None, url: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own address
            (url or self.rest_url) + path, data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS_MAX) as answer:  # noqa: S310
            return json.load(answer)


def _leads(log: str) -> bool:
    """Return whether the JobManager with this log has the lead."""
    return log.rfind("was granted leadership") > log.rfind("was revoked leadership")
