"""Faults of a network namespace: its packets are dropped, delayed, lost or slowed by the kernel, or by its relay.

The probes connect from inside to an address outside, as the pipeline's processes in the namespace do.
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
    NamespaceReorderParameters,
)
from faults.targets import NamespaceTarget

_NETEM: Final = "netem"
_CONNECT_SECONDS_MAX: Final = 5.0
_SILENCE_SECONDS: Final = 0.5
"""A connection attempt that takes longer than this counts as blocked. Before the fault, an attempt succeeded."""
_PROBE_SECONDS: Final = 0.5
"""The bandwidth probe sends the bytes that the limit passes in this time, plus one burst."""
_PACKET_BYTES_MAX: Final = 10_000
_RELAYED_BYTES_MAX: Final = 66_000
_SLACK_SECONDS: Final = 0.1
_MEASURED_SHARE: Final = 0.9
_LATE_SECONDS: Final = 1.0
"""A delay above this time counts as shown if a connection attempt gets no answer within it."""


class _OnNamespaces:
    impairment: Impairment | None = None
    """What a relay applies for this fault. None: the kernel applies the fault, also in a namespace with a relay."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        self.facts = facts
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, NamespaceTarget)}
        self._state = state
        self._watch = ImpairmentWatch(fault.name, ProxyControl(state))

    def prepare(self) -> None:
        """Time a connection from each namespace. Raises FaultRefused if the connection fails, or if the device already
        has a queueing rule."""
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
                        f"{name}: {at.device} has the queueing rule {rule.get('kind')} already; remove it first."
                    )
            seconds = namespaces.connect_seconds(target.namespace, target.probe, _CONNECT_SECONDS_MAX)
            if seconds is None:
                raise FaultRefused(f"{name}: {target.probe} accepts no connection from the namespace; fix that first.")
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
            raise Unreachable(f"{name}: the proxy has no relay for it; restart the proxy with the file of the run.")
        return served

    def _is_relays(self, target: NamespaceTarget) -> bool:
        return self.impairment is not None and target.relay is not None

    def _is_impaired(self, name: str, target: NamespaceTarget) -> bool:
        """Whether the relay, if it applies this fault, still has the impairment. A restarted relay has lost it."""
        return not self._is_relays(target) or self._relay(name).impairment == self.impairment

    def inject(self) -> None:
        """Add the kernel's rule, or impair the relay."""
        for name, target in self._targets.items():
            if self._is_relays(target):
                assert self.impairment is not None
                ProxyControl(self._state).impair(name, self.impairment)
            else:
                self._add_impairment(target)

    def _add_impairment(self, target: NamespaceTarget) -> None:
        for at in self._devices(target):
            namespaces.add_rule(at, *self._rule())

    def maintain(self) -> None:
        """Check the namespaces that have a relay. Raises NotVerified if the fault is no longer applied.

        When a relay ends, its device is deleted, and the kernel's rule with the device.
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
        """Whether the probe of each namespace shows the fault."""
        return all(self._shows(name) for name in self._targets)

    def heal(self) -> None:
        """Remove the kernel's rule, or the relay's impairment. Raises FaultRefused; Unreachable if no proxy answers."""

        def heal_one(name: str) -> None:
            target = self._targets[name]
            if self._is_relays(target):
                ProxyControl(self._state).impair(name, Impairment())
                return
            if target.relay is not None:
                self._relay(name)  # Raises Unreachable if no relay runs: then the device does not exist.
            self._remove_impairment(target)

        for_each(self._targets, heal_one)

    def _remove_impairment(self, target: NamespaceTarget) -> None:
        for_each(self._devices(target), namespaces.remove_rule)

    def is_healed(self) -> bool:
        """Whether the rule or impairment is removed and a connection takes about as long as before the fault."""
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
        """The devices that get the rule."""
        return [Device(target.namespace, target.device)]

    def _why_no_rule(self) -> str | None:
        """Why the kernel cannot apply this fault without a relay; None if it can."""
        return None

    def _rule(self) -> tuple[str, ...]:
        raise NotImplementedError

    def _shows(self, name: str) -> bool:
        raise NotImplementedError


class NamespacePartition(_OnNamespaces):
    """Outgoing packets, incoming packets or both are dropped, for all or some peers. Verified when no connection to
    them can be opened."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespacePartitionParameters)
        self._direction, self._peers = fault.parameters.direction, fault.parameters.peers

    def prepare(self) -> None:
        """Time a connection from each namespace. Raises FaultRefused also if a peer takes no connection, or if the host
        cannot filter by peer."""
        reason = namespaces.why_no_peers() if self._peers else None
        if reason is not None:
            raise FaultRefused(f"namespace_partition with peers cannot be done on this host: {reason}.")
        super().prepare()
        for name, target in self._targets.items():
            for peer in self._peers:
                if namespaces.connect_seconds(target.namespace, peer, _CONNECT_SECONDS_MAX) is None:
                    raise FaultRefused(f"{name}: peer {peer} accepts no connection from the namespace; fix that first.")

    def _add_impairment(self, target: NamespaceTarget) -> None:
        for at in self._devices(target):
            namespaces.cut(at, self._peers, "src" if at.namespace is None else "dst")

    def _devices(self, target: NamespaceTarget) -> list[Device]:
        leaves = super()._devices(target) if self._direction != "from" else []
        devices = [namespaces.other_end(target.namespace, target.device)] if self._direction != "to" else []
        return leaves + devices

    def _shows(self, name: str) -> bool:
        target = self._targets[name]

        def connects(address: str) -> bool:
            return namespaces.connect_seconds(target.namespace, address, _SILENCE_SECONDS) is not None

        if any(connects(address) for address in self._peers or (target.probe,)):
            return False
        if self._peers and target.probe not in self._peers and not connects(target.probe):
            return False
        # With direction `both`, only the outgoing rule has drops: it drops the request, so that no reply comes.
        return int(namespaces.root_rule(self._devices(target)[0]).get("drops", 0)) > 0


