"""Why a cluster refuses a client, derived from the messages of either client: one sentence per cause, with the fix.

librdkafka reports the cause only in its error events and its log, and its requests fail with a time-out. The Java
client reports it in an exception, deep in a chain. This module reads both texts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_TEXTS_KEPT: Final = 200


@dataclass(frozen=True)
class Refusal:
    """``kind`` is the cause; ``problem`` and ``fix`` are clauses of a sentence."""

    kind: str
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.problem}: {self.fix}"


@dataclass
class ClientMessages:
    """The messages of one librdkafka client about its connections. `options` returns the callbacks for its
    configuration."""

    texts: deque[str] = field(default_factory=lambda: deque(maxlen=_TEXTS_KEPT))

    def error(self, error: object) -> None:
        """``error_cb`` of librdkafka."""
        text = getattr(error, "str", None)
        self.texts.append(str(text()) if callable(text) else str(error))

    def log(self, level: int, text: str, *arguments: object) -> None:
        """``logger.log``, the only method of a logger that the client calls."""
        del level
        self.texts.append(text % arguments if arguments else text)

    def options(self) -> dict[str, object]:
        """Return the options to add to the client's. Messages only arrive if the client's `poll` is called."""
        return {"error_cb": self.error, "logger": self, "log_level": 6, "log.connection.close": "true"}


UNTRUSTED: Final = "certificate"
"""Kind: the client refuses the broker's certificate. librdkafka does not report the reason."""
TRANSIENT: Final = ("resolve", "nobody", "closed")
"""Kinds that also occur while brokers start or stop. A client with such a cause retries and is not refused."""

_ADDRESS: Final = r"(?:\w+://)?(?P<address>[^\s/]+:\d+)/\w+: "
_CLOSED_IN_HANDSHAKE: Final = r"connecting to a PLAINTEXT broker listener"
_CLOSED_AT_ONCE: Final = r"/bootstrap: Disconnected.*\(after \d{1,3}ms in state UP\)"
_CLOSED_BEFORE: Final = r"Disconnected.*in state (?:APIVERSION|CONNECT|SSL|AUTH)|terminated during authentication"
_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern, re.DOTALL | re.IGNORECASE))
    for kind, pattern in (
        ("mechanism", r"unsupported sasl mechanism: broker's supported mechanisms: (?P<offered>[\w,-]*)"),
        ("mechanism", r"not enabled in the server, enabled mechanisms are \[(?P<offered>[^\]]*)\]"),
        ("no_sasl", r"mechanism handshake failed: Broker: Request not valid in current SASL state"),
        ("no_sasl", r"IllegalSaslState|unexpected request.*during SASL handshake"),
        ("token", r"failed to acquire SASL OAUTHBEARER token|sasl\.oauthbearer\.token\.endpoint\.url"),
        ("token", r"org\.apache\.kafka\.common\.security\.oauthbearer\.|javax\.security\.auth\.login\.LoginException"),
        ("credentials", r"SASL authentication error|SaslAuthenticationException"),
        ("credentials", r"due to invalid credentials with SASL mechanism"),
        ("expired", r"CertificateExpiredException|certificate has expired(?! \(client\))"),
        ("host", r"no subject alternative (?:DNS )?names? |no name matching \S+ found"),
        ("host", r"certificate verify failed: (?:hostname|IP address) mismatch"),
        (UNTRUSTED, r"certificate verify failed|PKIX path|unable to find valid certification path"),
        ("plaintext", r"unrecognized SSL message|SSL routines:\w*:wrong version number"),
        ("plaintext", _CLOSED_IN_HANDSHAKE),
        ("client_expired", r"(?:alert|alert:) certificate[_ ]expired"),
        ("client_certificate", r"alert:? (?:bad[_ ]certificate|certificate|unknown[_ ]ca)"),
        ("handshake", r"alert:? handshake[_ ]failure"),
        ("topic", r"Not authorized to access topics: \[(?P<names>[^\]]*)\]"),
        ("group", r"Not authorized to access group: (?P<names>\S+)"),
        ("cluster", r"ClusterAuthorizationException"),
        ("unreadable_key", r"ssl\.key\.(?:location|pem) failed|Invalid PEM keystore"),
        ("unreadable_key_store", r"ssl\.keystore\.location(?: PKCS#12 file)?: |ssl\.keystore\.location failed"),
        ("unreadable_key_store", r"Failed to load SSL keystore|keystore password was incorrect"),
        ("resolve", r"failed to resolve '(?P<host>[^']+)'|no resolvable bootstrap urls"),
        ("nobody", r"connection refused"),
        ("sasl", _CLOSED_AT_ONCE),
        ("closed", _CLOSED_BEFORE),
    )
)
"""Kind of a refusal -> pattern of a message. The first one that fits counts: `closed` is the last, since a client that
is refused is disconnected as well."""
_CLOSED: Final = (_CLOSED_IN_HANDSHAKE, _CLOSED_AT_ONCE, _CLOSED_BEFORE)
_CERTIFICATES: Final = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
"""Options, each of which gives the client a certificate."""
_TIMES: Final = 3
"""Number of closed connections that count as a refusal. A broker also closes one or two when it stops."""


