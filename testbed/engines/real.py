"""Real engines: their settings, the named profiles of timeouts, and their base class.

All run PGVal's SST on one input topic and its MST on two, with separate topics for late events if the engine supports
that. A generic job runs every workload whose operator it has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from generator.workloads.kinds import DEFAULT, built, known, named
from generator.workloads.seam import Workload
from testbed.engines.base import ProcessEngine
from testbed.engines.effective import Effective
from testbed.engines.join import Join
from testbed.engines.settings import Guarantee, Node


class Timeouts(BaseModel):
    """The timeouts and intervals of an engine, in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit_interval_seconds: float = Field(default=1.0, ge=0)
    """Interval of commits (Kafka Streams, Storm), checkpoints (Flink) or micro-batches (Spark, where 0 is no pause)."""
    transaction_timeout_seconds: float = Field(default=30.0, gt=0)
    """Transaction timeout of the sink's producers. A broker allows at most 15 minutes by default."""
    session_timeout_seconds: float = Field(default=6.0, gt=0)
    """Time without a heartbeat after which a member of a group, or a process of a cluster, counts as dead."""
    heartbeat_interval_seconds: float = Field(default=1.5, gt=0)
    message_timeout_seconds: float | None = Field(default=None, gt=0)
    """Storm: time after which an unacknowledged event is read again; None: 300 s, or five windows if these are longer.
    """
    task_timeout_seconds: float | None = Field(default=None, gt=0)
    """Storm: time without a heartbeat after which Nimbus moves a worker's tasks; None: five session timeouts."""


LOCAL: Final = Timeouts()
"""The testbed's own timeouts: short, so that an engine recovers within seconds, and long enough for a busy machine."""

PROFILES: Final[Mapping[str, Mapping[str, Timeouts]]] = {
    # Flink: checkpoints every 5 s, sink transactions of 30 s. All engines: a timeout of 3 s, heartbeats every second.
    # PGVal does not set the transaction timeout of Kafka Streams and the commit interval of Storm's spout, so they have
    # their defaults.
    "pgval": {
        "flink": Timeouts(
            commit_interval_seconds=5,
            transaction_timeout_seconds=30,
            session_timeout_seconds=3,
            heartbeat_interval_seconds=1,
        ),
        "kafka_streams": Timeouts(
            commit_interval_seconds=1,
            transaction_timeout_seconds=10,
            session_timeout_seconds=3,
            heartbeat_interval_seconds=1,
        ),
        "storm": Timeouts(
            commit_interval_seconds=30,
            session_timeout_seconds=3,
            heartbeat_interval_seconds=1,
            message_timeout_seconds=124,
            task_timeout_seconds=350,
        ),
    },
    # Flink: checkpoints every 10 s and transactions of an hour, which a broker refuses unless its
    # transaction.max.timeout.ms is raised. Kafka Streams: commits every second. Spark: a trigger of 0. All other values
    # are defaults.
    "ospbench": {
        "flink": Timeouts(
            commit_interval_seconds=10,
            transaction_timeout_seconds=3600,
            session_timeout_seconds=50,
            heartbeat_interval_seconds=10,
        ),
        "kafka_streams": Timeouts(
            commit_interval_seconds=1,
            transaction_timeout_seconds=10,
            session_timeout_seconds=45,
            heartbeat_interval_seconds=3,
        ),
        # Spark's sink has no transactions, and its driver is not in a consumer group.
        "spark": Timeouts(commit_interval_seconds=0),
    },
    # Vogel et al.: checkpoints and commits every 2 s; otherwise defaults, with Flink's transactions under the broker's
    # limit.
    "shufflebench": {
        "flink": Timeouts(
            commit_interval_seconds=2,
            transaction_timeout_seconds=900,
            session_timeout_seconds=50,
            heartbeat_interval_seconds=10,
        ),
        "kafka_streams": Timeouts(
            commit_interval_seconds=2,
            transaction_timeout_seconds=10,
            session_timeout_seconds=45,
            heartbeat_interval_seconds=3,
        ),
    },
}
"""Profile -> engine -> its timeouts, from the papers or their code (PGVal, OSPBench, Vogel et al.)."""


_AGGREGATES: Final = frozenset({"count", "sum", "min", "max", "avg", "distinct"})
"""Those of all generic jobs."""

WORKERS_MAX: Final = 5
"""Most workers of an engine, as in OSPBench and PGVal."""


Poison = Literal["skip", "fail"]
"""Skip an undecodable record, or fail on it as a job without error handling does: Flink restarts again and again, a
client of Kafka Streams ends in a living process, Spark's query and Storm's worker end."""

COUNTERS: Final = "counters "
"""The beginning of a job's line of the log with its counters."""
_TAIL_BYTES: Final = 16_384


