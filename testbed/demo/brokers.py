"""The demo's Kafka: one broker, and a second one for scenarios that need another leader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from testbed.broker import BrokerError, EmbeddedBroker
from testbed.joined_broker import JoinedBroker
from testbed.processes import OwnedProcess

_LOOK_SECONDS = 0.05


class DemoBrokers:
    """Most demos have only ``first``. With ``are_two`` each topic is on both brokers, including Kafka's own topics."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        *,
        links: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        are_two: bool = False,
    ) -> None:
        self._folder = folder
        self._are_two = are_two
        replicas = 2 if are_two else 1
        self.first = EmbeddedBroker(
            folder=folder / "broker", settings=settings, links=links, hosts=hosts, replicas=replicas
        )
        self.second: JoinedBroker | None = None

    def start(self) -> None:
        """Start the brokers; return when each broker lists all of them. Raises BrokerError."""
        self.first.start()
        if self._are_two:
            self.second = JoinedBroker(self.first, self._folder / "broker-2")
            self.second.start()

    @property
    def all(self) -> tuple[EmbeddedBroker, ...]:
        """The first broker, and the second one if it exists."""
        return (self.first,) if self.second is None else (self.first, self.second)

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

    def end(self, starting: Future[None]) -> None:
        """Kill the brokers, even while another thread is starting them. Their data is not used again."""
        while not starting.done():
            for broker in self.all:
                with suppress(BrokerError):
                    broker.process.kill()
            time.sleep(_LOOK_SECONDS)
        for broker in reversed(self.all):
            broker.kill()
