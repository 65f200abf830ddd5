"""A real Apache Kafka on this machine: one Java process in KRaft mode, with its own folder and free ports, without
Docker.

It is formatted like a new production cluster of its version: all feature levels, and therefore the same transaction
protocol. It differs in size (replication 1 by default, few internal partitions, small buffers), has no retention by
time, creates no topics by itself, and has shorter timeouts of brokers, groups and transactions.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from testbed import gc_log
from testbed.broker_settings import FIRST_ID, PAIR, Listeners, server_properties, written
from testbed.broker_storage import JARS_LOCK, BrokerError, format_storage
from testbed.ports import free_ports
from testbed.processes import OwnedProcess
from validator.stream.jars import find_java, resolve

__all__ = ["JARS_LOCK", "BrokerError", "EmbeddedBroker", "TimestampType"]

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 15.0
_POLL_SECONDS = 0.05
_START_ATTEMPTS = 3

TimestampType = Literal["LogAppendTime", "CreateTime"]


class EmbeddedBroker:
    """One Kafka broker for tests and the demo; a context manager that starts and stops it.

    ``folder`` keeps data and log and is not removed; without it, a temporary folder is created and :meth:`stop` removes
    it. ``settings`` are additional lines of ``server.properties`` and take precedence. For each address in ``links``,
    at which a proxy listens, the broker has a listener that advertises that address (`link_upstreams`). It also listens
    at each of ``hosts``, further addresses of this machine (`host_servers`). ``replicas`` is the replication factor of
    each topic, which needs as many brokers (`testbed.joined_broker`). ``port`` is that of clients; 0: a free one.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        heap_mb: int = 384,
        timestamp_type: TimestampType = "LogAppendTime",
        settings: Mapping[str, str] | None = None,
        links: Sequence[str] = (),
        hosts: Sequence[str] = (),
        replicas: int = 1,
        port: int = 0,
    ) -> None:
        self._given_folder = folder
        self._folder: Path | None = None
        self._heap_mb = heap_mb
        self.settings = {"log.message.timestamp.type": str(timestamp_type), **(settings or {})}
        self._links = tuple(links)
        self._hosts = tuple(hosts)
        self.replicas = replicas
        self._port = port
        self._ports: tuple[int, int] | None = None
        self._link_ports: tuple[int, ...] = ()
        self._host_ports: tuple[int, ...] = ()
        self._process: OwnedProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients; the same after every restart. Raises :class:`BrokerError` before the first
        start.
        """
        if self._ports is None:
            raise BrokerError("The embedded broker has no address before its first start.")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def link_upstreams(self) -> tuple[str, ...]:
        """``host:port`` of the listener behind each link; known from the first start."""
        return tuple(f"127.0.0.1:{port}" for port in self._link_ports)

    @property
    def host_servers(self) -> tuple[str, ...]:
        """``host:port`` at each of the further addresses; known from the first start."""
        return tuple(f"{host}:{port}" for host, port in zip(self._hosts, self._host_ports, strict=False))

    @property
    def voter(self) -> str:
        """``id@host:port`` of the cluster's controller. Raises as :attr:`bootstrap_servers` does."""
        if self._ports is None:
            raise BrokerError("The embedded broker has no controller before its first start.")
        return f"{FIRST_ID}@127.0.0.1:{self._ports[1]}"

    @property
    def folder(self) -> Path:
        """Folder of ``server.properties``, ``data`` and ``broker.log``. Raises as :attr:`bootstrap_servers` does."""
        if self._folder is None:
            raise BrokerError("The embedded broker has no folder before its first start.")
        return self._folder

    @property
    def process(self) -> OwnedProcess:
        """The Java process, for fault injection. Raises :class:`BrokerError` while the broker is down."""
        if self._process is None:
            raise BrokerError("The embedded broker is not running.")
        return self._process

    def start(self) -> Self:
        """Start on a new or given folder and return when the broker answers; no effect if it is running.

        Raises :class:`BrokerError`, or the errors of :func:`validator.stream.jars.resolve`.
        """
        if self._process is not None:
            return self
        java, jars = find_java(), resolve(JARS_LOCK)
        if self._folder is None:
            self._folder = self._given_folder or Path(tempfile.mkdtemp(prefix="streamproof-kafka-"))
            self._format(self._folder / "data", java.executable, jars)
        new_ports = self._ports is None
        for attempt in range(1, _START_ATTEMPTS + 1):
            if self._ports is None:
                # Kafka requires a different port for each listener, even if the addresses differ.
                of_clients, of_controllers, *others = free_ports(2 + len(self._links) + len(self._hosts))
                self._ports = self._port or of_clients, of_controllers
                self._link_ports = tuple(others[: len(self._links)])
                self._host_ports = tuple(others[len(self._links) :])
            self._launch(java.executable, jars)
            try:
                self.wait_ready()
            except BrokerError:
                port_taken = "BindException" in self.process.last_lines(200)
                self._end_process()
                # Retry only if another process took the port after it was chosen; a different port can then help.
                if not (new_ports and port_taken and attempt < _START_ATTEMPTS):
                    raise
                self._ports = None
            else:
                break
        return self

    def _format(self, data: Path, java: Path, jars: list[Path]) -> None:
        """Format ``data`` as the broker's storage, unless it is formatted."""
        format_storage(data, java, jars)

    def _launch(self, java: Path, jars: list[Path]) -> None:
        (self.folder / "server.properties").write_text(self._server_properties(), encoding="utf-8")
        heap = ["-Xms64m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError"]
        # Native compression libraries that the JVM unpacks would stay in /tmp when it is killed.
        heap += [f"-Djava.io.tmpdir={self.folder}", "-XX:-UsePerfData", gc_log.option(self.folder)]
        logger = "-Dorg.slf4j.simpleLogger."
        log_format = [f"{logger}defaultLogLevel=warn", f"{logger}showDateTime=true",
                      f"{logger}dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX"]  # fmt: skip
        self._process = OwnedProcess(
            [java, *heap, *log_format, "-cp", os.pathsep.join(map(str, jars)), "kafka.Kafka",
             self.folder / "server.properties"],
            log=self.folder / "broker.log",
            name="embedded Kafka broker",
        )  # fmt: skip

    def _server_properties(self) -> str:
        """The lines of ``server.properties``, with that file's name."""
        assert self._ports is not None
        listeners = Listeners(
            *self._ports,
            hosts=self.host_servers,
            links=tuple(zip(self._links, self._link_ports, strict=False)),
        )
        ours = server_properties(listeners, self.folder / "data", replicas=self.replicas)
        return written({**ours, **self.settings})

    def wait_ready(self, timeout_seconds: float = READY_SECONDS_MAX) -> None:
        """Wait until the broker returns its metadata. Raises :class:`BrokerError` if it ends or takes too long."""
        self._await_metadata(lambda metadata: bool(metadata.brokers), "did not answer", timeout_seconds)

    def await_brokers(self, ids: Collection[int]) -> None:
        """Wait until this broker's metadata includes the brokers ``ids``. Raises :class:`BrokerError`."""
        self._await_metadata(lambda metadata: set(ids) <= metadata.brokers.keys(), f"did not report brokers {ids}")

    def create_topics(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create ``{name: partitions}``, each with ``config``, and return when every partition has a leader and its
        replicas.

        Raises :class:`confluent_kafka.KafkaException` if a topic exists or its config is refused.
        """
        new = [self._new(name, partitions, dict(config or {})) for name, partitions in topics.items()]
        admin = self._admin()  # keep a reference: a client that is garbage-collected fails its own requests
        for done in admin.create_topics(new).values():
            done.result()

        def have_leaders(metadata: ClusterMetadata) -> bool:
            return all(
                name in metadata.topics
                and len(metadata.topics[name].partitions) == partitions
                and all(
                    partition.leader >= 0 and len(partition.isrs) == self.replicas
                    for partition in metadata.topics[name].partitions.values()
                )
                for name, partitions in topics.items()
            )

        self._await_metadata(have_leaders, f"did not elect leaders for {', '.join(topics)}")

    def _new(self, name: str, partitions: int, config: dict[str, str]) -> NewTopic:
        if self.replicas <= PAIR:
            return NewTopic(name, partitions, self.replicas, config=config)
        # As in PGVal, a partition has the same leader in every topic: an engine that hits it slows one broker.
        brokers = range(FIRST_ID, FIRST_ID + self.replicas)
        leaders = [brokers[number % self.replicas] for number in range(partitions)]
        placed = [[leader, *(other for other in brokers if other != leader)] for leader in leaders]
        return NewTopic(name, partitions, config=config, replica_assignment=placed)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and return when it no longer exists. Raises :class:`confluent_kafka.KafkaException` if it does
        not exist.
        """
        admin = self._admin()
        for done in admin.delete_topics([name]).values():
            done.result()
        self._await_metadata(lambda metadata: name not in metadata.topics, f"did not delete {name}")

    def stop(self) -> None:
        """Shut down (SIGTERM) and remove a temporary folder; a given folder stays."""
        if self._process is not None:
            self._process.terminate(STOP_SECONDS_MAX)
            self._process = None
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder)
            self._folder = self._ports = None

    def kill(self) -> None:
        """SIGKILL: data that the broker has not written is lost. Data and ports are kept for :meth:`restart`."""
        self._end_process()

    def restart(self) -> None:
        """Start again on the same data and ports, after an orderly shutdown if the broker is running."""
        if self._process is not None:
            self._process.terminate(STOP_SECONDS_MAX)
            self._process = None
        self.start()

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _admin(self) -> AdminClient:
        return AdminClient(
            {"bootstrap.servers": self.bootstrap_servers, "reconnect.backoff.max.ms": 200, "log_level": 0}
        )

    def _await_metadata(
        self, holds: Callable[[ClusterMetadata], bool], complaint: str, timeout_seconds: float = READY_SECONDS_MAX
    ) -> None:
        admin = self._admin()
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            if not self.process.is_running:
                complaint = f"ended with status {self.process.returncode}"
                break
            try:
                if holds(admin.list_topics(timeout=1.0)):
                    return
            except KafkaException:
                pass  # not up yet; if it never starts, the log has the reason
            time.sleep(_POLL_SECONDS)
        else:
            complaint = f"{complaint} within {timeout_seconds:g} s"
        lines = self.process.last_lines() or "(empty)"
        raise BrokerError(f"The embedded broker {complaint}; the last lines of {self.process.log}:\n{lines}")

    def __enter__(self) -> Self:
        """Start the broker."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop the broker."""
        self.stop()
