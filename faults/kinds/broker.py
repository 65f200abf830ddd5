"""Faults of a broker: a process, and a client that asks it for its metadata."""

from __future__ import annotations

from pathlib import Path

from faults.backends import kafka
from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.process import Kill, OnProcesses, Pause
from faults.targets import BrokerTarget


class _AsksClients(OnProcesses):
    """A fault of processes whose effect a client sees."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._brokers = {name: target for name, target in fault.targets.items() if isinstance(target, BrokerTarget)}

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also where a broker does not answer now."""
        super().prepare()
        for name, broker in self._brokers.items():
            if not kafka.answers(broker):
                raise FaultRefused(f"{name}: the broker at {broker.address} does not answer a client; mend that first.")

    def is_active(self) -> bool:
        """The processes are as the fault wants them, and none of the brokers answers."""
        return super().is_active() and not any(kafka.answers(broker) for broker in self._brokers.values())

    def is_healed(self) -> bool:
        """The processes run, and all brokers answer."""
        return super().is_healed() and all(kafka.answers(broker) for broker in self._brokers.values())


class BrokerKill(_AsksClients, Kill):
    """SIGKILL; in when the process is gone and no client is answered, gone when one is."""


class BrokerPause(_AsksClients, Pause):
    """SIGSTOP and SIGCONT; the connections stay, and nobody answers."""
