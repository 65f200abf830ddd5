"""The kinds of faults: the requirements and effect of each, and the kinds that this version lacks.

Used by the configuration and by ``streamproof faults list``. A test compares it with docs/faults.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from faults.backends import block_throttle, namespaces, packet_filter, relay
from faults.parameters import (
    AnyParameters,
    BandwidthParameters,
    ClockParameters,
    ContainerRestartParameters,
    CpuParameters,
    DelayParameters,
    DemoteParameters,
    DisconnectParameters,
    DiskParameters,
    DiskSlowParameters,
    LeaderMoveParameters,
    MemoryParameters,
    NamespaceBandwidthParameters,
    NamespaceDelayParameters,
    NamespaceLossParameters,
    NamespacePartitionParameters,
    NamespaceReorderParameters,
    NoParameters,
    PartitionParameters,
    PodClockParameters,
    PodCpuParameters,
    PodDelayParameters,
    PodDiskParameters,
    PodLossParameters,
    PodMemoryParameters,
    PodParameters,
    PodPartitionParameters,
    PoisonParameters,
    RestartLoopParameters,
    TransactionParameters,
)
from faults.targets import TargetType


@dataclass(frozen=True)
class Kind:
    """One supported kind. ``linux_only``: its probe reads /proc."""

    name: str
    target: TargetType
    parameters: type[AnyParameters]
    summary: str
    linux_only: bool = False
    host_check: Callable[[], str | None] | None = None
    """Returns why this host cannot inject the fault; None if it can. Replaces the default check of the type."""

    @property
    def why_not_here(self) -> str | None:
        """Why this host cannot inject the fault; None if it can."""
        if self.linux_only and sys.platform != "linux":
            return "its probe reads /proc, which only Linux has"
        if self.host_check is not None:
            return self.host_check()
        if self.target == "namespace":
            return namespaces.why_not_here()
        if not hasattr(os, "killpg"):
            return "it needs a POSIX system"
        return None


def _neither(no_rule: str | None) -> str | None:
    """Why neither the kernel nor a relay can apply the fault to a namespace; None if one of them can."""
    no_relay = no_rule and relay.why_not_here()
    return no_relay and (no_rule if no_rule == no_relay else f"{no_rule}, and {no_relay}")


@dataclass(frozen=True)
class UnsupportedKind:
    """A known kind that is not supported, with the reason."""

    name: str
    reason: str


_ALL: Final = (
    Kind("process_kill", "process", NoParameters, "SIGKILL; healed when the process runs again"),
    Kind("process_pause", "process", NoParameters, "SIGSTOP, then SIGCONT"),
    Kind("restart_loop", "process", RestartLoopParameters, "SIGKILL, repeated each time that the process runs again"),
    Kind("node_loss", "process", NoParameters, "SIGKILL to all processes of a host at once"),
    Kind("clock_skew", "process", ClockParameters, "an agent or libfaketime moves the wall clock", linux_only=True),
    Kind("broker_kill", "broker", NoParameters, "SIGKILL to a broker; healed when it answers clients again"),
    Kind("broker_pause", "broker", NoParameters, "SIGSTOP to a broker, then SIGCONT"),
    Kind("broker_demote", "broker", DemoteParameters, "the partitions that a broker leads get other leaders"),
    Kind("leader_move", "topic", LeaderMoveParameters, "the partitions of a topic get other leaders"),
    Kind("transaction_hang", "topic", TransactionParameters, "a transaction stays open: read_committed consumers wait"),
    Kind("poison", "topic", PoisonParameters, "undecodable records are written to a topic"),
    Kind("sidecar_kill", "sidecar", NoParameters, "SIGKILL to the sidecar; healed when it runs again"),
    Kind("sidecar_pause", "sidecar", NoParameters, "SIGSTOP to the sidecar, then SIGCONT"),
    Kind("sidecar_restart", "sidecar", NoParameters, "SIGTERM to the sidecar; healed when it runs again"),
    Kind("container_kill", "container", NoParameters, "SIGKILL to a container; healed when it runs and is healthy"),
    Kind("container_pause", "container", NoParameters, "Docker pauses a container"),
    Kind("container_restart", "container", ContainerRestartParameters, "Docker stops a container and starts it"),
    Kind("container_disconnect", "container", DisconnectParameters, "Docker disconnects a container from its networks"),
    Kind("net_delay", "link", DelayParameters, "the bytes of a link are delayed, with jitter"),
    Kind("net_partition", "link", PartitionParameters, "a link holds all bytes back, in one direction or in both"),
    Kind("net_bandwidth", "link", BandwidthParameters, "a link passes a limited number of bytes per second"),
    Kind("net_reset", "link", NoParameters, "open and new connections of a link are reset"),
    Kind(
        "namespace_partition",
        "namespace",
        NamespacePartitionParameters,
        "packets of a namespace are dropped, in one direction or in both",
    ),
    Kind(
        "namespace_bandwidth",
        "namespace",
        NamespaceBandwidthParameters,
        "the bytes per second that leave a namespace are limited",
        host_check=namespaces.why_no_tbf,
    ),
    Kind(
        "namespace_delay",
        "namespace",
        NamespaceDelayParameters,
        "packets that leave a namespace are delayed, by netem or a relay",
        host_check=lambda: _neither(namespaces.why_no_netem()),
    ),
    Kind(
        "namespace_loss",
        "namespace",
        NamespaceLossParameters,
        "packets that leave a namespace are lost, by netem, iptables, nft or a relay",
        host_check=lambda: _neither(packet_filter.why_no_loss()),
    ),
    Kind(
        "namespace_corrupt",
        "namespace",
        NamespaceLossParameters,
        "a relay inverts one bit of packets that leave a namespace",
        host_check=relay.why_not_here,
    ),
    Kind(
        "namespace_duplicate",
        "namespace",
        NamespaceLossParameters,
        "a relay passes packets that leave a namespace on twice",
        host_check=relay.why_not_here,
    ),
    Kind(
        "namespace_reorder",
        "namespace",
        NamespaceReorderParameters,
        "a relay lets packets that leave a namespace overtake others",
        host_check=relay.why_not_here,
    ),
    Kind("cpu_pressure", "machine", CpuParameters, "processes that keep processors busy", linux_only=True),
    Kind("memory_pressure", "machine", MemoryParameters, "a process that holds memory", linux_only=True),
    Kind("disk_full", "folder", DiskParameters, "a large file in a folder"),
    Kind(
        "disk_slow",
        "folder",
        DiskSlowParameters,
        "blkio.throttle slows the disk for the process that works in a folder",
        host_check=block_throttle.why_not_here,
    ),
    Kind("pod_kill", "pods", PodParameters, "pods are deleted at once; healed when as many pods are ready as before"),
    Kind("pod_failure", "pods", PodParameters, "pods exist but do not run their containers"),
    Kind("pod_net_delay", "pods", PodDelayParameters, "packets of pods are delayed, with jitter"),
    Kind("pod_net_loss", "pods", PodLossParameters, "packets of pods are lost"),
    Kind("pod_net_partition", "pods", PodPartitionParameters, "packets between pods and others are dropped"),
    Kind("pod_cpu_pressure", "pods", PodCpuParameters, "processors of pods are kept busy"),
    Kind("pod_memory_pressure", "pods", PodMemoryParameters, "a process holds memory in pods"),
    Kind("pod_disk_slow", "pods", PodDiskParameters, "calls on files of a volume are delayed"),
    Kind("pod_clock_skew", "pods", PodClockParameters, "the clock of pods is moved"),
)
KINDS: Final = {kind.name: kind for kind in _ALL}
"""Name -> kind."""

_BYTES: Final = "the proxy of a link forwards bytes, not packets"
_TCP_DELAYS: Final = "over TCP, an application sees only a delay, which net_delay also causes"
UNSUPPORTED: Final = (
    UnsupportedKind("net_loss", f"{_BYTES}; use namespace_loss or pod_net_loss; {_TCP_DELAYS}"),
    UnsupportedKind("net_corrupt", f"{_BYTES}; use namespace_corrupt; {_TCP_DELAYS}"),
    UnsupportedKind("net_duplicate", f"{_BYTES}; use namespace_duplicate; TCP hides it from an application"),
    UnsupportedKind("net_reorder", f"{_BYTES}; use namespace_reorder; TCP hides it from an application"),
    UnsupportedKind("disk_error", "it needs a device-mapper backend, which is not supported"),
    UnsupportedKind("clock_jump", "use clock_skew, which moves the clock when injected, and back when healed"),
)
UNSUPPORTED_BACKENDS: Final = {
    "namespaces": "network namespaces need no backend of their own; omit backend: and use targets of type namespace",
    "docker": "Docker needs no backend of its own; omit backend: and use targets of type container",
    "kubernetes": "Kubernetes needs no backend of its own; omit backend: and use targets of type pods",
}
