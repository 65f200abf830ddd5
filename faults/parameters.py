"""What each kind of fault can be told."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from faults.section import Bytes, Seconds, Section, how_many, seconds_of, with_port

Peer = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}$"), AfterValidator(with_port)]
Direction = Literal["both", "to_upstream", "to_client"]


class NoParameters(Section):
    """Nothing to tell."""


NO_PARAMETERS: Final = NoParameters()


class RestartLoopParameters(Section):
    """``interval``: from one kill to the next; the process is killed each time that it is found alive."""

    interval: Annotated[Seconds, Field(ge=0.05)] = 1.0


class DelayParameters(Section):
    """Each chunk of bytes waits for ``delay``, more or less by up to ``jitter``, evenly drawn; order is kept."""

    delay: Annotated[Seconds, Field(ge=0.02, le=60)]
    jitter: Seconds = 0.0
    direction: Direction = "to_upstream"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jitter > self.delay / 2:
            raise ValueError("jitter is more than half of delay, so that no probe could tell the fault from none")
        return self


class PartitionParameters(Section):
    """Bytes in ``direction`` are held back, and arrive after healing, as TCP would send them again."""

    direction: Direction = "both"


class BandwidthParameters(Section):
    """``bytes_per_second`` of the link in each direction, all its connections together."""

    bytes_per_second: Annotated[Bytes, Field(ge=1000, le=10_000_000)]
    direction: Direction = "both"


class ContainerRestartParameters(Section):
    """Docker asks the container to stop, and kills it after ``stop_within``, in whole seconds."""

    stop_within: Annotated[Seconds, Field(le=25)] = 10.0


class DisconnectParameters(Section):
    """``network``: the one to be taken off; all of the container's unless named."""

    network: str | None = None


class NamespacePartitionParameters(Section):
    """``direction``: what leaves the namespace (``to``), what comes (``from``) or ``both``; ``peers``: only theirs."""

    direction: Literal["to", "from", "both"] = "to"
    peers: Annotated[tuple[Peer, ...], Field(max_length=16)] = ()
    """IPv4 addresses with ports, outside the namespace; all traffic where there are none."""


class NamespaceDelayParameters(Section):
    """What leaves the namespace comes later by ``delay``, more or less by up to ``jitter``; packets may overtake."""

    delay: Annotated[Seconds, Field(ge=0.02, le=60)]
    jitter: Seconds = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jitter > self.delay / 2:
            raise ValueError("jitter is more than half of delay, so that no probe could tell the fault from none")
        return self


class NamespaceBandwidthParameters(Section):
    """``bytes_per_second`` leave the namespace, all its connections together."""

    bytes_per_second: Annotated[Bytes, Field(ge=10_000, le=10_000_000)]


class NamespaceLossParameters(Section):
    """``percent`` of the packets that leave the namespace are lost."""

    percent: Annotated[float, Field(ge=1, le=100)]


class PodParameters(Section):
    """``pods``: how many of the target's pods, drawn by Chaos Mesh: one, a number, a share (``50%``), or all."""

    pods: str | int = "one"

    @field_validator("pods", mode="before")
    @classmethod
    def _all_is_asked_for(cls, pods: object) -> str | int:
        if pods == "100%":
            raise ValueError("100% would hit all replicas; write all, if you mean it")
        return how_many(pods, "one", "all")


class _PodNetworkParameters(PodParameters):
    """``direction``: what the pods send (``to``), get (``from``) or ``both``; ``peers``: labels of the other side."""

    direction: Literal["to", "from", "both"] = "to"
    peers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_peers(self) -> Self:
        if self.direction != "to" and not self.peers:
            raise ValueError("direction from and both need peers, since Chaos Mesh must know whom to hold off")
        return self


class PodDelayParameters(_PodNetworkParameters):
    """As a link's, to the millisecond, by netem in the pod's network."""

    delay: Annotated[Seconds, Field(ge=0.001, le=60)]
    jitter: Seconds = 0.0


