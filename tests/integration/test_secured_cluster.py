"""A cluster with TLS, SASL and ACLs: both clients can connect, and each refusal has its own sentence."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import py4j.protocol
import pytest
from confluent_kafka.admin import AdminClient

from faults.config import KafkaSection
from faults.errors import FaultConfigError
from faults.topic import FaultsTopicWriter
from generator.config import GeneratorConfig
from generator.run import GeneratorRunError, generate
from testbed.certificates import KEY_PASSWORD, Authority
from testbed.secured_broker import PLAIN_USERS, SecuredBroker
from tests.integration.sidecar_fixtures import Pipeline, answer, click
from validator.cli import clients
from validator.cli import pipeline as doctor
from validator.config.model import SET_ELSEWHERE, Config
from validator.measure.canary_rounds import Round
from validator.model.kafka_options import JAVA_ONLY, SHARED, java_options, librdkafka_options
from validator.stream.brokers import Brokers, BrokersRefuse
from validator.stream.canary_writer import CanaryWriter
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.sources import reading_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD: Final = 'pass"word \\ 1='
Options = Mapping[str, str]


@dataclass
class Cluster:
    """The broker, a pipeline whose topics exist, and its user with all rights that the sidecar needs."""

    broker: SecuredBroker
    pipeline: Pipeline
    user: str
    options: dict[str, str]
    foreign: Authority
    rights: list[tuple[str, str, str]] = field(default_factory=list)

    def settings(self, options: Options, *more: str, listener: str = "SCRAM", host: str = "127.0.0.1") -> list[str]:
        """Return `--set` arguments with the listener's address and the options."""
        servers = self.broker.servers_of(listener, host)  # type: ignore[arg-type]
        given = [f"kafka.options.{name}={json.dumps(value)}" for name, value in options.items()]
        return [f"kafka.bootstrap_servers={servers}", *given, *more]

    def config(self, options: Options, *more: str, listener: str = "SCRAM", host: str = "127.0.0.1") -> Config:
        return self.pipeline.config(*self.settings(options, *more, listener=listener, host=host))

    @property
    def topics(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys((self.pipeline.input, self.pipeline.output, self.pipeline.late), (0,))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("foreign"), "another CA")


@pytest.fixture(scope="module")
def second_jvm() -> Iterator[Any]:
    with clients.running_jvm() as jvm:
        yield jvm