class EngineRefused(Exception):
    """An engine does not support the settings. The message is one sentence with the fix."""

    exit_status = 2


def logged_counters(log: Path) -> dict[str, float]:
    """Return the counters that a job has logged last (`COUNTERS`, then NAME=VALUE); none if there is no such line."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        *whole, _ = file.read().decode(errors="replace").split("\n")
    for line in reversed(whole):
        if line.startswith(COUNTERS):
            return {name: float(value) for name, _, value in (part.partition("=") for part in line.split()[1:])}
    return {}


def timeouts(profile: str, engine: str) -> Timeouts:
    """Return the timeouts of a named profile; ``local`` has them for every engine. Raises EngineRefused."""
    if profile == "local":
        return LOCAL
    known = PROFILES.get(profile)
    if known is None:
        raise EngineRefused(f"There is no profile {profile} of timeouts; use local, {', '.join(PROFILES)}.")
    if engine not in known:
        raise EngineRefused(f"Profile {profile} has no timeouts for {engine}; use it for {', '.join(known)}, or local.")
    return known[engine]


class RealEngineSettings(BaseModel):
    """Topics, window, guarantee and timeouts of one engine. Durations carry their unit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str
    node: Node | None = None
    """The separate network of the first worker, with Storm also of its Supervisor; None: no separate network."""
    workload: Annotated[str, AfterValidator(known)] = DEFAULT
    input: str = "click"
    parameters: Mapping[str, Any] = {}
    """Those of the workload that do not have their default values."""
    update_input: str = "update"
    """In a join: the input that is joined with ``input``."""
    join: Join = "inner"
    """In a join: whether clicks without an update have a result (`left`) or not (`inner`)."""
    output: str = "output"
    late: str = "lateOutput"
    late_updates: str = "lateUpdates"
    """In a join: topic for late updates; ``late`` is that of late clicks."""
    group: str = "engine"
    """Name, or beginning of the name, of everything that the engine creates on the broker: consumer group, internal
    topics, transactional ids."""
    guarantee: Guarantee = "exactly_once"
    parallelism: int = Field(default=1, ge=1, le=WORKERS_MAX)
    """Workers that share the partitions."""
    standby: int = Field(default=0, ge=0, le=1)
    """Flink: additional workers that take over from a dead one. Kafka Streams: copies of each task's state on other
    instances."""
    options: Mapping[str, str] = {}
    """The engine's own options, which replace those that the test bed sets."""
    window_ms: int = Field(default=60_000, gt=0)
    max_disorder_ms: int = Field(default=0, ge=0)
    allowed_lateness_ms: int = Field(default=0, ge=0)
    """Event time from the end of a window to its result. A window has one result."""
    grace_ms: int | None = Field(default=None, ge=0)
    """Kafka Streams: tumbling windows of its DSL with this grace period, which drop later events; None: those of the
    test bed's job, which write them to the late topic."""
    suppress: bool = False
    """With ``grace_ms``: a window has one result, when its grace period has ended; otherwise one for each update."""
    idle_after_seconds: float | None = Field(default=None, gt=0)
    """A partition without data for this long leaves the watermark; None: no partition does."""
    poison: Poison = "skip"
    """What the job does with a record that does not decode."""
    timeouts: Timeouts = LOCAL

    @model_validator(mode="after")
    def _something_to_join(self) -> Self:
        if self.join != "inner" and not self.joins:
            others = " or ".join(name for name, one in built().items() if len(one.streams) > 1)
            raise ValueError(f"join {self.join} has nothing to join in workload {self.workload}; use {others}")
        if self.join != "inner" and operator_of(self.configured) == "interval":
            raise ValueError(f"workload {self.workload} joins by interval, which needs join inner")
        return self

    @model_validator(mode="after")
    def _something_to_suppress(self) -> Self:
        if self.suppress and self.grace_ms is None:
            raise ValueError("suppress waits for the end of a grace period; set grace_ms")
        return self

    @property
    def configured(self) -> Workload:
        """The workload, with its parameters."""
        return built()[self.workload].model_validate(self.parameters)

    @property
    def joins(self) -> bool:
        """Whether the job joins two inputs."""
        return len(built()[self.workload].streams) > 1

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics; the clicks' is first."""
        return (self.input, self.update_input) if self.joins else (self.input,)

    @property
    def late_topics(self) -> tuple[str, ...]:
        """The topic for late events of each of ``inputs``."""
        return (self.late, self.late_updates) if self.joins else (self.late,)


def operator_of(of: Workload) -> str:
    """The operator of a workload in generic jobs."""
    return str(of.operator(1).get("operator", "tumbling"))


