"""Facts about the targets of a fault, kept in the journal so that another process can heal the fault."""

from __future__ import annotations

from pydantic import Field

from faults.section import Section


class KnownProcess(Section):
    """A process. Its start distinguishes it from a later process with the same id."""

    target: str
    pid: int
    started: str
    """When it started, as the system says it; the same text for the same process."""


class KnownContainer(Section):
    """A container, identified by its id, and its state before the fault."""

    target: str
    id: str
    started: str
    endpoints: dict[str, str] = Field(default_factory=dict)
    """Network that the fault takes -> how to connect it again."""


class KnownPartition(Section):
    """A partition of Kafka before the fault, and the broker that is to lead it."""

    target: str
    topic: str
    partition: int
    leader: int
    to: int
    replicas: tuple[int, ...]
    """In their order: the first is the preferred leader."""

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition number."""
        return self.topic, self.partition

    def led_by(self, broker: int) -> tuple[int, ...]:
        """The replicas with ``broker`` first."""
        return (broker, *(replica for replica in self.replicas if replica != broker))


class Facts(Section):
    """Facts that are measured before the injection, or that the injection creates."""

    processes: tuple[KnownProcess, ...] = ()
    """Those that are hit, or that press on the machine."""
    containers: tuple[KnownContainer, ...] = ()
    round_trip_seconds: dict[str, float] = Field(default_factory=dict)
    """Link -> a small message there and back, before the fault."""
    partitions: tuple[KnownPartition, ...] = ()
    offsets: dict[str, int] = Field(default_factory=dict)
    """Topic/partition -> offset of the last record that the fault wrote there."""
    ready_pods: dict[str, int] = Field(default_factory=dict)
    """Target -> pods that were ready before."""
    records: dict[str, int] = Field(default_factory=dict)
    """Target -> records that the fault wrote and the broker acknowledged."""
    control_groups: dict[int, str] = Field(default_factory=dict)
    """Process id -> control group in which it was."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Target -> file of the library by which its clock is moved."""
    loss_by: str | None = None
    """What loses the packets of a namespace: ``netem``, or the program of the packet filter."""
