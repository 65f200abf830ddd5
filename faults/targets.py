"""What faults can be done to: processes, links through the proxy, folders, and the machine itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from faults.section import Section

Address = Annotated[str, Field(pattern=r"^[^:\s]+:[0-9]{1,5}$")]
"""``host:port``."""


class ProcessTarget(Section):
    """A process on this machine, with how to find it and how it comes back after a kill."""

    type: Literal["process"]
    pid: Annotated[int, Field(gt=1)] | None = None
    """Its id. A restart gives it another one, so that a kill needs ``pid_file`` instead."""
    pid_file: Path | None = None
    """A file that holds its id, read anew each time."""
    group: bool = False
    """All of its process group, not only this process."""
    start: tuple[str, ...] = ()
    """The command that is the process; run to heal a kill, and its id is written to ``pid_file``."""
    supervised: bool = False
    """Something else (systemd, a script) starts it again and writes ``pid_file``; healing waits for that."""
    ready: Address | None = None
    """After a kill it counts as healed only when this address takes a connection."""
    folder: Path = Path()
    """Where ``start`` runs; default: the folder of the configuration."""
    host: str | None = None
    """The node it stands for; a node loss kills all processes of one host."""
    leader: bool = False
    labels: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_way_each(self) -> Self:
        if (self.pid is None) == (self.pid_file is None):
            raise ValueError("a process has either pid or pid_file")
        if self.start and self.supervised:
            raise ValueError("start and supervised exclude each other; keep the one that brings the process back")
        if self.start and self.pid_file is None:
            raise ValueError("start needs pid_file, since a new process has a new id")
        return self


class LinkTarget(Section):
    """A TCP link that leads through our proxy (``streamproof faults proxy``)."""

    type: Literal["link"]
    listen: Address
    """Where clients connect to."""
    upstream: Address
    """Where the proxy leads them."""
    leader: bool = False
    labels: dict[str, str] = Field(default_factory=dict)


class FolderTarget(Section):
    """A folder whose file system is filled."""

    type: Literal["folder"]
    path: Path
    leader: bool = False
    labels: dict[str, str] = Field(default_factory=dict)


class MachineTarget(Section):
    """This machine, for pressure on processor and memory."""

    type: Literal["machine"]
    leader: bool = False
    labels: dict[str, str] = Field(default_factory=dict)


Target = Annotated[ProcessTarget | LinkTarget | FolderTarget | MachineTarget, Field(discriminator="type")]
TargetType = Literal["process", "link", "folder", "machine"]
