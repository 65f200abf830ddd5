"""Faults of a network namespace: what leaves it is dropped, delayed, lost or slowed by the kernel, or by its relay.

The probes connect from inside to an address outside, as the pipeline's processes there do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faults.backends import namespaces, packet_filter
from faults.backends.impairment import Impairment, LinkStatus
from faults.backends.namespaces import Device
from faults.backends.proxy import ProxyControl
from faults.backends.relay import inside, outside
from faults.errors import FaultRefused, Unreachable
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.kinds.impairment_watch import ImpairmentWatch
from faults.parameters import (
    NamespaceBandwidthParameters,
    NamespaceDelayParameters,
    NamespaceLossParameters,
    NamespacePartitionParameters,
)
from faults.targets import NamespaceTarget

_NETEM: Final = "netem"
_CONNECT_SECONDS_MAX: Final = 5.0
_SILENCE_SECONDS: Final = 0.5
"""A connection that takes longer than this, where one was made before, does not come about."""
_PROBE_SECONDS: Final = 0.5
"""A probe of the bandwidth is as long as it would take to pass."""
_PACKET_BYTES_MAX: Final = 10_000
_RELAYED_BYTES_MAX: Final = 66_000
_SLACK_SECONDS: Final = 0.1
_MEASURED_SHARE: Final = 0.9
_LATE_SECONDS: Final = 1.0
"""A connection that has not come about in this time, where one was made before, is at least so late."""


class _OnNamespaces:
    impairment: Impairment | None = None
    """What a relay does for this fault; None: it is the kernel's, also where there is a relay."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        self.facts = facts
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, NamespaceTarget)}
        self._state = state
        self._watch = ImpairmentWatch(fault.name, ProxyControl(state))

    def prepare(self) -> None:
        """Time a connection from each. Raises FaultRefused where there is none, or somebody's rule is in place."""
        times = {}
        for name, target in self._targets.items():
            if target.relay is not None:
                self._check_relay(name, target)
            elif (reason := self._why_no_rule()) is not None:
                raise FaultRefused(
                    f"{name}: {reason}; let `streamproof faults proxy` relay its packets (relay: in docs/faults.md)."
                )
            for at in self._devices(target):
                rule = namespaces.root_rule(at)
                if rule.get("handle", "0:") != "0:":
                    raise FaultRefused(
                        f"{name}: {at.device} has the queueing rule {rule.get('kind')} already; take it off first."
                    )
            seconds = namespaces.connect_seconds(target.namespace, target.probe, _CONNECT_SECONDS_MAX)
            if seconds is None:
                raise FaultRefused(f"{name}: {target.probe} takes no connection from inside; mend that first.")
            times[name] = seconds
        self.facts = Facts(round_trip_seconds=times)

    def _check_relay(self, name: str, target: NamespaceTarget) -> None:
        assert target.relay is not None
        served = self._relay(name)
        if (served.listen, served.upstream) != (str(inside(target.relay)), str(outside(target.relay))):
            raise FaultRefused(f"{name}: the running proxy relays another network; restart it with this file.")
        if served.impairment != Impairment():
            raise FaultRefused(f"{name}: its relay is impaired already; run `streamproof faults heal CONFIG` first.")

    def _relay(self, name: str) -> LinkStatus:
        served = ProxyControl(self._state).status().get(name)
        if served is None:
            raise Unreachable(f"{name}: the running proxy does not relay it; restart it with the file of the run.")
        return served

    def _is_relays(self, target: NamespaceTarget) -> bool:
        return self.impairment is not None and target.relay is not None

    def _is_impaired(self, name: str, target: NamespaceTarget) -> bool:
        """Whether the relay, where there is one, still does what it was told: one that was started again does not."""
        return not self._is_relays(target) or self._relay(name).impairment == self.impairment

    def inject(self) -> None:
        """Put the rule on, or tell the relay."""
        for name, target in self._targets.items():
            if self._is_relays(target):
                assert self.impairment is not None
                ProxyControl(self._state).impair(name, self.impairment)
            else:
                self._add(target)

    def _add(self, target: NamespaceTarget) -> None:
        for at in self._devices(target):
            namespaces.add_rule(at, *self._rule())

    def maintain(self) -> None:
        """Nothing to do meanwhile: the kernel or the relay does it. Raises NotVerified where it is seen to do no more.

        A relay that ends takes its device with it, and the kernel's rule with that.
        """
        relayed = [name for name, target in self._targets.items() if target.relay is not None]
        if relayed:
            self._watch.check(relayed, self._is_kept)

    def _is_kept(self, name: str, served: LinkStatus) -> bool:
        target = self._targets[name]
        if self._is_relays(target):
            return served.impairment == self.impairment
        try:
            rules = [namespaces.root_rule(at) for at in self._devices(target)]
        except FaultRefused:
            return False
        return all(rule.get("handle") == namespaces.HANDLE for rule in rules)

    def is_active(self) -> bool:
        """Each of them shows it."""
        return all(self._shows(name) for name in self._targets)

    def heal(self) -> None:
        """Take the rule off, or tell the relay. Raises FaultRefused, Unreachable where no proxy answers."""

        def mend(name: str) -> None:
            target = self._targets[name]
            if self._is_relays(target):
                ProxyControl(self._state).impair(name, Impairment())
                return
            if target.relay is not None:
                self._relay(name)  # Without it there is no device.
            self._take_off(target)

        for_each(self._targets, mend)

    def _take_off(self, target: NamespaceTarget) -> None:
        for_each(self._devices(target), namespaces.remove_rule)

    def is_healed(self) -> bool:
        """The rule is off, and a connection takes about what it took before."""
        return all(self._is_well(name, target) for name, target in self._targets.items())

    def _is_well(self, name: str, target: NamespaceTarget) -> bool:
        if target.relay is not None and self._relay(name).impairment != Impairment():
            return False
        seconds = namespaces.connect_seconds(target.namespace, target.probe, _CONNECT_SECONDS_MAX)
        before = self.facts.round_trip_seconds.get(name, 0.0)
        rules = [namespaces.root_rule(at) for at in self._devices(target)]
        has_rule = any(rule.get("handle") == namespaces.HANDLE for rule in rules)
        return not has_rule and seconds is not None and seconds <= before + _SLACK_SECONDS

    def _devices(self, target: NamespaceTarget) -> list[Device]:
        """Where the rule is put."""
        return [Device(target.namespace, target.device)]

    def _why_no_rule(self) -> str | None:
        """Why the kernel cannot do it by itself; None where it can."""
        return None

    def _rule(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _shows(self, name: str) -> bool:
        raise NotImplementedError


class NamespacePartition(_OnNamespaces):
    """What leaves, what comes or both is dropped, of all or of some peers; no connection to them can be opened."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespacePartitionParameters)
        self._direction, self._peers = fault.parameters.direction, fault.parameters.peers

    def prepare(self) -> None:
        """As of all. Raises FaultRefused also where a peer takes no connection, or peers cannot be told apart."""
        reason = namespaces.why_no_peers() if self._peers else None
        if reason is not None:
            raise FaultRefused(f"namespace_partition with peers cannot be done on this host: {reason}.")
        super().prepare()
        for name, target in self._targets.items():
            for peer in self._peers:
                if namespaces.connect_seconds(target.namespace, peer, _CONNECT_SECONDS_MAX) is None:
                    raise FaultRefused(f"{name}: the peer {peer} takes no connection from inside; mend that first.")

    def _add(self, target: NamespaceTarget) -> None:
        for at in self._devices(target):
            namespaces.cut(at, self._peers, "src" if at.namespace is None else "dst")

    def _devices(self, target: NamespaceTarget) -> list[Device]:
        leaves = super()._devices(target) if self._direction != "from" else []
        comes = [namespaces.other_end(target.namespace, target.device)] if self._direction != "to" else []
        return leaves + comes

    def _shows(self, name: str) -> bool:
        target = self._targets[name]

        def connects(address: str) -> bool:
            return namespaces.connect_seconds(target.namespace, address, _SILENCE_SECONDS) is not None

        if any(connects(address) for address in self._peers or (target.probe,)):
            return False
        if self._peers and target.probe not in self._peers and not connects(target.probe):
            return False
        # Both ways, nothing comes that could be dropped: our request is dropped before.
        return int(namespaces.root_rule(self._devices(target)[0]).get("drops", 0)) > 0


class NamespaceDelay(_OnNamespaces):
    """By the relay or netem; a connection takes at least the delay."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceDelayParameters)
        self._delay, self._jitter = fault.parameters.delay, fault.parameters.jitter
        self.impairment = Impairment(
            ways=("to_upstream",), delay_seconds=self._delay, jitter_seconds=self._jitter
        )  # fmt: skip

    def _why_no_rule(self) -> str | None:
        return namespaces.why_no_netem()

    def _rule(self) -> tuple[str, ...]:
        jitter = (f"{round(self._jitter * 1e6)}us",) if self._jitter else ()
        return (_NETEM, "delay", f"{round(self._delay * 1e6)}us", *jitter)

    def _shows(self, name: str) -> bool:
        target = self._targets[name]
        least = (self._delay - self._jitter) * _MEASURED_SHARE
        if least > _LATE_SECONDS:
            # Waiting for it would lengthen the fault by as much as it delays.
            return self._is_impaired(name, target) and namespaces.is_without_answer(
                target.namespace, target.probe, _LATE_SECONDS
            )
        longest = self._delay + self._jitter + _CONNECT_SECONDS_MAX
        seconds = namespaces.connect_seconds(target.namespace, target.probe, longest)
        return seconds is not None and seconds >= least


class NamespaceBandwidth(_OnNamespaces):
    """By tbf; half a second's worth of datagrams takes that long to leave."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceBandwidthParameters)
        self._rate = fault.parameters.bytes_per_second
        # What may leave at once: a large packet, and what passes between two ticks of a slow kernel clock. A relay's
        # packets are large, and one that is larger than the burst would never leave.
        has_relay = any(target.relay is not None for target in self._targets.values())
        self._burst = max(_RELAYED_BYTES_MAX if has_relay else _PACKET_BYTES_MAX, self._rate // 50)

    def _rule(self) -> tuple[str, ...]:
        return ("tbf", "rate", f"{self._rate}bps", "burst", str(self._burst), "latency", "400ms")

    def _shows(self, name: str) -> bool:
        target = self._targets[name]
        size = round(self._rate * _PROBE_SECONDS) + self._burst
        seconds = namespaces.send_seconds(target.namespace, target.probe, size, _CONNECT_SECONDS_MAX)
        return seconds >= _PROBE_SECONDS * _MEASURED_SHARE


class NamespaceLoss(_OnNamespaces):
    """By the relay, by netem, or by the packet filter where the kernel has none; each counts what it lost."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceLossParameters)
        self._percent = fault.parameters.percent
        self._name = f"streamproof-{fault.id}"
        self.impairment = Impairment(ways=("to_upstream",), lost_share=self._percent / 100)

    def prepare(self) -> None:
        """As of all; and choose what loses, into the facts: whoever heals must take it off there."""
        super().prepare()
        self.facts = self.facts.model_copy(update={"loss_by": self._chosen()})

    @property
    def _filter(self) -> str | None:
        """The program of the packet filter that loses; None: another does."""
        # A journal of before does not tell: it was chosen anew each time.
        loss_by = self.facts.loss_by or self._chosen()
        return None if loss_by == _NETEM else loss_by

    @staticmethod
    def _chosen() -> str | None:
        return packet_filter.chosen() if namespaces.why_no_netem() else _NETEM

    def _why_no_rule(self) -> str | None:
        return packet_filter.why_no_loss()

    def _add(self, target: NamespaceTarget) -> None:
        if self._filter is not None:
            packet_filter.lose(self._filter, target.namespace, target.device, self._percent, self._name)
        else:
            super()._add(target)

    def _take_off(self, target: NamespaceTarget) -> None:
        if self._filter is not None:
            packet_filter.remove(self._filter, target.namespace, self._name)
        else:
            super()._take_off(target)

    def _rule(self) -> tuple[str, ...]:
        return (_NETEM, "loss", f"{self._percent:g}%")

    def _shows(self, name: str) -> bool:
        target = self._targets[name]
        # A packet for the rule to lose, in case that nobody else sends.
        namespaces.connect_seconds(target.namespace, target.probe, _SILENCE_SECONDS)
        if self._is_relays(target):
            return self._relay(name).lost_packets > 0
        if self._filter is not None:
            return bool(packet_filter.lost(self._filter, target.namespace, self._name))
        rule = namespaces.root_rule(*self._devices(target))
        return rule.get("handle") == namespaces.HANDLE and int(rule.get("drops", 0)) > 0

    def _is_well(self, name: str, target: NamespaceTarget) -> bool:
        by_filter = None if self._is_relays(target) else self._filter
        has_rule = by_filter is not None and packet_filter.lost(by_filter, target.namespace, self._name) is not None
        return not has_rule and super()._is_well(name, target)
