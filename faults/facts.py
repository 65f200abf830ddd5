"""What a fault knows about its subjects, kept in the journal so that another process can heal it."""

from __future__ import annotations

from pydantic import Field

from faults.section import Section


class KnownProcess(Section):
    """A process that cannot be mistaken for a later one with the same id."""

    target: str
    pid: int
    started: str
    """When it started, as the system says it; the same text for the same process."""


class KnownContainer(Section):
    """A container by its id, as it was before."""

    target: str
    id: str
    started: str
    endpoints: dict[str, str] = Field(default_factory=dict)
    """Network that the fault takes -> how to connect it again."""


class Facts(Section):
    """Measured before injecting, or made by it."""

    processes: tuple[KnownProcess, ...] = ()
    """Those that are hit, or that press on the machine."""
    containers: tuple[KnownContainer, ...] = ()
    round_trip_seconds: dict[str, float] = Field(default_factory=dict)
    """Link -> a small message there and back, before the fault."""
    offsets: dict[str, int] = Field(default_factory=dict)
    """Topic/partition -> offset of the last record that the fault wrote there."""
    ready_pods: dict[str, int] = Field(default_factory=dict)
    """Target -> pods that were ready before."""
    records: dict[str, int] = Field(default_factory=dict)
    """Target -> records that the fault wrote and the broker acknowledged."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Target -> file of the library by which its clock is moved."""
