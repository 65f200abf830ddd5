"""One set of client options, under the names of both Kafka clients."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from validator.model.kafka_options import JAVA_ONLY, SHARED, OptionsRefused, java_options, librdkafka_options

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nAA\n-----END PRIVATE KEY-----\n"
ENCRYPTED = KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")
FILES = {"ca.pem": CERTIFICATE, "c.pem": CERTIFICATE, "k.pem": KEY, "e.pem": ENCRYPTED, "rsa.pem": "-----BEGIN RSA"}
SECURITY = "org.apache.kafka.common.security"
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "id",
    "sasl.oauthbearer.client.secret": "secret",
    "sasl.oauthbearer.token.endpoint.url": "https://localhost/token",
}


def java(options: dict[str, str]) -> dict[str, str]:
    return java_options(options, FILES.__getitem__)


def test_librdkafkas_names_are_translated() -> None:
    assert java({**PLAIN, "ssl.ca.location": "ca.pem", "ssl.endpoint.identification.algorithm": "none"}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{SECURITY}.plain.PlainLoginModule required username="u" password="p";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    mutual = {"security.protocol": "ssl", "ssl.certificate.location": "c.pem", "ssl.key.location": "e.pem"}
    assert java({**mutual, "ssl.key.password": "p"}) == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": ENCRYPTED,
        "ssl.key.password": "p",
    }
    more = {"sasl.oauthbearer.scope": "s", "sasl.oauthbearer.extensions": "a=1,b=2", "https.ca.location": "ca.pem"}
    found = java({**OIDC, **more})
    assert found["sasl.login.callback.handler.class"] == f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://localhost/token"
    assert found["sasl.jaas.config"] == (
        f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="secret" scope="s" '
        'extension_a="1" extension_b="2" ssl.truststore.type="PEM" ssl.truststore.location="ca.pem";'
    )


def test_javas_names_are_translated() -> None:
    stores = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "both.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert librdkafka_options(stores) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "both.pem",
        "ssl.key.location": "both.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(username=texts, password=texts, mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]))
def test_names_of_both_clients_give_the_same_options(username: str, password: str, mechanism: str) -> None:
    ours = {**PLAIN, "sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}
    theirs = java(ours)
    assert librdkafka_options(theirs) == librdkafka_options(ours) == ours
    assert java(theirs) == theirs


def test_token_options_of_both_clients_give_the_same_options() -> None:
    theirs = java({**OIDC, "sasl.oauthbearer.extensions": "a=1"})
    assert librdkafka_options(theirs) == {**OIDC, "sasl.oauthbearer.extensions": "a=1"}
    assert java(theirs) == theirs


def test_each_client_gets_the_options_that_it_has() -> None:
    given = {"fetch.max.bytes": "1", "client.id": "c", "debug": "all", "max.poll.records": "5"}
    assert librdkafka_options(given) == {"client.id": "c", "debug": "all"}
    assert java(given) == {"fetch.max.bytes": "1", "client.id": "c", "max.poll.records": "5"}
    for name in sorted(SHARED):
        with pytest.raises(KafkaException) as refused:
            AdminClient({name: "", "no.such.option": ""})
        said = str(refused.value)
        assert "no.such.option" in said or "No such configuration property" not in said, name
    assert not SHARED & JAVA_ONLY


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl.truststore.location": "x.jks"}, "no trust store of type JKS; write the CA certificates as PEM"),
        ({"ssl.keystore.location": "x", "ssl.keystore.type": "JKS"}, "no key store of type JKS; name PEM files"),
        ({"sasl.login.callback.handler.class": "com.x.Y"}, "which the Python client cannot run; leave it out"),
        ({"sasl.client.callback.handler.class": "com.x.Y"}, "which the Python client cannot run; leave it out"),
        ({"ssl.engine.factory.class": "com.x.Y"}, "which the Python client cannot run"),
        ({"sasl.jaas.config": "com.x.Module required;"}, "has no equivalent of com.x.Module"),
        ({"sasl.jaas.config": "hunter2"}, "sasl.jaas.config cannot be read"),
        ({"enable.ssl.certificate.verification": "false"}, "name the CA in ssl.ca.location"),
        ({"ssl.cipher.suites": "x"}, "different names for cipher suites"),
        ({"security.protocol": "TLS"}, "use one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing; set sasl.mechanism to one of PLAIN, SCRAM"),
        ({**PLAIN, "sasl.mechanism": "GSSAPI"}, "the Python and Java clients do not both support SASL GSSAPI"),
        ({**PLAIN, "sasl.mechanisms": "SCRAM-SHA-256"}, "name one option, but have different values"),
        ({**PLAIN, "sasl.password": ""}, "SASL PLAIN needs sasl.password, which is missing"),
        ({**OIDC, "sasl.oauthbearer.method": "default"}, "set it to oidc"),
        ({"ssl.certificate.location": "c.pem"}, "add ssl.key.location"),
        ({"ssl.ca.pem": CERTIFICATE, "ssl.ca.location": "ca.pem"}, "exclude each other"),
        ({"ssl.certificate.pem": 2 * CERTIFICATE, "ssl.key.pem": KEY}, "sends only the first certificate in it"),
    ],
)
def test_an_option_that_one_client_lacks_is_refused_with_the_alternative(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionsRefused) as refused:
        librdkafka_options(options)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "said"), [("rsa.pem", "openssl pkcs8 -topk8"), ("e.pem", "the key is encrypted; add ssl.key.password")]
)
def test_a_key_that_java_cannot_read_is_refused(key: str, said: str) -> None:
    options = {"security.protocol": "SSL", "ssl.certificate.location": "c.pem", "ssl.key.location": key}
    with pytest.raises(OptionsRefused, match=said):
        java(options)
