"""Faults of a broker: a process, and a client that asks it for its metadata."""

from __future__ import annotations

from pathlib import Path

from faults.backends import kafka
from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.process import Kill, Pause
from faults.targets import BrokerTarget


def _brokers(fault: Fault) -> dict[str, BrokerTarget]:
    return {name: target for name, target in fault.targets.items() if isinstance(target, BrokerTarget)}


def _all_answer(brokers: dict[str, BrokerTarget]) -> bool:
    return all(kafka.answers(broker) for broker in brokers.values())


def _refuse_silent(brokers: dict[str, BrokerTarget]) -> None:
    for name, broker in brokers.items():
        if not kafka.answers(broker):
            raise FaultRefused(f"{name}: the broker at {broker.address} does not answer a client; mend that first.")


class BrokerKill(Kill):
    """SIGKILL; in when the process is gone and no client is answered, gone when one is."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._brokers = _brokers(fault)

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also where a broker does not answer now."""
        super().prepare()
        _refuse_silent(self._brokers)

    def is_in(self) -> bool:
        """None of those processes exists, and none of the brokers answers."""
        return super().is_in() and not any(kafka.answers(broker) for broker in self._brokers.values())

    def is_gone(self) -> bool:
        """All run, and answer a client."""
        return super().is_gone() and _all_answer(self._brokers)


class BrokerPause(Pause):
    """SIGSTOP and SIGCONT; the connections stay, and nobody answers."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._brokers = _brokers(fault)

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also where a broker does not answer now."""
        super().prepare()
        _refuse_silent(self._brokers)

    def is_in(self) -> bool:
        """All are stopped, and none answers."""
        return super().is_in() and not any(kafka.answers(broker) for broker in self._brokers.values())

    def is_gone(self) -> bool:
        """None is stopped, and all answer."""
        return super().is_gone() and _all_answer(self._brokers)
