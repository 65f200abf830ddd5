"""Faults of leadership: partitions of a topic, or those that a broker leads, get another leader.

The new leader becomes the first of the partition's replicas and is elected as the preferred leader, so that Kafka's
automatic leader balancing keeps it. Healing does the same for the original leader, then restores the original order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from faults.backends.kafka_leaders import Leaders, Partition, PartitionLeadership
from faults.errors import FaultRefused
from faults.facts import Facts, KnownPartition
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import DemoteParameters, LeaderMoveParameters
from faults.targets import BrokerTarget, TopicTarget

_ELECT_AGAIN_SECONDS: Final = 0.5


class LeaderMove:
    """Moves the leadership of the partitions of each target. The probes read the cluster's metadata."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        assert isinstance(fault.parameters, DemoteParameters)
        self.facts = facts
        self._parameters = fault.parameters
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, TopicTarget | BrokerTarget)}
        self._clusters: dict[str, Leaders] = {}
        self._next_election = 0.0

    def prepare(self) -> None:
        """Read the partitions' leaders and replicas. Raises FaultRefused if a partition has no other in-sync replica or
        is being reassigned."""
        brokers = {n: self._leaders(n).broker() for n, t in self._targets.items() if isinstance(t, BrokerTarget)}
        demoted = frozenset(brokers.values())
        known = [partition for name in self._targets for partition in self._looked(name, brokers.get(name), demoted)]
        self.facts = Facts(partitions=tuple(known))

    def inject(self) -> None:
        """Make the new leader the first replica, and elect it. Raises FaultRefused if the election fails."""
        for name in self._targets:
            cluster, known = self._leaders(name), self._known(name)
            cluster.reorder_replicas({p.place: p.led_by(p.to) for p in known})
            if not cluster.elect({p.place for p in known}):
                raise FaultRefused(f"{name}: no other leader was elected; check that its replicas are in sync.")

    def maintain(self) -> None:
        """Does nothing: the cluster keeps the new leader."""

    def is_active(self) -> bool:
        """Whether each partition is led by its new leader."""
        return all(
            (led := seen.get(partition.place)) is not None and led.leader == partition.to
            for name in self._targets
            for seen in [self._leaders(name).partitions()]
            for partition in self._known(name)
        )

    def heal(self) -> None:
        """Make the original leader the first replica, and elect it. Raises FaultRefused, Unreachable.

        The election succeeds only when that replica is in sync; `is_healed` repeats it.
        """

        def restore(name: str) -> None:
            cluster = self._leaders(name)
            there = cluster.partitions()
            known = [p for p in self._known(name) if p.place in there]  # a topic may have been deleted
            cluster.reorder_replicas({p.place: p.led_by(p.leader) for p in known})
            cluster.elect({p.place for p in known})

        for_each(self._targets, restore)

    def is_healed(self) -> bool:
        """Whether each partition has its original leader and order of replicas. If not, repeats the election, then
        restores the order."""
        restored = [self._is_restored(name) for name in self._targets]  # no short circuit: each may need an election
        return all(restored)

    def _is_restored(self, name: str) -> bool:
        cluster = self._leaders(name)
        seen = cluster.partitions()
        known = [p for p in self._known(name) if p.place in seen]
        led_by_others = {p.place for p in known if seen[p.place].leader != p.leader}
        if led_by_others:
            if time.monotonic() >= self._next_election:
                self._next_election = time.monotonic() + _ELECT_AGAIN_SECONDS
                cluster.elect(led_by_others)
            return False
        unordered = {p.place: p.replicas for p in known if seen[p.place].replicas != p.replicas}
        cluster.reorder_replicas(unordered)
        return not unordered

    def _looked(self, name: str, broker: int | None, demoted: frozenset[int]) -> Iterator[KnownPartition]:
        found = dict(self._wanted(name, broker))
        if not found:
            raise FaultRefused(f"{name}: broker {broker} leads no partition, so none can be moved.")
        for topic, number in self._leaders(name).being_reassigned(list(found)):
            raise FaultRefused(f"{name}: a reassignment of {topic}/{number} is under way; wait for its end.")
        for (topic, number), led in found.items():
            yield KnownPartition(
                target=name,
                topic=topic,
                partition=number,
                leader=led.leader,
                to=self._successor(name, f"{topic}/{number}", led, demoted),
                replicas=led.replicas,
            )

    def _wanted(self, name: str, broker: int | None) -> Iterator[tuple[Partition, PartitionLeadership]]:
        target, seen = self._targets[name], self._leaders(name).partitions()
        if isinstance(target, BrokerTarget):
            yield from ((place, led) for place, led in seen.items() if led.leader == broker)
            return
        assert isinstance(self._parameters, LeaderMoveParameters)
        number = self._parameters.partition
        found = {place: led for place, led in seen.items() if place[0] == target.topic}
        if not found:
            raise FaultRefused(f"{name}: there is no topic {target.topic}; create it, or name another.")
        if number is not None and (target.topic, number) not in found:
            raise FaultRefused(f"{name}: the topic has no partition {number}; choose one from 0 to {len(found) - 1}.")
        yield from ((place, led) for place, led in found.items() if number in (None, place[1]))

    def _successor(self, name: str, place: str, led: PartitionLeadership, demoted: frozenset[int]) -> int:
        others = [r for r in led.replicas if r != led.leader and r in led.in_sync and r not in demoted]
        if led.leader < 0 or not others:
            raise FaultRefused(f"{name}: {place} has no other in-sync replica that could lead it.")
        if self._parameters.to is None:
            return others[0]
        if self._parameters.to not in others:
            raise FaultRefused(
                f"{name}: broker {self._parameters.to} cannot lead {place}; use one of {', '.join(map(str, others))}."
            )
        return self._parameters.to

    def _known(self, name: str) -> list[KnownPartition]:
        return [partition for partition in self.facts.partitions if partition.target == name]

    def _leaders(self, name: str) -> Leaders:
        if name not in self._clusters:
            target = self._targets[name]
            address = target.address if isinstance(target, BrokerTarget) else target.bootstrap_servers
            self._clusters[name] = Leaders(address, target.options_file)
        return self._clusters[name]