class NamespaceDelay(_OnNamespaces):
    """The relay or netem delays outgoing packets. Verified when a connection takes about ``delay`` less ``jitter``, or
    longer."""

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
            # Waiting for the connection would lengthen the fault by the delay.
            return self._is_impaired(name, target) and namespaces.is_without_answer(
                target.namespace, target.probe, _LATE_SECONDS
            )
        longest = self._delay + self._jitter + _CONNECT_SECONDS_MAX
        seconds = namespaces.connect_seconds(target.namespace, target.probe, longest)
        return seconds is not None and seconds >= least


class NamespaceBandwidth(_OnNamespaces):
    """tbf limits the outgoing bytes. Verified when datagrams that need 0.5 s at the limit take about that long."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceBandwidthParameters)
        self._rate = fault.parameters.bytes_per_second
        # The burst holds a large packet, and the bytes between two ticks of a slow kernel clock. tbf never passes a
        # packet that is larger than the burst, and a relay's packets are large.
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
    """The relay, netem or, if the kernel lacks netem, the packet filter drops packets. Each counts its drops."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceLossParameters)
        self._percent = fault.parameters.percent
        self._name = f"streamproof-{fault.id}"
        self.impairment = Impairment(ways=("to_upstream",), lost_share=self._percent / 100)

    def prepare(self) -> None:
        """Time a connection, and choose what drops the packets. The facts keep the choice, since healing needs it."""
        super().prepare()
        self.facts = self.facts.model_copy(update={"loss_by": self._chosen()})

    @property
    def _filter(self) -> str | None:
        """The program of the packet filter that drops packets; None if netem does."""
        return None if self.facts.loss_by == _NETEM else self.facts.loss_by

    @staticmethod
    def _chosen() -> str | None:
        return packet_filter.loss_program() if namespaces.why_no_netem() else _NETEM

    def _why_no_rule(self) -> str | None:
        return packet_filter.why_no_loss()

    def _add_impairment(self, target: NamespaceTarget) -> None:
        if self._filter is not None:
            packet_filter.drop_packets(self._filter, target.namespace, target.device, self._percent, self._name)
        else:
            super()._add_impairment(target)

    def _remove_impairment(self, target: NamespaceTarget) -> None:
        if self._filter is not None:
            packet_filter.remove(self._filter, target.namespace, self._name)
        else:
            super()._remove_impairment(target)

    def _rule(self) -> tuple[str, ...]:
        return (_NETEM, "loss", f"{self._percent:g}%")

    def _shows(self, name: str) -> bool:
        target = self._targets[name]
        # Sends a packet that the rule can drop, in case no other process does.
        namespaces.connect_seconds(target.namespace, target.probe, _SILENCE_SECONDS)
        if self._is_relays(target):
            return self._relay(name).lost_packets > 0
        if self._filter is not None:
            return bool(packet_filter.dropped_packets(self._filter, target.namespace, self._name))
        rule = namespaces.root_rule(*self._devices(target))
        return rule.get("handle") == namespaces.HANDLE and int(rule.get("drops", 0)) > 0

    def _is_well(self, name: str, target: NamespaceTarget) -> bool:
        by_filter = None if self._is_relays(target) else self._filter
        has_rule = (
            by_filter is not None and packet_filter.dropped_packets(by_filter, target.namespace, self._name) is not None
        )
        return not has_rule and super()._is_well(name, target)


class _Altered(_OnNamespaces):
    """The relay alters packets, and counts them. netem does not count them, so no probe could verify the fault."""

    def _why_no_rule(self) -> str | None:
        return "only a relay corrupts, duplicates or reorders packets"

    def _shows(self, name: str) -> bool:
        # Sends packets that the relay can alter, in case no other process does.
        target = self._targets[name]
        namespaces.connect_seconds(target.namespace, target.probe, _SILENCE_SECONDS)
        return self._relay(name).altered_packets > 0


class NamespaceCorrupt(_Altered):
    """One bit of some packets is inverted. TCP sees the loss of these packets, and no application a wrong byte."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceLossParameters)
        self.impairment = Impairment(ways=("to_upstream",), corrupt_share=fault.parameters.percent / 100)


class NamespaceDuplicate(_Altered):
    """Some packets are passed on twice."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceLossParameters)
        self.impairment = Impairment(ways=("to_upstream",), duplicated_share=fault.parameters.percent / 100)


class NamespaceReorder(_Altered):
    """Some packets are held back, so that later ones overtake them."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, NamespaceReorderParameters)
        share, hold = fault.parameters.percent / 100, fault.parameters.hold
        self.impairment = Impairment(ways=("to_upstream",), reordered_share=share, delay_seconds=hold)
