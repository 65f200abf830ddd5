"""Facts about the targets of a fault, kept in the journal so that another process can heal the fault."""

from __future__ import annotations

from pydantic import Field

from faults.section import Section


class KnownProcess(Section):
    """A process. ``started`` distinguishes it from a later process with the same id."""

    target: str
    pid: int
    started: str
    """Start of the process, as the system states it; the same text for the same process."""


class KnownContainer(Section):
    """A container, identified by its id, and its state before the fault."""

    target: str
    id: str
    started: str
    endpoints: dict[str, str] = Field(default_factory=dict)
    """Name of a network that the fault disconnects -> the endpoint's configuration with which it is connected again."""


class KnownPartition(Section):
    """A partition of Kafka before the fault, and the broker that leads it during the fault (``to``)."""

    target: str
    topic: str
    partition: int
    leader: int
    to: int
    replicas: tuple[int, ...]
    """Ids of the brokers in the order of the replica list; the first is the preferred leader."""

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition number."""
        return self.topic, self.partition

    def led_by(self, broker: int) -> tuple[int, ...]:
        """The replicas with ``broker`` first."""
        return (broker, *(replica for replica in self.replicas if replica != broker))


class Facts(Section):
    """Facts from a measurement before the injection, or from the injection itself."""

    processes: tuple[KnownProcess, ...] = ()
    """Processes that the fault hits, or that create the pressure on the machine."""
    containers: tuple[KnownContainer, ...] = ()
    round_trip_seconds: dict[str, float] = Field(default_factory=dict)
    """Link -> round trip of a small message before the fault, in seconds."""
    partitions: tuple[KnownPartition, ...] = ()
    offsets: dict[str, int] = Field(default_factory=dict)
    """``TOPIC/PARTITION`` -> offset of the last record that the fault wrote there."""
    ready_pods: dict[str, int] = Field(default_factory=dict)
    """Target -> number of pods that were ready before the fault."""
    records: dict[str, int] = Field(default_factory=dict)
    """Target -> number of the fault's records that the broker acknowledged."""
    control_groups: dict[int, str] = Field(default_factory=dict)
    """Process id -> control group of the process before the fault."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Target -> file of the library that moves the target's clock."""
    loss_by: str | None = None
    """Program that loses the packets of a namespace: ``netem``, or the program of the packet filter. None if a relay
    loses them, and for other kinds of fault."""
