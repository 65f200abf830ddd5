"""The parameters of each kind of fault."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from faults.section import Bytes, Seconds, Section, how_many, seconds_of, with_port

Peer = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}$"), AfterValidator(with_port)]
Direction = Literal["both", "to_upstream", "to_client"]


class NoParameters(Section):
    """No parameters."""


NO_PARAMETERS: Final = NoParameters()


class RestartLoopParameters(Section):
    """``interval``: time from one kill to the next. A process that does not run again by then is not killed."""

    interval: Annotated[Seconds, Field(ge=0.05)] = 1.0


class DelayParameters(Section):
    """Each chunk of bytes is delayed by ``delay`` plus or minus up to ``jitter`` (uniform). The order is kept."""

    delay: Annotated[Seconds, Field(ge=0.02, le=60)]
    jitter: Seconds = 0.0
    direction: Direction = "to_upstream"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jitter > self.delay / 2:
            raise ValueError("jitter is more than half of delay, so no probe could detect the fault; make it smaller")
        return self


class PartitionParameters(Section):
    """Bytes in ``direction`` are held back. They arrive after healing, as TCP would retransmit them."""

    direction: Direction = "both"


class BandwidthParameters(Section):
    """Each impaired direction of the link carries at most ``bytes_per_second``, shared by all connections."""

    bytes_per_second: Annotated[Bytes, Field(ge=1000, le=10_000_000)]
    direction: Direction = "both"


class ContainerRestartParameters(Section):
    """Docker sends the container its stop signal, and kills it after ``stop_within``, rounded to whole seconds."""

    stop_within: Annotated[Seconds, Field(le=25)] = 10.0


class DisconnectParameters(Section):
    """``network``: the network from which the container is disconnected; default: all its networks."""

    network: str | None = None


class NamespacePartitionParameters(Section):
    """Outgoing packets (``to``), incoming packets (``from``) or ``both`` are dropped."""

    direction: Literal["to", "from", "both"] = "to"
    peers: Annotated[tuple[Peer, ...], Field(max_length=16)] = ()
    """IPv4 addresses with ports, outside the namespace. Only packets to or from them are dropped; empty: all are."""


class NamespaceDelayParameters(Section):
    """Outgoing packets are delayed by ``delay`` plus or minus up to ``jitter``. Packets may be reordered."""

    delay: Annotated[Seconds, Field(ge=0.02, le=60)]
    jitter: Seconds = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jitter > self.delay / 2:
            raise ValueError("jitter is more than half of delay, so no probe could detect the fault; make it smaller")
        return self


class NamespaceBandwidthParameters(Section):
    """At most ``bytes_per_second`` leave the namespace, shared by all connections."""

    bytes_per_second: Annotated[Bytes, Field(ge=10_000, le=10_000_000)]


class NamespaceLossParameters(Section):
    """``percent`` of the outgoing packets are lost, corrupted or duplicated."""

    percent: Annotated[float, Field(ge=1, le=100)]


class NamespaceReorderParameters(Section):
    """``percent`` of the outgoing packets are held back for ``hold``; the others overtake them."""

    percent: Annotated[float, Field(ge=1, lt=100)]
    hold: Annotated[Seconds, Field(ge=0.001, le=60)] = 0.01


class PodParameters(Section):
    """``pods``: number of the target's pods that Chaos Mesh draws: ``one``, a number, a share (``50%``) or ``all``."""

    pods: str | int = "one"

    @field_validator("pods", mode="before")
    @classmethod
    def _all_is_asked_for(cls, pods: object) -> str | int:
        if pods == "100%":
            raise ValueError("100% would hit all replicas; write all, if you mean it")
        return how_many(pods, "one", "all")


class _PodNetworkParameters(PodParameters):
    """``direction``: packets that the pods send (``to``), receive (``from``) or ``both``.

    ``peers``: labels of the pods at the other end; empty: any other end.
    """

    direction: Literal["to", "from", "both"] = "to"
    peers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_peers(self) -> Self:
        if self.direction != "to" and not self.peers:
            raise ValueError("set peers (labels of the pods at the other end), or use direction: to")
        return self


class PodDelayParameters(_PodNetworkParameters):
    """netem in the pod's network delays packets by ``delay`` plus or minus up to ``jitter``. Resolution: 1 ms."""

    delay: Annotated[Seconds, Field(ge=0.001, le=60)]
    jitter: Seconds = 0.0


class PodLossParameters(_PodNetworkParameters):
    """``percent`` of the packets are lost."""

    percent: Annotated[float, Field(gt=0, le=100)]


