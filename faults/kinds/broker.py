"""Faults of Kafka brokers: signals to the broker process, probed by a client that requests the broker's metadata."""

from __future__ import annotations

from pathlib import Path

from faults.backends import kafka
from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.process import Kill, OnProcesses, Pause
from faults.targets import BrokerTarget


class _AsksClients(OnProcesses):
    """A fault of broker processes, probed by a Kafka client."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._brokers = {name: target for name, target in fault.targets.items() if isinstance(target, BrokerTarget)}

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also if a broker does not answer a metadata request."""
        super().prepare()
        for name, broker in self._brokers.items():
            if not kafka.answers(broker):
                raise FaultRefused(f"{name}: the broker at {broker.address} does not answer a client; fix that first.")

    def is_active(self) -> bool:
        """Whether the processes are killed or stopped, and no broker answers."""
        return super().is_active() and not any(kafka.answers(broker) for broker in self._brokers.values())

    def is_healed(self) -> bool:
        """Whether the processes run and all brokers answer."""
        return super().is_healed() and all(kafka.answers(broker) for broker in self._brokers.values())


class BrokerKill(_AsksClients, Kill):
    """SIGKILL. Verified when the process has ended and the broker does not answer; healed when it answers again."""


class BrokerPause(_AsksClients, Pause):
    """SIGSTOP and SIGCONT. Connections stay open, but the broker answers no request."""