@pytest.fixture
def py4j_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo PySpark's handler of Java errors, which looks up every error in the JVM of Spark, whatever JVM raised it.

    The tests start Spark, unlike the doctor. If an object of Spark had the error's id, the handler used that object.
    """
    monkeypatch.setattr("py4j.java_gateway.get_return_value", py4j.protocol.get_return_value)


@pytest.fixture
def java(second_jvm: Any, py4j_of_its_own: None) -> Any:
    del py4j_of_its_own
    return second_jvm


@pytest.fixture
def cluster(secured: SecuredBroker, foreign: Authority, tmp_path: Path) -> Cluster:
    name = f"s-{uuid.uuid4().hex[:6]}"
    without_spark = cast("SparkSession", None)
    made = Pipeline(name, secured.bootstrap_servers, tmp_path, secured, without_spark)
    made.create()
    secured.add_user(name, PASSWORD)
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.authority.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": name,
        "sasl.password": PASSWORD,
    }
    cluster = Cluster(secured, made, name, options, foreign)
    for topic in cluster.topics:
        cluster.rights += [(right, "TOPIC", topic) for right in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")]
    cluster.rights.append(("DESCRIBE", "GROUP", name))
    for right in cluster.rights:
        secured.allow(name, *right)
    return cluster


@pytest.mark.full
def test_scram_with_acls_once_and_live(cluster: Cluster, spark: SparkSession) -> None:
    cluster.pipeline.spark = spark
    made = cluster.pipeline
    made.clicks(click(1, 1), click(2, 2), click(3, 30))
    made.answers(answer([1, 2]))
    run = made.once(*cluster.settings(cluster.options), leave_open=True)
    assert run.counts("processed", "pending") == {"processed": 2, "pending": 1}, run.said
    again = run.report["coverage"]["second_reading"]
    assert (again["ranges"] > 0, again["not_done"]) == (True, 0), "a second reading needs no further right"
    for path in made.state().rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path
    with made.live(*cluster.settings(cluster.options)) as live:
        made.answers(answer([3], window=3))
        live.until(lambda report: report["contributions"]["processed"] == 3)
        cluster.broker.revoke(cluster.user, "READ", "TOPIC", made.input)
        made.clicks(click(4, 31))
        live.until_said(f"the right READ on topic {made.input} is missing: grant it to user {cluster.user}")
        cluster.broker.allow(cluster.user, "READ", "TOPIC", made.input)
        made.answers(answer([4], window=3))
        live.until(lambda report: report["contributions"]["processed"] == 4)


@pytest.mark.full
def test_mutual_tls_once_and_live(cluster: Cluster, spark: SparkSession) -> None:
    cluster.pipeline.spark = spark
    made, name = cluster.pipeline, f"client-{cluster.user}"
    client = cluster.broker.authority.issue(name)
    for right in cluster.rights:
        cluster.broker.allow(name, *right)
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": cluster.options["ssl.ca.location"],
        "ssl.certificate.location": str(client.certificate),
        "ssl.key.location": str(client.encrypted_key),
        "ssl.key.password": KEY_PASSWORD,
    }
    made.clicks(click(1, 1), click(2, 30))
    made.answers(answer([1]))
    run = made.once(*cluster.settings(options, listener="MUTUAL"), leave_open=True)
    assert run.counts("processed", "pending") == {"processed": 1, "pending": 1}, run.said
    java_names = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cluster.options["ssl.ca.location"],
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": client.certificate.read_text(),
        "ssl.keystore.key": client.key.read_text(),
    }
    made.answers(answer([2], window=3))
    with made.live(*cluster.settings(java_names, listener="MUTUAL")) as live:
        live.until(lambda report: report["contributions"]["processed"] == 2)


@pytest.mark.full
@pytest.mark.usefixtures("py4j_of_its_own")
def test_doctor_reads_with_both_clients(cluster: Cluster) -> None:
    made = cluster.pipeline
    made.clicks(click(1, 1))
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    user, password = next(iter(PLAIN_USERS.items()))
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    java_names = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": cluster.broker.authority.certificate.read_text(),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{jaas} username="{user}" password="{quoted}";',
    }
    for right in cluster.rights:
        cluster.broker.allow(user, *right)
    group = f"engine.consumer_group={cluster.user}"
    found = list(doctor.check(cluster.config(java_names, group)))
    said = {finding.subject: finding for finding in found}
    assert {name: said[name].status for name in ("brokers", "python client", "java client")} == dict.fromkeys(
        ("brokers", "python client", "java client"), "ok"
    ), found
    assert made.input in said["java client"].text
    assert made.late in said["python client"].text
    assert (
        said["consumer group"].text
        == f"{cluster.user} does not exist; start the engine once, or correct engine.consumer_group."
    )
    # DESCRIBE does not include READ. A client notices the missing right only when it reads.
    cluster.broker.revoke(user, "READ", "TOPIC", made.late)
    cluster.broker.allow(user, "DESCRIBE", "TOPIC", made.late)
    missing_right = f"the right READ on topic {made.late} is missing; grant it to user {user}."
    found = list(doctor.check(cluster.config(java_names)))
    assert [f.text for f in found if f.subject.endswith("client")] == [missing_right, missing_right]


def refusals(cluster: Cluster) -> dict[str, tuple[Config, str]]:
    """Return each kind of refusal -> the configuration, and the expected message."""
    good, foreign = cluster.options, cluster.foreign
    mutual = {"security.protocol": "SSL", "ssl.ca.location": good["ssl.ca.location"]}

    def with_client(authority: Authority, **more: bool) -> dict[str, str]:
        made = authority.issue(f"client-{uuid.uuid4().hex[:6]}", **more)  # type: ignore[arg-type]
        return {**mutual, "ssl.certificate.location": str(made.certificate), "ssl.key.location": str(made.key)}

    tls_only = {name: value for name, value in good.items() if name.startswith("ssl.")}
    trust = "set ssl.ca.location in kafka.options to a file with the certificate of the CA that signed it"
    protocol = "set security.protocol in kafka.options to the protocol of the listener"
    plain = cluster.pipeline.servers
    return {
        "password": (
            cluster.config({**good, "sasl.password": "wrong"}),
            (
                f"the password of user {cluster.user} is wrong, or there is no such user (SASL SCRAM-SHA-512): "
                "correct sasl.username and sasl.password in kafka.options"
            ),
        ),
        "mechanism": (
            cluster.config(good, listener="OAUTH"),
            (
                "the listener does not offer SASL mechanism SCRAM-SHA-512 (it offers OAUTHBEARER): "
                "set sasl.mechanism in kafka.options to a mechanism that the listener offers"
            ),
        ),
        "untrusted": (
            cluster.config({**good, "ssl.ca.location": str(foreign.certificate)}),
            f"the certificate of the broker is not trusted: {trust}",
        ),
        "no CA": (
            cluster.config({name: value for name, value in good.items() if name != "ssl.ca.location"}),
            f"the certificate of the broker is not trusted: {trust}",
        ),
        "expired": (
            cluster.config(good, listener="EXPIRED"),
            "the certificate of the broker has expired: renew it on the broker",
        ),
        "host": (
            cluster.config(good, host="localhost"),
            (
                "the certificate of the broker does not match the host name that the client uses: "
                "use the certificate's host name in kafka.bootstrap_servers and in the brokers' advertised.listeners"
            ),
        ),
        "plaintext to TLS": (
            cluster.config({}),
            f"the listener uses TLS, but security.protocol is PLAINTEXT: {protocol}",
        ),
        "TLS to plaintext": (
            cluster.config(good, f"kafka.bootstrap_servers={plain}"),
            f"the listener does not use TLS, but security.protocol is SASL_SSL: {protocol}",
        ),
        "no SASL to SASL": (
            cluster.config({**tls_only, "security.protocol": "SSL"}),
            f"the listener requires SASL, but security.protocol is SSL: {protocol}",
        ),
        "SASL to none": (
            cluster.config({**good, "security.protocol": "SASL_PLAINTEXT"}, f"kafka.bootstrap_servers={plain}"),
            f"the listener offers no SASL, but security.protocol is SASL_PLAINTEXT: {protocol}",
        ),
        "no certificate": (
            cluster.config(mutual, listener="MUTUAL"),
            (
                "the broker requires a certificate of the client (mutual TLS): keep security.protocol SSL, and set "
                "ssl.certificate.location and ssl.key.location in kafka.options"
            ),
        ),
        "foreign certificate": (
            cluster.config(with_client(foreign), listener="MUTUAL"),
            (
                "the broker refuses the certificate of the client: "
                "set ssl.certificate.location in kafka.options to a valid certificate of a CA that the broker trusts"
            ),
        ),
        "expired certificate": (
            cluster.config(with_client(cluster.broker.authority, expired=True), listener="MUTUAL"),
            (
                "the certificate of the client has expired: "
                "renew the certificate that ssl.certificate.location in kafka.options names"
            ),
        ),
    }


@pytest.mark.full
def test_each_refusal_has_its_own_sentence(cluster: Cluster) -> None:
    cases = refusals(cluster)

    def said(config: Config) -> str:
        try:
            Brokers(config).topics(cluster.topics)
        except BrokersRefuse as error:
            return str(error)
        return "not refused"

    with ThreadPoolExecutor(len(cases)) as pool:
        answers = pool.map(said, [config for config, _ in cases.values()])
    found = dict(zip(cases, answers, strict=True))
    expected = {
        name: f"the Kafka brokers at {config.kafka.bootstrap_servers} cannot be used: {sentence}"
        for name, (config, sentence) in cases.items()
    }
    assert found == expected


@pytest.mark.full
def test_the_java_client_is_refused_with_the_same_sentences(cluster: Cluster, java: Any) -> None:
    # If a listener closes the connection without an error, the Java client keeps waiting. librdkafka reports it.
    silent = ("plaintext to TLS", "no SASL to SASL", "TLS to plaintext")
    cases = {name: case for name, case in refusals(cluster).items() if name not in silent}
    found = {name: str(clients.read_by_java(java, config, cluster.topics)) for name, (config, _) in cases.items()}
    assert found == {name: sentence for name, (_, sentence) in cases.items()}


@pytest.mark.full
def test_a_refused_run_gives_the_reason_before_spark_starts(cluster: Cluster) -> None:
    with pytest.raises(BrokersRefuse, match=rf"the password of user {cluster.user} is wrong"):
        cluster.pipeline.once(*cluster.settings({**cluster.options, "sasl.password": "wrong"}))
    cluster.broker.revoke(cluster.user, "READ", "TOPIC", cluster.pipeline.late)
    cluster.broker.revoke(cluster.user, "DESCRIBE", "TOPIC", cluster.pipeline.late)
    with pytest.raises(BrokersRefuse, match=f"^the right READ on topic {cluster.pipeline.late} is missing"):
        cluster.pipeline.once(*cluster.settings(cluster.options))


def _now_us() -> int:
    return time.time_ns() // 1000


def documented_rights() -> set[tuple[str, str]]:
    """Return (right, resource) of each row of the table in docs/security.md."""
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    rows = page.partition("## Rights that the sidecar needs")[2].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")]
    return {(cell[0], cell[1].split(":")[0] + " " + cell[1].partition("`")[2].split("`")[0]) for cell in cells[1:]}


@pytest.mark.full
def test_each_documented_right_is_missed_by_name(cluster: Cluster, java: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_read_by_java", partial(clients.read_by_java, java))
    made, broker, user = cluster.pipeline, cluster.broker, cluster.user
    faults, planted = f"{made.name}-faults", (f"{made.name}-canary-in", f"{made.name}-canary-out")
    broker.create_topics(dict.fromkeys((faults, *planted), 1))
    broker.allow(user, "READ", "TOPIC", faults)
    for topic in planted:
        broker.allow(user, "READ", "TOPIC", topic)
        broker.allow(user, "WRITE", "TOPIC", topic)
    more = [f"faults.topic={faults}", f"canary.input={planted[0]}", f"canary.output={planted[1]}", "canary.every=1s"]
    config = cluster.config(cluster.options, f"engine.consumer_group={user}", *more)
    said: list[str] = []

    def looked_up() -> None:
        brokers = Brokers(config)
        brokers.lookup(brokers.topics(cluster.topics))

    def read_faults() -> None:
        reader = FaultsTopicReader(config, said.append)
        # The test process acts as the worker.
        reader.poll(replace(reading_of(config), memory_bytes=None))
        assert not said, said[-1]

    def may_plant() -> None:
        writer = CanaryWriter(config, lambda number: Round(number, 1_000_000, "me"), now_us=_now_us, say=said.append)
        writer.begin()
        try:
            while not (found := writer.planted()) and not said:
                threading.Event().wait(0.05)
        finally:
            writer.close()
        assert found, said[-1]

    def doctored() -> None:
        wrong = [f.text for f in doctor.check(config) if "the right " in f.text and f.status != "ok"]
        assert not wrong, wrong[-1]

    for check in (looked_up, read_faults, may_plant, doctored):
        check()
    missed: dict[tuple[str, str], tuple[tuple[str, str, str], list[Callable[[], None]]]] = {
        ("READ", "topic inputs"): (("READ", "TOPIC", made.input), [looked_up, doctored]),
        ("DESCRIBE_CONFIGS", "topic inputs"): (("DESCRIBE_CONFIGS", "TOPIC", made.output), [doctored]),
        ("DESCRIBE", "group engine.consumer_group"): (("DESCRIBE", "GROUP", user), [looked_up, doctored]),
        ("READ", "topic faults.topic"): (("READ", "TOPIC", faults), [read_faults, doctored]),
        ("READ", "topic canary.input"): (("READ", "TOPIC", planted[0]), [doctored]),
        ("WRITE", "topic canary.input"): (("WRITE", "TOPIC", planted[0]), [may_plant, doctored]),
    }
    assert set(missed) == documented_rights()
    broker.revoke(user, "DESCRIBE", "TOPIC", made.input)
    for (right, kind, name), checks in missed.values():
        broker.revoke(user, right, kind, name)
        for check in checks:
            with pytest.raises((AssertionError, BrokersRefuse)) as refused:
                check()
            assert f"the right {right} on {kind.lower()}" in str(refused.value), check
            assert name in str(refused.value)
            assert f"grant it to user {user}" in str(refused.value)
            said.clear()
        broker.allow(user, right, kind, name)


@pytest.mark.full
def test_generator_and_fault_runner_reach_a_secured_cluster(cluster: Cluster, tmp_path: Path) -> None:
    made, user = cluster.pipeline, cluster.user
    kafka = {"bootstrap_servers": cluster.broker.servers_of("SCRAM"), "options": dict(cluster.options)}
    load = GeneratorConfig.model_validate(
        {"kafka": kafka, "topic": made.input, "limit": {"events": 20}, "events_per_window": 20}
    )
    with pytest.raises(GeneratorRunError, match="right WRITE on topic not-mine"):
        generate(load.model_copy(update={"topic": "not-mine"}))
    cluster.broker.allow(user, "WRITE", "TOPIC", made.input)
    assert generate(load).acknowledged == 20
    topic = FaultsTopicWriter(KafkaSection.model_validate({**kafka, "topic": made.input}))
    topic.check()
    topic.write("f", json.dumps({"id": "f"}))
    topic.flush()
    wrong = {**kafka, "options": {**cluster.options, "sasl.password": "wrong"}, "topic": made.input}
    with pytest.raises(FaultConfigError, match=f"the password of user {user} is wrong"):
        FaultsTopicWriter(KafkaSection.model_validate(wrong)).check()


@pytest.mark.full
def test_no_option_of_the_java_client_is_unknown(java: Any) -> None:
    names = set(java.org.apache.kafka.clients.consumer.ConsumerConfig.configNames())
    translated = {name for name in names if name.startswith(("sasl.", "ssl."))}
    internal = {name for name in names if name.startswith("internal.")}
    assert names - translated - internal - set(SET_ELSEWHERE) == {
        name for name in SHARED | JAVA_ONLY if not name.startswith(("sasl.", "ssl."))
    }
    assert {name for name in JAVA_ONLY if name.startswith(("sasl.", "ssl."))} <= translated


class TokenEndpoint(BaseHTTPRequestHandler):
    """Issues a token to the client `id` with the secret `s"1`, by OAuth 2.0's client credentials grant."""

    asked: ClassVar[list[tuple[str, str]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        credentials = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.asked.append((credentials, body))
        now = int(time.time())
        parts = [{"alg": "RS256"}, {"sub": "me", "iat": now, "exp": now + 3600, "scope": "kafka"}, {"no": "signature"}]
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        answer = json.dumps({"access_token": ".".join(encoded), "token_type": "bearer", "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        del format, args


@pytest.mark.full
def test_both_clients_get_a_token_from_one_set_of_options(java: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": 's"1',
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.server_port}/token",
    }
    try:
        admin = AdminClient({**librdkafka_options(options), "bootstrap.servers": "127.0.0.1:9", "log_level": 0})
        deadline = time.monotonic() + 30
        while not TokenEndpoint.asked and time.monotonic() < deadline:
            admin.poll(0.05)
        given = java.java.util.HashMap()
        serializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        theirs = {"bootstrap.servers": "127.0.0.1:9", "key.deserializer": serializer, "value.deserializer": serializer}
        for name, value in {**java_options(options, str), **theirs}.items():
            given.put(name, value)
        java.org.apache.kafka.clients.consumer.KafkaConsumer(given).close()
    finally:
        server.shutdown()
        server.server_close()
    assert TokenEndpoint.asked == 2 * [('id:s"1', "grant_type=client_credentials&scope=kafka")]