def takes_grace(of: Workload) -> bool:
    """Whether the DSL's windows can compute a workload: one input, whose records have the key of the window."""
    return operator_of(of) == "tumbling" and len(of.streams) == 1 and not of.needs_shuffle


def _is_plain(of: Workload) -> bool:
    """Whether a workload reads texts, each with an id and one key or words, and its results have nothing beside ids or
    aggregates."""
    return (
        {what.partition("(")[0] for what in of.aggregates.values()} <= _AGGREGATES
        and not any(stream.layout for stream in of.streams)
        and not (of.carried or of.changes or of.states_beside_ids or of.follows)
    )


class RealEngine(ProcessEngine):
    """A production engine as processes that the testbed starts."""

    guarantees: tuple[Guarantee, ...]
    """The guarantees that it supports."""
    operators: tuple[str, ...] = ()
    """What its generic job computes."""
    runs_stages: bool = False
    """Whether the job also runs stages of chains: ids of several fields, and results with other fields beside ids."""
    matches: bool = False
    """Whether the job also finds the keys of raw events by rules."""
    commits_without_pause: bool = False
    """Whether it supports a commit interval of 0."""
    standbys: int = 0
    """The most standby instances that it supports."""
    setups: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Those of its own options that decide which processes it has: name -> values, the default first."""
    is_led: bool = False
    """Whether one of its processes is the `leader`."""
    has_grace: bool = False
    """Whether it has windows with a grace period."""

    def __init__(self, settings: RealEngineSettings, folder: Path, *, roles: Sequence[str]) -> None:
        """Raises EngineRefused if the engine or its job does not support ``settings``."""
        if settings.guarantee not in self.guarantees:
            raise EngineRefused(f"{self.name} cannot provide {settings.guarantee}; use {' or '.join(self.guarantees)}.")
        if settings.workload not in self.workloads():
            raise EngineRefused(
                f"{self.name} has no job for workload {settings.workload}; use {' or '.join(self.workloads())}, "
                "or another engine."
            )
        self.check_options(settings.options)
        if settings.standby > self.standbys:
            raise EngineRefused(f"{self.name} has no standby workers; leave standby at 0.")
        if settings.grace_ms is not None and not (self.has_grace and takes_grace(settings.configured)):
            raise EngineRefused(f"{self.name} has no grace period in {settings.workload}; leave grace_ms out.")
        if settings.timeouts.commit_interval_seconds == 0 and not self.commits_without_pause:
            raise EngineRefused(f"{self.name} does not support commit_interval_seconds 0; set it above 0.")
        super().__init__(folder, roles=roles)
        self.settings = settings
        self.node = settings.node
        (folder / f"{self.name}.json").write_text(settings.model_dump_json(indent=1), encoding="utf-8")

    @classmethod
    @abstractmethod
    def require(cls) -> None:
        """Raise a PrerequisiteError if this machine lacks what the engine needs. Downloads nothing."""

    @classmethod
    def check_options(cls, options: Mapping[str, str]) -> None:
        """Raise EngineRefused if the test bed has no processes for one of the engine's own ``options``."""
        for name, values in cls.setups.items():
            if options.get(name, values[0]) not in values:
                raise EngineRefused(
                    f"The test bed has no {cls.name} with {name} {options[name]}; use {' or '.join(values)}."
                )

    @classmethod
    def setup(cls, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return those of ``options``, as text, with which the engine has other processes than by default."""
        chosen = {name: options.get(name, values[0]) for name, values in cls.setups.items()}
        return tuple(f"{name} {value}" for name, value in chosen.items() if value != cls.setups[name][0])

    @property
    def leader(self) -> int:
        """The number of the process that directs the others now, if the engine `is_led`."""
        raise NotImplementedError(self.name)

    @classmethod
    def workloads(cls) -> tuple[str, ...]:
        """The workloads that its job supports."""
        return tuple(kind for kind in built() if cls._computes(named(kind)))

    @classmethod
    def _computes(cls, of: Workload) -> bool:
        fits = cls.matches if any(stream.layout for stream in of.streams) else cls.runs_stages
        return operator_of(of) in cls.operators and (fits or _is_plain(of))

    def counters(self) -> dict[str, dict[str, float]]:
        """Return the engine's own counters: part of the engine -> name -> value. Totals begin again at a restart of
        the part. Empty if the engine has none. Raises OSError, ValueError or KeyError if it does not answer."""
        logs = {f"{one.role}-{one.number}": one.log_path for one in self.instances if one.alive}
        return {part: found for part, log in logs.items() if (found := logged_counters(log))}

    @abstractmethod
    def effective(self) -> Effective:
        """Return the running engine's effective guarantee. Raises EngineError if it does not run."""
