"""Adds a broker to the cluster of an embedded broker, so that partitions can have another leader."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

from testbed.broker import EmbeddedBroker
from testbed.broker_settings import FIRST_ID, Listeners, joined_properties, server_properties, written
from testbed.broker_storage import format_to_join

NODE_ID: Final = 2


class JoinedBroker(EmbeddedBroker):
    """Broker 2 of the cluster of ``first``. The first broker must be running; it stays the only controller, so no
    leader is elected without it.
    """

    def __init__(self, first: EmbeddedBroker, folder: Path) -> None:
        """``folder`` keeps its data and log."""
        super().__init__(folder=folder, settings=first.settings, replicas=first.replicas)
        self._first = first

    def start(self) -> Self:
        """Start, and return when the metadata of both brokers lists both. On a restart only this broker is checked,
        because the first may be down. Raises BrokerError.
        """
        is_new = self._ports is None
        super().start()
        self.await_brokers([FIRST_ID, NODE_ID] if is_new else [NODE_ID])
        if is_new:
            self._first.await_brokers([FIRST_ID, NODE_ID])
        return self

    def _format(self, data: Path, java: Path, jars: list[Path]) -> None:
        del java, jars
        format_to_join(data, self._first.folder / "data", NODE_ID)

    def _server_properties(self) -> str:
        assert self._ports is not None
        listeners = Listeners(*self._ports)
        ours = {**server_properties(listeners, self.folder / "data", replicas=self.replicas), **self.settings}
        return written(joined_properties(ours, listeners, NODE_ID, self._first.voter))
