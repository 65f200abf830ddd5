"""The types of targets of faults, such as processes, brokers, topics, containers, pods, links and folders."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from faults.section import Section, with_port

Address = Annotated[str, Field(pattern=r"^[^:\s]+:[0-9]{1,5}$"), AfterValidator(with_port)]
"""``host:port``."""
_RELAY_BITS: Final = 30


class Selectable(Section):
    """The properties of any target that a selector uses."""

    leader: bool = False
    input: bool = False
    """It takes the pipeline's input; a selector can leave such targets out, or take only them."""
    labels: dict[str, str] = Field(default_factory=dict)


class LocalProcess(Selectable):
    """A process on this machine, how it is found, and how it is started again after a kill."""

    pid: Annotated[int, Field(gt=1)] | None = None
    """Its id. A restart gives it another one, so that a kill needs ``pid_file`` instead."""
    pid_file: Path | None = None
    """A file that holds its id, read anew each time."""
    group: bool = False
    """All of its process group, not only this process."""
    in_group_of: Path | None = None
    """The file with the id of the process that leads its group, so that a plan knows it before either runs."""
    start: tuple[str, ...] = ()
    """The command that is the process; run to heal a kill, and its id is written to ``pid_file``."""
    supervised: bool = False
    """Something else (systemd, a script) starts it again and writes ``pid_file``; healing waits for that."""
    ready: Address | None = None
    """After a kill it counts as healed only when this address takes a connection."""
    clock_file: Path | None = None
    """The file that its agent or libfaketime reads, for clock_skew."""
    folder: Path = Path()
    """Where ``start`` runs; default: the folder of the configuration."""
    host: str | None = None
    """The node it stands for; a node loss kills all processes of one host."""

    @model_validator(mode="after")
    def _one_way_each(self) -> Self:
        if (self.pid is None) == (self.pid_file is None):
            raise ValueError("a process has either pid or pid_file")
        if self.start and self.supervised:
            raise ValueError("start and supervised exclude each other; keep the one that brings the process back")
        if self.start and self.pid_file is None:
            raise ValueError("start needs pid_file, since a new process has a new id")
        return self


class ProcessTarget(LocalProcess):
    """Any process."""

    type: Literal["process"]


class BrokerTarget(LocalProcess):
    """A Kafka broker: a process that answers clients."""

    type: Literal["broker"]
    address: Address
    """A listener of this very broker, where a client asks it for metadata."""
    options_file: Path | None = None
    """librdkafka options, ``name=value`` a line: how a client reaches it. A file, since options may be secret."""


class SidecarTarget(LocalProcess):
    """A process ``streamproof validate``, found by the lock of its state folder, by its id or by a file with its id."""

    type: Literal["sidecar"]
    state: Path | None = None
    """Its state folder; who holds the lock of it is the process."""

    @model_validator(mode="after")
    def _one_way_each(self) -> Self:
        if (self.state is None) + (self.pid is None) + (self.pid_file is None) != 2:
            raise ValueError("a sidecar has one of state, pid_file and pid")
        if self.start and self.supervised:
            raise ValueError("start and supervised exclude each other; keep the one that brings the sidecar back")
        if self.start and self.pid is not None:
            raise ValueError("start needs state or pid_file, since a new process has a new id")
        return self


class TopicTarget(Selectable):
    """A topic, for faults that a Kafka client injects."""

    type: Literal["topic"]
    bootstrap_servers: str
    topic: str
    options_file: Path | None = None
    """As a broker's."""


class ContainerTarget(Selectable):
    """A Docker container on this machine."""

    type: Literal["container"]
    container: Annotated[str, Field(min_length=1)]
    """Its name or id."""
    socket: Path = Path("/var/run/docker.sock")
    """Docker's."""


class PodsTarget(Selectable):
    """Pods of a Kubernetes cluster that runs Chaos Mesh."""

    type: Literal["pods"]
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    match: Annotated[dict[str, str], Field(min_length=1)]
    """Labels that the pods carry."""
    server: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] | None = None
    """The API server; default: that of the cluster that we run in."""
    token_file: Path | None = None
    ca_file: Path | None = None


class NamespaceTarget(Selectable):
    """A named network namespace (``ip netns``), in which processes of the pipeline run."""

    type: Literal["namespace"]
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")]
    """By which its traffic leaves."""
    probe: Address
    """What takes a connection from inside, through the device."""
    relay: IPv4Network | None = None
    """The network of a packet relay, which `streamproof faults proxy` makes: this host has its first address, the
    namespace the second one and no other way out."""

    @field_validator("relay")
    @classmethod
    def _has_two_ends(cls, relay: IPv4Network | None) -> IPv4Network | None:
        if relay is not None and (relay.prefixlen != _RELAY_BITS or not relay.is_private):
            raise ValueError(
                f"a relay has two ends: name a private network of {_RELAY_BITS} bits, as in 198.18.7.0/{_RELAY_BITS}"
            )
        return relay


class LinkTarget(Selectable):
    """A TCP link through the proxy (``streamproof faults proxy``)."""

    type: Literal["link"]
    listen: Address
    """Where clients connect to."""
    upstream: Address
    """Where the proxy leads them."""


class FolderTarget(Selectable):
    """A folder. Its file system is filled, or its disk is slowed for the process that works in the folder."""

    type: Literal["folder"]
    path: Path
    pid_file: Path | None = None
    """A file with the id of that process, for disk_slow."""
    group: bool = False
    """All of its process group, not only that process."""


class MachineTarget(Selectable):
    """This machine, for pressure on its processors and memory."""

    type: Literal["machine"]


Target = Annotated[
    ProcessTarget
    | BrokerTarget
    | SidecarTarget
    | TopicTarget
    | ContainerTarget
    | PodsTarget
    | NamespaceTarget
    | LinkTarget
    | FolderTarget
    | MachineTarget,
    Field(discriminator="type"),
]
TargetType = Literal[
    "process", "broker", "sidecar", "topic", "container", "pods", "namespace", "link", "folder", "machine"
]
