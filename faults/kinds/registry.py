"""The class that injects, probes and heals each kind of fault."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faults.backends.chaos_mesh import KIND_OF
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import Injection, InjectionFactory
from faults.kinds.broker import BrokerKill, BrokerPause
from faults.kinds.clock import ClockSkew
from faults.kinds.container import ContainerDisconnect, ContainerKill, ContainerPause, ContainerRestart
from faults.kinds.disk import DiskFull
from faults.kinds.leader import LeaderMove
from faults.kinds.namespace import (
    NamespaceBandwidth,
    NamespaceCorrupt,
    NamespaceDelay,
    NamespaceDuplicate,
    NamespaceLoss,
    NamespacePartition,
    NamespaceReorder,
)
from faults.kinds.network import Bandwidth, Delay, Partition, Reset
from faults.kinds.pods import Pods
from faults.kinds.poison import Poison
from faults.kinds.pressure import CpuPressure, MemoryPressure
from faults.kinds.process import Kill, Pause, Restart, RestartLoop
from faults.kinds.slow_disk import DiskSlow
from faults.kinds.transaction import TransactionHang

INJECTION_TYPES: Final[dict[str, InjectionFactory]] = {
    "process_kill": Kill,
    "process_pause": Pause,
    "restart_loop": RestartLoop,
    "node_loss": Kill,
    "clock_skew": ClockSkew,
    "broker_kill": BrokerKill,
    "broker_pause": BrokerPause,
    "broker_demote": LeaderMove,
    "leader_move": LeaderMove,
    "transaction_hang": TransactionHang,
    "poison": Poison,
    "sidecar_kill": Kill,
    "sidecar_pause": Pause,
    "sidecar_restart": Restart,
    "container_kill": ContainerKill,
    "container_pause": ContainerPause,
    "container_restart": ContainerRestart,
    "container_disconnect": ContainerDisconnect,
    "net_delay": Delay,
    "net_partition": Partition,
    "net_bandwidth": Bandwidth,
    "net_reset": Reset,
    "namespace_partition": NamespacePartition,
    "namespace_bandwidth": NamespaceBandwidth,
    "namespace_delay": NamespaceDelay,
    "namespace_loss": NamespaceLoss,
    "namespace_corrupt": NamespaceCorrupt,
    "namespace_duplicate": NamespaceDuplicate,
    "namespace_reorder": NamespaceReorder,
    "cpu_pressure": CpuPressure,
    "memory_pressure": MemoryPressure,
    "disk_full": DiskFull,
    "disk_slow": DiskSlow,
    **dict.fromkeys(KIND_OF, Pods),
}


def injection(fault: Fault, state: Path, facts: Facts | None = None) -> Injection:
    """The injection of ``fault``, with the ``facts`` of the journal if the fault was begun earlier."""
    return INJECTION_TYPES[fault.kind](fault, facts or Facts(), state)
