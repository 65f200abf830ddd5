"""The configuration of one pipeline's check: the YAML of docs/CONTRACT.md as frozen values.

In the model, durations are whole microseconds and keys are tuples. :func:`validator.config.load.load` reads a file.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, SecretStr, ValidationInfo, field_validator, model_validator

from validator.config.canary import Canary
from validator.config.notify import Notification
from validator.config.options import ClientOptions, Options
from validator.config.oracle import Oracle
from validator.config.output import Output
from validator.config.registry import SchemaRegistry
from validator.config.start import EARLIEST, Start, StartValue
from validator.model.classes import Guarantee
from validator.model.envelopes import ENVELOPES, EVENTS
from validator.model.kafka_options import FILE_OPTIONS, OptionsRefused, librdkafka_options
from validator.model.lateness_scope import LatenessScope
from validator.model.wording import plural
from validator.oracles.seam import Declared, Reads
from validator.reconcile.evidence import kinds as evidence
from validator.settings.built import ABSENT_KEYS, MIXED_DUPLICATES
from validator.settings.durations import Duration, PositiveDuration, format_duration
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import FieldPath, Frozen, IdsPath, WithDurations
from validator.settings.limits import Limits
from validator.settings.local_paths import LocalPath, against_the_file
from validator.settings.topics import EventFields, FaultsTopic, Input, Late, ResultFields, TableTopic

__all__ = [
    "Authorization",
    "Canary",
    "Config",
    "Engine",
    "EventFields",
    "FaultsTopic",
    "FieldPath",
    "IdsPath",
    "Input",
    "Kafka",
    "Late",
    "Limits",
    "Measures",
    "Metrics",
    "Notification",
    "Otlp",
    "Output",
    "Publish",
    "ResultFields",
    "Spark",
    "Start",
    "State",
    "Timing",
    "TlsServer",
]

SET_ELSEWHERE: Final[dict[str, str]] = {
    "bootstrap.servers": "write kafka.bootstrap_servers",
    "isolation.level": "write kafka.isolation_level",
    "auto.offset.reset": "write start",
    "group.id": "leave it out, since the sidecar joins no group",
    "enable.auto.commit": "leave it out, since the sidecar commits no offsets",
}
"""Client options that the sidecar sets itself -> what to write instead."""


class Kafka(Frozen):
    """The cluster that all topics are on."""

    bootstrap_servers: str
    """Brokers as `host:port`, joined by commas (or a YAML list)."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Which records are visible. Use the level of the consumers of the pipeline's results."""
    options: ClientOptions = Field(default_factory=Options)
    """Further client options, including security options, for both Kafka clients of the sidecar (docs/security.md)."""

    @field_validator("bootstrap_servers", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        servers = ",".join(str(server) for server in value) if isinstance(value, list) else value
        if isinstance(servers, str):
            for server in servers.split(","):
                host, _, port = server.strip().rpartition(":")
                if not host or not port.isdigit() or not 0 < int(port) < 65_536:
                    raise broken_rule(
                        f"{server.strip()!r} is not a broker", "write host:port, several joined by commas"
                    )
        return servers

    @field_validator("options")
    @classmethod
    def _fits_both_clients(cls, options: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name in options:
            if name in SET_ELSEWHERE:
                raise broken_rule(f"{name} cannot be set here", SET_ELSEWHERE[name])
        try:
            librdkafka_options(options)
        except OptionsRefused as error:
            raise broken_rule(error.problem, error.fix) from None
        files = {name: options[name] for name in FILE_OPTIONS if options.get(name, "probe") != "probe"}
        return Options({**options, **{name: str(against_the_file(path, info)) for name, path in files.items()}})


TOKEN_MIN: Final = 16
"""Minimum number of characters of a bearer token: a shorter one could be guessed by requests to the port."""

HostName = Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?)$", max_length=253)]
"""A DNS name, or a pattern of them."""


class Engine(Frozen):
    """The engine that is checked."""

    consumer_group: str | None = None
    """Consumer group of the engine. Events at or past its committed offsets are unconsumed, not missing."""
    effective: LocalPath | None = None
    """JSON file in which the operator of the engine states its effective guarantee (docs/report.md)."""


class Timing(WithDurations):
    """The disorder of the inputs, and the time after which an unanswered event is overdue or missing."""

    max_disorder_us: Duration = 0
    """How far an event's time may be behind the newest event time of its partition."""
    allowed_lateness_us: Duration = 0
    """How long the engine accepts events for a window after the watermark has passed the window's end. Until then the
    window is open."""
    lateness_scope: LatenessScope | None = None
    """The partitions whose newest event time makes an event late to the engine: its own `partition`; after a pause of
    half of `idle_after` all (`idle`); all of its `topic`; those of the same number of all inputs (`task`); or all
    (`global`). If it is not set, no loss is confirmed that one of these would excuse
    ([engines](verdicts.md#partitions-that-make-an-event-late))."""
    idle_after_us: PositiveDuration = 10_000_000
    """A partition without records for this long is idle and does not hold back the watermark."""
    max_ahead_us: PositiveDuration = 3_600_000_000
    """An event whose time is further ahead of the clock than this moves no watermark. With `late_policy: drop`, and in
    joins, later events of the same partition do not become missing."""
    overdue_after_us: Duration = 30_000_000
    """An event is overdue (an alert, not a violation) if it is in no result, late or rejected record this long after
    its window closed."""
    missing_after_us: PositiveDuration = 120_000_000
    """An event is missing if it is in none of these this long after its window closed. At least `overdue_after`."""
    clock_skew_us: Duration = 100_000
    """Largest difference between the clocks of two brokers; shown with latencies as their error bound."""
    late_policy: Literal["report", "drop"] = "report"
    """Whether an event that the engine drops as late is missing (`report`) or tolerated (`drop`)."""
    tick_us: PositiveDuration = 1_000_000
    """Interval at which the sidecar's time advances if no records arrive."""
    blind_after_us: PositiveDuration = 60_000_000
    """Time without a completed batch after which the verdict is `unknown`."""

    @model_validator(mode="after")
    def _overdue_before_missing(self) -> Timing:
        if self.missing_after_us < self.overdue_after_us:
            least = format_duration(self.overdue_after_us)
            problem = f"{format_duration(self.missing_after_us)} is below overdue_after {least}"
            raise broken_rule_at("missing_after", problem, "raise missing_after or lower overdue_after")
        if self.lateness_scope == "idle" and self.missing_after_us < self.idle_after_us // 2:
            # SEMANTICS 2.31: a loss is proven only after the pauses before its event are over.
            problem = f"{format_duration(self.missing_after_us)} is below half of idle_after"
            raise broken_rule_at("missing_after", problem, "raise missing_after, since lateness_scope is idle")
        return self


class Measures(WithDurations):
    """How phases and faults are measured (SEMANTICS section 6). Durations are rounded up to whole seconds."""

    latency: Literal["last_input", "window_close", "first_input"] = "window_close"
    """The latency from which failure cost and latency penalty are computed."""
    warm_up_us: Duration = 0
    """Time after the first result that does not count as a control phase."""
    control_least_us: PositiveDuration = 10_000_000
    """Shortest control phase that serves as a baseline, else the one before it is used."""
    control_most_us: PositiveDuration = 180_000_000
    """Longest baseline of the recovery detector: the newest part of the control phase."""
    moving_rate_us: PositiveDuration = 5_000_000
    """Window of the moving average for the output rate; longer if the output comes in bursts."""
    band_ratio: float = Field(default=0.15, gt=0, lt=1)
    """A rate is in the band if it differs from the mean of the control phase by at most this fraction of it."""
    stable_for_us: PositiveDuration = 40_000_000
    """The output has recovered when its rate has stayed in the band for this long."""
    give_up_after_us: PositiveDuration = 300_000_000
    """Recovery timeout, counted from the healing of the fault. It also bounds [expected
    violations](faults.md#a-configuration)."""

    @model_validator(mode="after")
    def _baseline_fits(self) -> Measures:
        if self.control_most_us < max(self.control_least_us, 2 * self.moving_rate_us):
            problem = f"{format_duration(self.control_most_us)} is below control_least or twice moving_rate"
            raise broken_rule_at("control_most", problem, "raise control_most")
        return self


class State(WithDurations):
    """Where the facts and all data derived from them are kept."""

    path: LocalPath
    """Folder of the state: new, empty, or an existing state."""
    retention_us: PositiveDuration = 86_400_000_000
    """How long the facts of a settled cell are kept after its last change; longer than `timing.missing_after`."""


TRIGGER_MAX: Final = 10_000_000


class Spark(WithDurations):
    """The Spark session that reads and counts."""

    master: str = "local[*]"
    """Spark master: `local[N]`, `local[*]`, a standalone cluster (docs/spark-cluster.md), or `k8s://...`
    (docs/kubernetes.md)."""
    options: ClientOptions = Field(default_factory=Options)
    """Further Spark options. None is on a command line, except options of the JVM (`spark.driver.extraJavaOptions`)
    that set no property with a secret name."""
    trigger_us: PositiveDuration = 500_000
    """Minimum time between the starts of two batches, at most 10s."""

    @field_validator("trigger_us")
    @classmethod
    def _seen_as_alive(cls, trigger: int) -> int:
        # A sidecar without a batch for 30 s is not ready (`/readyz`).
        if trigger > TRIGGER_MAX:
            raise broken_rule(f"{format_duration(trigger)} is above 10s", "shorten it")
        return trigger


class TlsServer(Frozen):
    """The certificate of the port."""

    cert_file: LocalPath
    """PEM file with the certificate and its chain."""
    key_file: LocalPath
    """PEM file with its key, unencrypted. Both files are read again when one changes."""


class Authorization(Frozen):
    """The bearer token that clients send."""

    credentials: SecretStr | None = None
    """The token, through `${NAME}` or `${file:PATH}`; at least 16 characters."""
    credentials_file: LocalPath | None = None
    """File with the token. It is read at each request."""

    @model_validator(mode="after")
    def _one_token(self) -> Authorization:
        if self.credentials is None and self.credentials_file is None:
            raise broken_rule("the token is missing", "write credentials or credentials_file")
        if self.credentials is not None and self.credentials_file is not None:
            raise broken_rule("credentials and credentials_file exclude each other", "leave one of them out")
        if self.credentials is not None:
            token = self.credentials.get_secret_value()
            if len(token) < TOKEN_MIN or not token.isascii() or not token.isprintable() or " " in token:
                wanted = (
                    f"write at least {TOKEN_MIN} ASCII characters without blanks, such as from `openssl rand -hex 32`"
                )
                raise broken_rule("the token is too short or has characters that cannot be sent", wanted)
        return self


class Otlp(WithDurations):
    """An OpenTelemetry collector that gets the metrics by OTLP over HTTP. It needs `streamproof[otlp]`."""

    endpoint: str
    """Address with the path, such as `https://collector:4318/v1/metrics`."""
    interval_us: PositiveDuration = 30_000_000
    """Time between two requests. The last one is sent at the end of the run."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers of each request, through `${NAME}` or `${file:PATH}`."""

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str) -> str:
        if not re.fullmatch(r"https?://[^/@\s]+(/\S*)?", endpoint):
            raise broken_rule("it is not an address", "write http://HOST:PORT/v1/metrics, and secrets below headers")
        return endpoint