class PodLossParameters(_PodNetworkParameters):
    """``percent`` of the packets are lost."""

    percent: Annotated[float, Field(gt=0, le=100)]


class PodPartitionParameters(_PodNetworkParameters):
    """No packet passes."""


class PodCpuParameters(PodParameters):
    """``workers`` that each load a processor of the pod to ``load_percent``."""

    workers: Annotated[int, Field(ge=1, le=256)] = 1
    load_percent: Annotated[int, Field(ge=1, le=100)] = 100


class PodMemoryParameters(PodParameters):
    """One worker that holds ``bytes``."""

    bytes: Annotated[Bytes, Field(gt=0)]


class PodDiskParameters(PodParameters):
    """``percent`` of the calls on the files of ``volume``, a mount path, take ``delay`` longer."""

    volume: Annotated[str, Field(pattern="^/")]
    delay: Annotated[Seconds, Field(ge=0.001, le=60)]
    percent: Annotated[int, Field(ge=1, le=100)] = 100


class PodClockParameters(PodParameters):
    """The pod's clock is off by ``offset``: ``-10m`` is behind, ``5s`` ahead."""

    offset: Annotated[str, Field(pattern=r"^-?[0-9]+(ms|s|m|h)$")]


class ClockParameters(Section):
    """The wall clock is off by ``offset``: ``-10m`` is behind, ``5s`` ahead. It jumps there at once, and back."""

    offset: Annotated[str, Field(pattern=r"^-?[0-9]+(ms|s|m|h)$")]

    @field_validator("offset")
    @classmethod
    def _shows(cls, offset: str) -> str:
        if seconds_of(offset.removeprefix("-")) < 1:
            raise ValueError("less than a second is no offset that the probe could tell from none")
        return offset

    @property
    def offset_seconds(self) -> float:
        """Below 0: behind."""
        return seconds_of(self.offset.removeprefix("-")) * (-1 if self.offset.startswith("-") else 1)


class CpuParameters(Section):
    """``workers`` processes that each try to keep one processor busy."""

    workers: Annotated[int, Field(ge=1, le=256)] = 1


class MemoryParameters(Section):
    """One process that holds ``bytes`` in memory."""

    bytes: Annotated[Bytes, Field(gt=0)]


class TransactionParameters(Section):
    """A transaction on ``partition``, which the broker itself ends after ``timeout``."""

    partition: Annotated[int, Field(ge=0)] = 0
    timeout: Annotated[Seconds, Field(ge=1)] = 900.0
    """At most the broker's ``transaction.max.timeout.ms``, 15 minutes unless set."""


class DemoteParameters(Section):
    """``to``: id of the broker that leads instead; the first other in-sync replica where there is none."""

    to: Annotated[int, Field(ge=0)] | None = None


class LeaderMoveParameters(DemoteParameters):
    """``partition``: the one whose leader is moved; all of the topic where there is none."""

    partition: Annotated[int, Field(ge=0)] | None = None


class PoisonParameters(Section):
    """Records of ``form``, ``per_second`` of them until ``at_most`` are sent."""

    form: Literal["not_utf8", "not_json", "no_object", "empty", "null", "each"] = "not_json"
    """``each``: all of them in turn."""
    per_second: Annotated[float, Field(gt=0, le=1000)] = 10.0
    at_most: Annotated[int, Field(ge=1, le=1_000_000)] = 1000


class DiskParameters(Section):
    """A file of at most ``bytes``; less where the file system is full before.

    It is refused where less than ``reserve`` would stay free; a ``reserve`` of 0 lets it fill up, to the last byte.
    """

    bytes: Annotated[Bytes, Field(gt=0)]
    reserve: Bytes = 2**30


class DiskSlowParameters(Section):
    """``bytes_per_second`` are read from the disk at most, and as many are written."""

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