class PodPartitionParameters(_PodNetworkParameters):
    """All packets in ``direction`` are dropped."""


class PodCpuParameters(PodParameters):
    """``workers`` each load one processor of the pod to ``load_percent``."""

    workers: Annotated[int, Field(ge=1, le=256)] = 1
    load_percent: Annotated[int, Field(ge=1, le=100)] = 100


class PodMemoryParameters(PodParameters):
    """One worker holds ``bytes`` of memory."""

    bytes: Annotated[Bytes, Field(gt=0)]


class PodDiskParameters(PodParameters):
    """``percent`` of the calls on files below the mount path ``volume`` are delayed by ``delay``."""

    volume: Annotated[str, Field(pattern="^/")]
    delay: Annotated[Seconds, Field(ge=0.001, le=60)]
    percent: Annotated[int, Field(ge=1, le=100)] = 100


class PodClockParameters(PodParameters):
    """The pod's clock is off by ``offset``: ``-10m`` is behind, ``5s`` ahead."""

    offset: Annotated[str, Field(pattern=r"^-?[0-9]+(ms|s|m|h)$")]


class ClockParameters(Section):
    """The wall clock jumps by ``offset`` (``-10m`` back, ``5s`` ahead), and returns when the fault is healed."""

    offset: Annotated[str, Field(pattern=r"^-?[0-9]+(ms|s|m|h)$")]

    @field_validator("offset")
    @classmethod
    def _shows(cls, offset: str) -> str:
        if seconds_of(offset.removeprefix("-")) < 1:
            raise ValueError("the probe cannot detect an offset of less than a second")
        return offset

    @property
    def offset_seconds(self) -> float:
        """The offset; negative if the clock is behind."""
        return seconds_of(self.offset.removeprefix("-")) * (-1 if self.offset.startswith("-") else 1)


class CpuParameters(Section):
    """``workers`` processes that each try to keep one processor busy."""

    workers: Annotated[int, Field(ge=1, le=256)] = 1


class MemoryParameters(Section):
    """One process that holds ``bytes`` in memory."""

    bytes: Annotated[Bytes, Field(gt=0)]


class TransactionParameters(Section):
    """A transaction with one record in ``partition``, which stays open until healing."""

    partition: Annotated[int, Field(ge=0)] = 0
    timeout: Annotated[Seconds, Field(ge=1)] = 900.0
    """Time after which the broker aborts the transaction. The broker accepts at most its
    ``transaction.max.timeout.ms`` (15 minutes by default)."""


class DemoteParameters(Section):
    """``to``: id of the broker that becomes the leader; None: the broker of the first other in-sync replica."""

    to: Annotated[int, Field(ge=0)] | None = None


class LeaderMoveParameters(DemoteParameters):
    """``partition``: the partition whose leader is moved; None: all partitions of the topic."""

    partition: Annotated[int, Field(ge=0)] | None = None


class PoisonParameters(Section):
    """Records of ``form``, at the rate ``per_second``, until ``at_most`` records are sent."""

    form: Literal["not_utf8", "not_json", "no_object", "empty", "null", "each"] = "not_json"
    """``each`` writes all other forms in turn."""
    per_second: Annotated[float, Field(gt=0, le=1000)] = 10.0
    at_most: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


class DiskParameters(Section):
    """A file of ``bytes`` is written. It is smaller if the file system becomes full before that.

    The fault is refused if less than ``reserve`` bytes would stay free. With 0 the file system may become full.
    """

    bytes: Annotated[Bytes, Field(gt=0)]
    reserve: Bytes = 2**30


class DiskSlowParameters(Section):
    """At most ``bytes_per_second`` are read from the disk, and at most as many are written."""

    bytes_per_second: Annotated[Bytes, Field(ge=100_000, le=50_000_000)]


AnyParameters = (
    NoParameters
    | RestartLoopParameters
    | DelayParameters
    | PartitionParameters
    | BandwidthParameters
    | TransactionParameters
    | DemoteParameters
    | LeaderMoveParameters
    | PoisonParameters
    | ContainerRestartParameters
    | DisconnectParameters
    | NamespacePartitionParameters
    | NamespaceDelayParameters
    | NamespaceBandwidthParameters
    | NamespaceLossParameters
    | NamespaceReorderParameters
    | PodParameters
    | PodDelayParameters
    | PodLossParameters
    | PodPartitionParameters
    | PodCpuParameters
    | PodMemoryParameters
    | PodDiskParameters
    | PodClockParameters
    | ClockParameters
    | CpuParameters
    | MemoryParameters
    | DiskParameters
    | DiskSlowParameters
)
