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
    """Whether ``pick: leader`` selects the target."""
    input: bool = False
    """Whether the target consumes the pipeline's input. A selector can include or exclude such targets."""
    labels: dict[str, str] = Field(default_factory=dict)


class LocalProcess(Selectable):
    """A process on this machine: how to find it, and how to restart it after a kill."""

    pid: Annotated[int, Field(gt=1)] | None = None
    """Process id. A restarted process has another id, so faults that end the process need ``pid_file`` instead."""
    pid_file: Path | None = None
    """File with the process id. It is read again at each use."""
    group: bool = False
    """Whether a fault hits the whole process group of the process."""
    in_group_of: Path | None = None
    """``pid_file`` of the process that leads the process group. With it, a plan knows the group before the processes
    run."""
    start: tuple[str, ...] = ()
    """Command that becomes the process. To heal a kill, the runner runs it and writes the new id to ``pid_file``."""
    supervised: bool = False
    """Whether a supervisor (systemd, a script) restarts the process and writes ``pid_file``. Healing waits for that."""
    ready: Address | None = None
    """A kill is healed only when this address accepts a connection; None: when the process runs."""
    clock_file: Path | None = None
    """For ``clock_skew``: the file from which the clock agent or libfaketime reads the offset."""
    folder: Path = Path()
    """Folder in which ``start`` runs, relative to the file; default: the folder of the file."""
    host: str | None = None
    """Name of the node that the process belongs to. A node loss kills all processes of one host."""

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
    """A listener of this broker. A client requests metadata there to probe it."""
    options_file: Path | None = None
    """File with the client's librdkafka options, one ``name=value`` per line. The options may contain secrets, which
    must not be written to the journal."""


class SidecarTarget(LocalProcess):
    """A process ``streamproof validate``, found by the lock of its state folder, by its id or by a file with its id."""

    type: Literal["sidecar"]
    state: Path | None = None
    """State folder of the sidecar. The process that holds the folder's lock is the target."""

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
    """As `BrokerTarget.options_file`."""


class ContainerTarget(Selectable):
    """A Docker container on this machine."""

    type: Literal["container"]
    container: Annotated[str, Field(min_length=1)]
    """Name or id of the container."""
    socket: Path = Path("/var/run/docker.sock")
    """Unix socket of Docker's API."""


class PodsTarget(Selectable):
    """Pods of a Kubernetes cluster that runs Chaos Mesh."""

    type: Literal["pods"]
    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    match: Annotated[dict[str, str], Field(min_length=1)]
    """Labels that the pods have."""
    server: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] | None = None
    """URL of the API server; None: the API server of the cluster that the runner itself runs in."""
    token_file: Path | None = None
    ca_file: Path | None = None


class NamespaceTarget(Selectable):
    """A named network namespace (``ip netns``), in which processes of the pipeline run."""

    type: Literal["namespace"]
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    device: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")]
    """Network device by which packets leave the namespace."""
    probe: Address
    """Address that accepts connections from inside the namespace, through the device."""
    relay: IPv4Network | None = None
    """Network of a packet relay, which `streamproof faults proxy` creates. This host has the first address of the
    network, the namespace has the second. No other route leaves the namespace. None: there is no relay."""

    @field_validator("relay")
    @classmethod
    def _has_two_ends(cls, relay: IPv4Network | None) -> IPv4Network | None:
        if relay is not None and (relay.prefixlen != _RELAY_BITS or not relay.is_private):
            raise ValueError(
                f"name a private network with a prefix of {_RELAY_BITS} bits, as in 198.18.7.0/{_RELAY_BITS}"
            )
        return relay


class LinkTarget(Selectable):
    """A TCP link through the proxy (``streamproof faults proxy``)."""

    type: Literal["link"]
    listen: Address
    """Address at which the proxy accepts the connections of clients."""
    upstream: Address
    """Address to which the proxy connects for each of them."""


class FolderTarget(Selectable):
    """A folder. A fault fills its file system, or slows its disk for one process that uses the folder."""

    type: Literal["folder"]
    path: Path
    pid_file: Path | None = None
    """For ``disk_slow``: file with the id of that process."""
    group: bool = False
    """Whether ``disk_slow`` slows the whole process group of that process."""


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
