"""Adds a broker to the cluster of an embedded broker, so that partitions can have another leader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from testbed.broker import EmbeddedBroker
from testbed.broker_settings import FIRST_ID, Listeners, joined_properties, server_properties, written
from testbed.broker_storage import format_to_join

NODE_ID: Final = 2
"""The node id of the second broker."""


class JoinedBroker(EmbeddedBroker):
    """A further broker of the cluster of ``first``. The first broker must be running; it stays the only controller, so
    no leader is elected without it.
    """

    def __init__(
        self, first: EmbeddedBroker, folder: Path, *, node_id: int = NODE_ID, hosts: Sequence[str] = ()
    ) -> None:
        """``folder`` keeps its data and log. ``hosts``: those of ``first``; a client that reaches one broker at such an
        address must reach the others there, too."""
        super().__init__(folder=folder, settings=first.settings, replicas=first.replicas, hosts=hosts)
        self._first = first
        self._node_id = node_id

    def start(self) -> Self:
        """Start, and return when the metadata of both brokers lists both. On a restart only this broker is checked,
        because the first may be down. Raises BrokerError.
        """
        is_new = self._ports is None
        super().start()
        self.await_brokers([FIRST_ID, self._node_id] if is_new else [self._node_id])
        if is_new:
            self._first.await_brokers([FIRST_ID, self._node_id])
        return self

    def _format(self, data: Path, java: Path, jars: list[Path]) -> None:
        del java, jars
        format_to_join(data, self._first.folder / "data", self._node_id)

    def _server_properties(self) -> str:
        assert self._ports is not None
        listeners = Listeners(*self._ports, hosts=self.host_servers)
        ours = {**server_properties(listeners, self.folder / "data", replicas=self.replicas), **self.settings}
        return written(joined_properties(ours, listeners, self._node_id, self._first.voter))