class Metrics(Frozen):
    """Where metrics, reports and the status page are served."""

    address: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` for all addresses."""
    port: int = Field(default=9464, ge=0, le=65_535)
    """Port to listen on; 0: a free one, which the sidecar prints and writes to `endpoint.json` in the state folder.
    `--once` does without a port that is in use."""
    allowed_hosts: tuple[HostName, ...] = ()
    """Host names under which clients reach the port, without the port number; `*.example.org` for all subdomains, `*`
    for any name. Addresses, `localhost` and the host's own name are always accepted."""
    tls_server_config: TlsServer | None = None
    """Serve HTTPS instead of HTTP (docs/security.md)."""
    authorization: Authorization | None = None
    """Require a token for everything except `/healthz` and `/readyz` (docs/security.md)."""
    otlp: Otlp | None = None
    """Send the metrics to a collector, too."""


class Publish(Frozen):
    """How ids and keys of records are published in the report, `violations.json`, the page, JUnit and logs. The state
    holds them in plain text."""

    ids: Literal["plain", "hashed", "hidden"] = "plain"
    """As they are (`plain`), as hashes with a secret from the state folder (`hashed`), or not at all (`hidden`).
    `explain STATE --id` also accepts a hashed id."""
    keys: Literal["plain", "hashed", "hidden"] = "plain"
    """As `ids`. `explain STATE --cell` also accepts a hashed key."""


class Config(Frozen):
    """A pipeline and how it is checked."""

    pipeline: str = Field(min_length=1, max_length=200)
    """Name of the pipeline: the label of every metric, and part of the identity of the state."""
    guarantee: Guarantee
    """The guarantee that the pipeline declares. It decides the exit status; all three guarantees are graded."""
    kafka: Kafka
    """The cluster that all topics are on."""
    schema_registry: SchemaRegistry | None = None
    """The registry with the schemas that records name."""
    inputs: tuple[Input, ...] = Field(min_length=1)
    """The topics that the pipeline reads."""
    outputs: tuple[Output, ...] = Field(min_length=1)
    """The topics that the pipeline writes results to."""
    late: tuple[Late, ...] = ()
    """Topics of events that the pipeline set aside as too late."""
    rejected: tuple[Late, ...] = ()
    """Dead-letter topics, in the same form as `late`."""
    faults: FaultsTopic | None = None
    """The topic on which faults are reported."""
    canary: Canary | None = None
    """Known violations that the sidecar plants, to measure whether it finds them."""
    engine: Engine = Engine.model_construct()
    """The engine that is checked."""
    oracle: Oracle
    """The declared computation of the pipeline: its `kind`, and the parameters of that kind."""
    start: StartValue = EARLIEST
    """Where a new state begins: `earliest`, `latest`, an RFC 3339 time, or `group:ID`."""
    timing: Timing = Timing.model_construct()
    """The disorder of the inputs, and the time after which an unanswered event is overdue or missing."""
    measures: Measures = Measures.model_construct()
    """How phases and faults are measured."""
    state: State
    """Where the facts and all data derived from them are kept."""
    spark: Spark = Spark.model_construct()
    """The Spark session that reads and counts."""
    metrics: Metrics = Metrics.model_construct()
    """Where metrics, reports and the status page are served."""
    notify: tuple[Notification, ...] = ()
    """Where changes of the verdict are sent. `streamproof notify test` sends a test message."""
    publish: Publish = Publish.model_construct()
    """How ids and keys of records are published."""
    limits: Limits = Limits.model_construct()
    """Limits on the size of records and batches."""
    _secret_variables: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def drops_repeats(self) -> bool:
        """Whether the pipeline is meant to drop repeated ids: its oracle says so, or its inputs do."""
        return self.oracle.drops_repeats or any(entry.duplicates == "collapse" for entry in self.inputs)

    @property
    def copies_explain(self) -> bool:
        """Whether an unreadable event may explain a duplicate. A copy cannot if the pipeline drops repeats and has no
        late or rejected topics (SEMANTICS 4.15); a new event can if results state numbers."""
        return not self.drops_repeats or not self.oracle.reads.names_ids or bool(self.late or self.rejected)

    @property
    def shared_outputs(self) -> frozenset[str]:
        """The output topics that have results of other services, too."""
        return frozenset(output.topic for output in self.outputs if output.where is not None)

    @property
    def secret_variables(self) -> frozenset[str]:
        """Environment variables with secrets of this configuration. Child processes of the sidecar do not need them."""
        return self._secret_variables

    @model_validator(mode="after")
    def _roles_are_distinct(self) -> Config:
        seen: dict[str, str] = {}
        for place, topic in self.topics_by_place():
            if topic in seen:
                problem = f"topic {topic} is already used in {seen[topic]}"
                raise broken_rule_at(place, problem, "use each topic only once")
            seen[topic] = place
        return self

    @model_validator(mode="after")
    def _schemas_can_be_read(self) -> Config:
        for place, _ in self.topics_by_place():
            role, _, rest = place.partition("[")
            entry = getattr(self, role)[int(rest.partition("]")[0])] if rest else None
            entry = next((one for at, one in self._tables if place == f"{at}.topic"), entry)
            for name in ("format", "key_format"):
                if entry is not None and self.schema_registry is None and getattr(entry, name).needs_registry:
                    problem = "its records name schemas of a registry, and there is none"
                    raise broken_rule_at(f"{place.removesuffix('topic')}{name}", problem, "write schema_registry.url")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Config:
        inputs = {event_input.topic for event_input in self.inputs}
        if len({event_input.duplicates for event_input in self.inputs}) > 1:
            raise broken_rule_at("inputs[1].duplicates", MIXED_DUPLICATES.problem, "use the same value for every input")
        self._widths_fit()
        self._operations_fit()
        for i, late in enumerate(self.late):
            if late.fields.position is not None:
                problem = "only a rejected record can name its input record by position"
                raise broken_rule_at(f"late[{i}].fields.position", problem, "list the topic under rejected")
        for i, output in enumerate(self.outputs):
            for path in output.fields.ids or ():
                if path.input is not None and path.input not in inputs:
                    problem = f"{path.input!r} is not an input topic"
                    raise broken_rule_at(f"outputs[{i}].fields.ids", problem, f"use one of {', '.join(sorted(inputs))}")
        if len(self.inputs) > 1 and not self.oracle.spaces(self.inputs):
            for i, entry in enumerate(self.inputs):
                if any(path.path == "$offset" for path in entry.fields.id or ()):
                    problem = "each input has the same offsets, and all inputs share their ids"
                    raise broken_rule_at(f"inputs[{i}].fields.id", problem, "name a field that identifies the event")
        drops_late = self.timing.late_policy == "drop"
        declared = Declared(self.inputs, self.outputs, self._set_aside, drops_late, self.guarantee)
        names_ids = evidence.built()[self.outputs[0].evidence].names_ids
        reads = Reads.of_topics(declared, names_ids=names_ids)
        evidence.evidence_of(self.oracle.reading(reads)).check(declared)
        self.oracle.check(declared)
        if self.oracle.by_key and len(self.inputs[0].fields.key) == 1 and not self._set_aside:
            # Only counts of a key allow several events of one record, as `explode` does.
            has_rows = any(one.envelope is not None and ENVELOPES[one.envelope].is_listed for one in self.inputs)
            self.oracle.reading(reads._replace(explodes=reads.explodes or has_rows))
        for i, entry in enumerate(self.inputs):
            joins, skips = self.oracle.asks_lateness or self.oracle.states_pairs, entry.missing_key == "skip"
            if entry.missing_key != "undecodable" and (joins or (skips and not self.oracle.may_skip)):
                fix = f"use undecodable{'' if joins else ' or owed'}"
                raise broken_rule_at(f"inputs[{i}].missing_key", ABSENT_KEYS.problem, fix)
        if self.state.retention_us <= self.timing.missing_after_us:
            problem = f"{format_duration(self.state.retention_us)} is not above timing.missing_after"
            raise broken_rule_at("state.retention", problem, "raise it, since a verdict needs the facts for that long")
        if self.canary is not None:
            self.canary.check_rounds(self.timing.missing_after_us)
        return self

    @property
    def _set_aside(self) -> list[tuple[str, Late]]:
        found = [(f"late[{i}]", item) for i, item in enumerate(self.late)]
        return found + [(f"rejected[{i}]", item) for i, item in enumerate(self.rejected)]

    @property
    def _entries(self) -> list[tuple[str, Input | Output | Late]]:
        """The topics with records of the pipeline and their places in the file, inputs first."""
        return [
            *((f"inputs[{i}]", item) for i, item in enumerate(self.inputs)),
            *((f"outputs[{i}]", item) for i, item in enumerate(self.outputs)),
            *self._set_aside,
        ]

    @property
    def _tables(self) -> list[tuple[str, TableTopic]]:
        """The tables that the pipeline looks up, and their places in the file."""
        return [("oracle.table", table) for table in self.oracle.tables]

    def _widths_fit(self) -> None:
        for name in ("key", "id"):
            for place, item in self._entries:
                computed = name == "key" and self.oracle.computes_key and isinstance(item, Output)
                like, of = (self.outputs[0], "outputs[0]") if computed else (self.inputs[0], "inputs[0]")
                first, fields = getattr(like.fields, name), getattr(item.fields, name)
                # Events without ids, and results without an id of their own, have none.
                if first is not None and fields is not None and len(fields) != len(first):
                    problem = f"it has {plural(len(fields), 'field')} and the {name} of {of} has {len(first)}"
                    raise broken_rule_at(
                        f"{place}.fields.{name}", problem, f"give every {name} the same number of fields"
                    )

    def _operations_fit(self) -> None:
        # Otherwise a change that is an event of an input looks lost once it is set aside.
        owed = {operation for one in self.inputs if one.envelope for operation in one.operations or EVENTS}
        for place, item in self._set_aside:
            if item.envelope is not None and (lacks := sorted(owed.difference(item.operations or EVENTS))):
                problem = f"it lacks {' and '.join(lacks)}, which the inputs have"
                raise broken_rule_at(f"{place}.operations", problem, f"write [{', '.join(sorted(owed))}]")

    def entry_of(self, topic: str) -> str:
        """The path of a topic's entry in the file, such as ``inputs[0]``; the topic itself if it has none."""
        places = (place.removesuffix(".topic") for place, name in self.topics_by_place() if name == topic)
        return next(places, topic)

    def topics_by_place(self) -> tuple[tuple[str, str], ...]:
        """(place in the file, topic) of every topic, inputs first."""
        places = [(f"{place}.topic", item.topic) for place, item in (*self._entries, *self._tables)]
        if self.faults is not None:
            places.append(("faults.topic", self.faults.topic))
        if self.canary is not None:
            places += [("canary.input", self.canary.input), ("canary.output", self.canary.output)]
        return tuple(places)
