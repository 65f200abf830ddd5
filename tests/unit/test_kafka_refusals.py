"""The reason why a cluster refuses a client, from the texts of librdkafka, OpenSSL and Java."""

from __future__ import annotations

import pytest

from validator.model.kafka_refusals import refusal

pytestmark = pytest.mark.unit

TLS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
TOKEN = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "oauthbearer"}
ALERT = "ssl://a:9093/bootstrap: SSL handshake failed: error:0A000410:SSL routines::ssl/tls alert handshake failure"
LOGIN = (
    "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient; "
    "javax.security.auth.login.LoginException: An internal error occurred while retrieving token from callback handler"
)


@pytest.mark.parametrize(
    ("text", "options", "kind"),
    [
        ("Failed to acquire SASL OAUTHBEARER token: 401", TOKEN, "token"),
        (LOGIN, TOKEN, "token"),
        (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism X",
            TLS,
            "credentials",
        ),
        ("ssl://a:1/bootstrap: error:0A00010B:SSL routines::wrong version number (after 0ms)", TLS, "plaintext"),
        ("error:1408F10B:SSL routines:ssl3_get_record:wrong version number", TLS, "plaintext"),
        ("javax.net.ssl.SSLException: Unsupported or unrecognized SSL message", TLS, "plaintext"),
        ("CertificateException: No subject alternative names matching IP address 127.0.0.1 found", TLS, "host"),
        ("CertificateException: No subject alternative DNS name matching localhost found.", TLS, "host"),
        ("certificate verify failed: IP address mismatch, certificate is not valid for '::1'", TLS, "host"),
        ("SSL routines::certificate verify failed: broker certificate could not be verified", TLS, "certificate"),
        ("javax.net.ssl.SSLHandshakeException: Received fatal alert: bad_certificate", TLS, "client_certificate"),
        ("javax.net.ssl.SSLHandshakeException: Received fatal alert: handshake_failure", TLS, "handshake"),
        ("ssl.key.location failed: error:0A080009:SSL routines::PEM lib", TLS, "unreadable_key"),
        (
            "Failed to parse ssl.keystore.location PKCS#12 file: /s.p12: error:1:PKCS12 routines::mac verify failure",
            TLS,
            "unreadable_key_store",
        ),
        ("Error reading ssl.keystore.location PKCS#12 file: /c.pem: error:0688010A", TLS, "unreadable_key_store"),
        ("Failed to open ssl.keystore.location: /s.p12: error:10000080", TLS, "unreadable_key_store"),
        ("KafkaException: Failed to load SSL keystore /s.p12 of type PKCS12", TLS, "unreadable_key_store"),
    ],
)
def test_a_message_of_a_client_is_classified(text: str, options: dict[str, str], kind: str) -> None:
    found = refusal(["something else", text], options)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("topic OAuthBearer-clicks: the last token of the batch is absent", TOKEN),
        ("the records of OAuthBearer-token are gone", TOKEN),
        (LOGIN, TLS),
        ("the store of the fault runner has invalid credentials", TLS),
        ("state 5: wrong version number", TLS),
        ("IP address mismatch in field client", TLS),
    ],
)
def test_a_message_that_only_resembles_a_refusal_is_not_classified(text: str, options: dict[str, str]) -> None:
    assert refusal([text], options) is None


def test_a_handshake_that_fails_leaves_the_protocol_and_names_the_ciphers() -> None:
    assert str(refusal([ALERT], TLS)) == (
        "client and broker have no common cipher or TLS version, or the broker requires a certificate of the client "
        "(mutual TLS): check ssl.cipher.suites and ssl.enabled.protocols of the broker, or keep security.protocol "
        "SASL_SSL, and set ssl.certificate.location and ssl.key.location in kafka.options"
    )
    wanted = refusal(["SSL routines::tlsv13 alert certificate required"], TLS)
    assert wanted is not None
    assert wanted.fix.startswith("keep security.protocol SASL_SSL, and set ssl.certificate.location ")


def test_a_key_store_that_cannot_be_read_has_advice_of_its_own() -> None:
    assert str(refusal(["Failed to parse ssl.keystore.location PKCS#12 file: /s.p12: mac verify failure"], {})) == (
        "the client's key store in ssl.keystore.location cannot be read: check that ssl.keystore.password is its "
        "password, and that the file exists and is PKCS#12"
    )