def refusal(texts: Iterable[str], options: Mapping[str, str]) -> Refusal | None:
    """Return the cause that a client's ``texts`` name; None if they name none. ``options``: the client's options, under
    librdkafka's names."""
    messages = list(texts)
    for kind, rule in _RULES:
        found = [match for match in map(rule.search, messages) if match is not None]
        if len(found) < (_TIMES if rule.pattern in _CLOSED else 1) or (kind == "sasl" and _has_sasl(options)):
            continue
        if kind == "token" and _mechanism(options) != "OAUTHBEARER":
            continue
        named = {name: value for name, value in found[0].groupdict().items() if value is not None}
        return refusal_of_kind(kind, options, **named)
    return None


def _has_sasl(options: Mapping[str, str]) -> bool:
    return options.get("security.protocol", "").upper().startswith("SASL")


def _mechanism(options: Mapping[str, str]) -> str:
    return (options.get("sasl.mechanism") or options.get("sasl.mechanisms", "")).strip().upper()


def address_in(texts: Iterable[str]) -> str | None:
    """Return ``host:port`` of the broker in the first text with an address; None if no text has one."""
    return next((match["address"] for match in map(re.compile(_ADDRESS).search, texts) if match is not None), None)


def refusal_of_kind(kind: str, options: Mapping[str, str], **named: str) -> Refusal:
    """Return the refusal, with its sentence, for one cause."""
    protocol = options.get("security.protocol", "PLAINTEXT")
    mechanism = _mechanism(options)
    has_certificate = any(name in options for name in _CERTIFICATES)
    certificate_problem, certificate_fix = (
        (
            "the broker refuses the certificate of the client",
            "set ssl.certificate.location in kafka.options to a valid certificate of a CA that the broker trusts",
        )
        if has_certificate
        else (
            "the broker requires a certificate of the client (mutual TLS)",
            (
                f"keep security.protocol {protocol}, and set ssl.certificate.location and ssl.key.location in "
                "kafka.options"
            ),
        )
    )
    user = f" of user {options['sasl.username']}" if "sasl.username" in options else ""
    protocols = "set security.protocol in kafka.options to the protocol of the listener"
    problem, fix = {
        "mechanism": (
            f"the listener does not offer SASL mechanism {mechanism} (it offers {named.get('offered') or 'none'})",
            "set sasl.mechanism in kafka.options to a mechanism that the listener offers",
        ),
        "no_sasl": (f"the listener offers no SASL, but security.protocol is {protocol}", protocols),
        "token": (
            "no token for SASL OAUTHBEARER could be obtained from sasl.oauthbearer.token.endpoint.url",
            "correct sasl.oauthbearer.client.id, client.secret and token.endpoint.url in kafka.options",
        ),
        "credentials": (
            "the broker refuses the token (SASL OAUTHBEARER)"
            if mechanism == "OAUTHBEARER"
            else f"the password{user} is wrong, or there is no such user (SASL {mechanism})",
            "correct sasl.oauthbearer.* in kafka.options"
            if mechanism == "OAUTHBEARER"
            else "correct sasl.username and sasl.password in kafka.options",
        ),
        "expired": ("the certificate of the broker has expired", "renew it on the broker"),
        "not_yet": ("the certificate of the broker is not valid yet", "check the clocks of broker and sidecar"),
        "host": (
            "the certificate of the broker does not match the host name that the client uses",
            "use the certificate's host name in kafka.bootstrap_servers and in the brokers' advertised.listeners",
        ),
        UNTRUSTED: (
            "the certificate of the broker is not trusted",
            "set ssl.ca.location in kafka.options to a file with the certificate of the CA that signed it",
        ),
        "plaintext": (f"the listener does not use TLS, but security.protocol is {protocol}", protocols),
        "tls": (f"the listener uses TLS, but security.protocol is {protocol}", protocols),
        "sasl": (f"the listener requires SASL, but security.protocol is {protocol}", protocols),
        "client_expired": (
            "the certificate of the client has expired",
            "renew the certificate that ssl.certificate.location in kafka.options names",
        ),
        "client_certificate": (certificate_problem, certificate_fix),
        "handshake": (
            f"client and broker have no common cipher or TLS version, or {certificate_problem}",
            f"check ssl.cipher.suites and ssl.enabled.protocols of the broker, or {certificate_fix}",
        ),
        "topic": missing_right("READ", f"topic {named.get('names', '')}", options),
        "group": missing_right("DESCRIBE", f"group {named.get('names', '')}", options),
        "cluster": missing_right("DESCRIBE", "the cluster", options),
        "unreadable_key": (
            "the client's key cannot be read",
            "check that ssl.key.password is the key's password, and that the file holds a key in PEM",
        ),
        "unreadable_key_store": (
            "the client's key store in ssl.keystore.location cannot be read",
            "check that ssl.keystore.password is its password, and that the file exists and is PKCS#12",
        ),
        "resolve": (f"host {named.get('host', 'of the broker')} cannot be resolved", "check kafka.bootstrap_servers"),
        "nobody": ("nothing listens on the address of the broker", "check kafka.bootstrap_servers"),
        "closed": (
            f"the broker closes every connection, perhaps because security.protocol {protocol} is wrong",
            f"if the broker is up, {protocols}",
        ),
    }[kind]
    return Refusal(kind, problem, fix)


def missing_right(right: str, resource: str, options: Mapping[str, str]) -> tuple[str, str]:
    """Return the clauses for a right that the client's user lacks, such as `READ` on `topic clicks`."""
    user = f"user {options['sasl.username']}" if "sasl.username" in options else "the sidecar's user"
    return f"the right {right} on {resource} is missing", f"grant it to {user}"
