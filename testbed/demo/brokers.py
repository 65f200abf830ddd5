"""The Kafka of a demo or a campaign: one broker, a second one for scenarios that need another leader, or three."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from testbed.broker import BrokerError, EmbeddedBroker
from testbed.joined_broker import NODE_ID, JoinedBroker
from testbed.processes import OwnedProcess

_LOOK_SECONDS = 0.05


class DemoBrokers:
    """Most demos have only ``first``. Each topic is on all brokers, including Kafka's own topics."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        links: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        count: int = 1,
    ) -> None:
        self._folder = folder
        self._count = count
        self._hosts = hosts
        self.first = EmbeddedBroker(
            folder=folder / "broker", settings=settings, links=links, hosts=hosts, replicas=count
        )
        self._others: list[JoinedBroker] = []

    def start(self) -> None:
        """Start the brokers; return when each broker lists all of them. Raises BrokerError."""
        self.first.start()
        for node_id in range(NODE_ID, self._count + 1):
            other = JoinedBroker(self.first, self._folder / f"broker-{node_id}", node_id=node_id, hosts=self._hosts)
            self._others.append(other)
            other.start()

    @property
    def second(self) -> JoinedBroker | None:
        """The second broker, if it exists."""
        return self._others[0] if self._others else None

    @property
    def all(self) -> tuple[EmbeddedBroker, ...]:
        """The first broker, and the others that exist."""
        return (self.first, *self._others)

    @property
    def processes(self) -> tuple[OwnedProcess, ...]:
        """The brokers' processes. Raises BrokerError while a broker is down."""
        return tuple(broker.process for broker in self.all)

    @property
    def address(self) -> str | None:
        """The bootstrap servers; None until they are known. The broker may not answer there yet."""
        with suppress(BrokerError):
            return self.first.bootstrap_servers
        return None

    def kill(self) -> None:
        """Kill the brokers; their data is kept."""
        for broker in reversed(self.all):
            broker.kill()

    def end(self, starting: Future[None]) -> None:
        """Kill the brokers, even while another thread is starting them. Their data is not used again."""
        while not starting.done():
            for broker in self.all:
                with suppress(BrokerError):
                    broker.process.kill()
            time.sleep(_LOOK_SECONDS)
        self.kill()
