"""One set of options for both Kafka clients: librdkafka, and the Java client with which Spark plans.

A user writes the names of either client. Those of librdkafka are recommended, since they accept PEM files throughout.
An option that both clients have under different names is translated. If there is no exact translation, the option is
refused and the error names the options to use instead: a cluster that only one client can reach cannot be verified.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

FILE_OPTIONS: Final = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.truststore.location",
    "https.ca.location",
)
"""Options that name a file."""
_Value = TypeVar("_Value", str, str | int | float | bool)

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = (*_PASSWORD_MECHANISMS, "OAUTHBEARER")
_OIDC: Final = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
"""Credentials for a token endpoint: librdkafka's name -> name in a JAAS entry."""
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_JAVA_SECURITY: Final = "org.apache.kafka.common.security."
_MODULES: Final = {
    "PLAIN": f"{_JAVA_SECURITY}plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_JAVA_SECURITY}scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_JAVA_SECURITY}scram.ScramLoginModule",
    "OAUTHBEARER": f"{_JAVA_SECURITY}oauthbearer.OAuthBearerLoginModule",
}
_TOKEN_HANDLER: Final = f"{_JAVA_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler"
_TOKEN_HANDLERS: Final = (_TOKEN_HANDLER, f"{_JAVA_SECURITY}oauthbearer.secured.OAuthBearerLoginCallbackHandler")
_LIKE_OTHERS: Final = "use sasl.mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, or mutual TLS"
_PEM_TRUST: Final = "write the CA certificates as PEM in a file and name it in ssl.ca.location"
_PEM_KEY: Final = "name PEM files in ssl.certificate.location and ssl.key.location"

_REFUSED: Final = {
    **dict.fromkeys(
        ("sasl.client.callback.handler.class", "sasl.login.class", "ssl.engine.factory.class"),
        ("it names a Java class, which the Python client cannot run", f"leave it out, and {_LIKE_OTHERS}"),
    ),
    "ssl.cipher.suites": (
        "the Python and the Java client have different names for cipher suites",
        "leave it out, and set ssl.cipher.suites on the brokers",
    ),
    "sasl.oauthbearer.config": ("only the Python client has it", "leave it out, and use sasl.oauthbearer.method oidc"),
    "enable.sasl.oauthbearer.unsecure.jwt": (
        "only the Python client has it",
        "leave it out, and use sasl.oauthbearer.method oidc",
    ),
}
"""Options that only one client supports -> the problem, and the fix."""

_OF_READING: Final = """
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes max.poll.interval.ms max.poll.records
receive.buffer.bytes session.timeout.ms heartbeat.interval.ms group.instance.id group.protocol group.remote.assignor
partition.assignment.strategy auto.commit.interval.ms allow.auto.create.topics
"""
_READING: Final = frozenset(_OF_READING.split())
"""Options for fetching records, which the sidecar's Java client does not do. librdkafka has some of these names, with
other bounds."""
_OF_JAVA: Final = """
auto.include.jmx.reporter default.api.timeout.ms exclude.internal.topics interceptor.classes key.deserializer
value.deserializer metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name security.providers
send.buffer.bytes socket.connection.setup.timeout.max.ms ssl.enabled.protocols ssl.keymanager.algorithm ssl.protocol
ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
JAVA_ONLY: Final = _READING | frozenset(_OF_JAVA.split())
"""Options of the Java client that are not passed to librdkafka."""
_OF_BOTH: Final = """
check.crcs client.dns.lookup client.id client.rack connections.max.idle.ms enable.metrics.push metadata.max.age.ms
metadata.recovery.strategy reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
retry.backoff.ms security.protocol socket.connection.setup.timeout.ms
"""
SHARED: Final = frozenset(_OF_BOTH.split())
"""Options that both clients have, with the same meaning."""


class OptionsRefused(ValueError):
    """``kafka.options`` cannot be used by both clients; ``problem`` and ``fix`` form one sentence."""

    exit_status = 2

    def __init__(self, problem: str, fix: str) -> None:
        self.problem, self.fix = problem, fix
        super().__init__(f"kafka.options: {problem}; {fix}.")


def fitting(options: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
    """Return ``options`` unchanged, for a model's field. Raises ValueError if `librdkafka_options` refuses them."""
    try:
        librdkafka_options(options)
    except OptionsRefused as error:
        raise ValueError(f"{error.problem}; {error.fix}") from None
    return options


def beside(folder: Path, options: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return ``options`` with each relative path of a file resolved against ``folder``."""
    return {
        name: str(folder / Path(str(value)).expanduser())
        if name in FILE_OPTIONS and value not in ("", "probe")
        else value
        for name, value in options.items()
    }


def librdkafka_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return the options for librdkafka. Raises OptionsRefused."""
    return {name: value for name, value in _canonical(options).items() if name not in JAVA_ONLY}


def java_options(options: Mapping[str, object], read: Callable[[str], str]) -> dict[str, str]:
    """Return the options for the Java client. ``read`` returns the text of a file. Raises OptionsRefused, and what
    ``read`` raises."""
    given = _canonical(options)
    java = {name: value for name, value in given.items() if name in SHARED or name in JAVA_ONLY}
    protocol = given.get("security.protocol", "")
    if protocol.endswith("SSL"):
        java.update(_java_tls(given, read))
    if protocol.startswith("SASL"):
        java.update(_java_sasl(given, read))
    return java


def texts_of(options: Mapping[str, object]) -> dict[str, str]:
    """Return the values as texts that the clients accept."""
    return {n: str(v).lower() if isinstance(v, bool) else str(v) for n, v in options.items()}


def _canonical(options: Mapping[str, object]) -> dict[str, str]:
    """Return the checked options under librdkafka's names. Options that only the Java client has keep their names."""
    given = texts_of(options)
    for name, (problem, fix) in _REFUSED.items():
        if name in given:
            raise OptionsRefused(f"{name}: {problem}", fix)
    _rename(given, "sasl.mechanisms", "sasl.mechanism")
    for name in ("security.protocol", "sasl.mechanism"):
        if name in given:
            given[name] = given[name].strip().upper()
    protocol = given.get("security.protocol", "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise OptionsRefused("security.protocol is not a protocol of Kafka", f"use one of {', '.join(_PROTOCOLS)}")
    _from_trust_store(given)
    _from_key_store(given)
    _from_jaas(given)
    _check_tls(given)
    if protocol.startswith("SASL"):
        _check_sasl(given)
    return given


def _rename(given: dict[str, str], name: str, other: str) -> None:
    """Move the value of ``name`` to ``other``, its name in librdkafka. Raises OptionsRefused if the two differ."""
    if name in given:
        value = given.pop(name)
        if given.get(other, value) != value:
            raise OptionsRefused(f"{name} and {other} name one option, but have different values", "leave one out")
        given[other] = value


def _from_trust_store(given: dict[str, str]) -> None:
    kind = given.pop("ssl.truststore.type", None)
    named = [name for name in ("ssl.truststore.location", "ssl.truststore.certificates") if name in given]
    if named and (kind or "JKS").upper() != "PEM":
        problem = f"{named[0]}: the Python client reads no trust store of type {(kind or 'JKS').upper()}"
        raise OptionsRefused(problem, _PEM_TRUST)
    if "ssl.truststore.password" in given:
        raise OptionsRefused("ssl.truststore.password: a trust store of type PEM has no password", "leave it out")
    _rename(given, "ssl.truststore.location", "ssl.ca.location")
    _rename(given, "ssl.truststore.certificates", "ssl.ca.pem")


def _from_key_store(given: dict[str, str]) -> None:
    kind = given.pop("ssl.keystore.type", "PKCS12").upper()
    if kind == "PEM":
        if "ssl.keystore.password" in given:
            fix = "use ssl.key.password for an encrypted key"
            raise OptionsRefused("ssl.keystore.password: a key store of type PEM has no password", fix)
        if "ssl.keystore.location" in given:
            # One file contains both the certificate and the key, and each reader skips the other part.
            given["ssl.key.location"] = given["ssl.keystore.location"]
            _rename(given, "ssl.keystore.location", "ssl.certificate.location")
    elif kind != "PKCS12":
        raise OptionsRefused(f"ssl.keystore.type: the Python client reads no key store of type {kind}", _PEM_KEY)
    _rename(given, "ssl.keystore.certificate.chain", "ssl.certificate.pem")
    _rename(given, "ssl.keystore.key", "ssl.key.pem")


def _check_tls(given: dict[str, str]) -> None:
    verification = given.pop("enable.ssl.certificate.verification", "true").lower()
    if verification not in ("true", "1", "t"):
        raise OptionsRefused(
            "enable.ssl.certificate.verification: the Java client always verifies certificates",
            "leave it out and name the CA in ssl.ca.location; if only the host name does not match, also set "
            "ssl.endpoint.identification.algorithm to none",
        )
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        given["ssl.endpoint.identification.algorithm"] = algorithm = algorithm.lower() or "none"
        if algorithm not in ("https", "none"):
            raise OptionsRefused("ssl.endpoint.identification.algorithm has an unknown value", "use https or none")
    for first, second in (
        ("ssl.ca.location", "ssl.ca.pem"),
        ("ssl.certificate.location", "ssl.certificate.pem"),
        ("ssl.key.location", "ssl.key.pem"),
        ("ssl.keystore.location", "ssl.certificate.location"),
        ("ssl.keystore.location", "ssl.certificate.pem"),
    ):
        if first in given and second in given:
            raise OptionsRefused(f"{first} and {second} exclude each other", "leave one out")
    has_certificate = "ssl.certificate.location" in given or "ssl.certificate.pem" in given
    has_key = "ssl.key.location" in given or "ssl.key.pem" in given
    if has_certificate and not has_key:
        raise OptionsRefused("a certificate of the client needs its key", "add ssl.key.location")
    if has_key and not has_certificate:
        raise OptionsRefused("a key of the client needs its certificate", "add ssl.certificate.location")
    if given.get("ssl.certificate.pem", "").count("-----BEGIN CERTIFICATE-----") > 1:
        raise OptionsRefused(
            "ssl.certificate.pem: the Python client sends only the first certificate in it",
            "write the chain to a file and name it in ssl.certificate.location",
        )


def _from_jaas(given: dict[str, str]) -> None:
    handler = given.pop("sasl.login.callback.handler.class", None)
    if handler is not None and handler not in _TOKEN_HANDLERS:
        problem = "sasl.login.callback.handler.class: it names a Java class, which the Python client cannot run"
        raise OptionsRefused(problem, f"leave it out, and {_LIKE_OTHERS}")
    if handler is not None:
        given.setdefault("sasl.oauthbearer.method", "oidc")
    text = given.pop("sasl.jaas.config", None)
    if text is None:
        return
    module, entry = _jaas_entry(text)
    if module not in _MODULES.values():
        raise OptionsRefused(f"sasl.jaas.config: the Python client has no equivalent of {module}", _LIKE_OTHERS)
    if module == _MODULES["OAUTHBEARER"]:
        names = {jaas: name for name, jaas in _OIDC.items()}
        extensions = [f"{n.removeprefix('extension_')}={v}" for n, v in entry.items() if n.startswith("extension_")]
        entry = {n: v for n, v in entry.items() if not n.startswith("extension_")}
        if extensions:
            given.setdefault("sasl.oauthbearer.extensions", ",".join(extensions))
    else:
        names = {"username": "sasl.username", "password": "sasl.password"}
    for jaas, value in entry.items():
        if jaas not in names:
            raise OptionsRefused(f"sasl.jaas.config: the Python client has no equivalent of {jaas}", _LIKE_OTHERS)
        name = names[jaas]
        if given.setdefault(name, value) != value:
            raise OptionsRefused(f"{name} and {jaas} of sasl.jaas.config differ", "leave one out")


_JAAS_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\\n])*)"|'((?:\\.|[^'\\\n])*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _jaas_entry(text: str) -> tuple[str, dict[str, str]]:
    """Return login module and options of a JAAS entry in Kafka's syntax: ``MODULE required NAME="VALUE" ...;``."""
    tokens: list[tuple[bool, str]] = []  # (whether the token is a sign, its text)
    at = 0
    stripped = text.strip()
    while at < len(stripped):
        match = _JAAS_TOKEN.match(stripped, at)
        if match is None:
            raise _unreadable_jaas()
        quoted = match[1] if match[1] is not None else match[2]
        tokens.append((match[4] is not None, _unescaped(quoted) if quoted is not None else match[3] or match[4]))
        at = match.end()
    if len(tokens) < 3 or tokens[-1] != (True, ";") or any(is_sign for is_sign, _ in tokens[:2]):
        raise _unreadable_jaas()
    body = tokens[2:-1]
    entry = {}
    for name, sign, value in zip(body[::3], body[1::3], body[2::3], strict=False):
        if name[0] or sign != (True, "=") or value[0]:
            raise _unreadable_jaas()
        entry[name[1]] = value[1]
    if len(body) % 3:
        raise _unreadable_jaas()
    return tokens[0][1], entry


def _unreadable_jaas() -> OptionsRefused:
    fix = 'write it as `MODULE required NAME="VALUE" ...;`, or use sasl.username and sasl.password'
    return OptionsRefused("sasl.jaas.config cannot be read", fix)


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(one, text)


def _check_sasl(given: dict[str, str]) -> None:
    mechanism = given.get("sasl.mechanism")
    if mechanism not in _MECHANISMS:
        problem = (
            "sasl.mechanism is missing"
            if mechanism is None
            else f"the Python and Java clients do not both support SASL {mechanism}"
        )
        raise OptionsRefused(problem, f"set sasl.mechanism to one of {', '.join(_MECHANISMS)}")
    needed = ["sasl.username", "sasl.password"]
    if mechanism == "OAUTHBEARER":
        needed = ["sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret", _ENDPOINT]
        _check_oidc(given)
    for name in needed:
        if not given.get(name):
            raise OptionsRefused(f"SASL {mechanism} needs {name}, which is missing", "add it")


def _check_oidc(given: dict[str, str]) -> None:
    if given.get("sasl.oauthbearer.method", "").lower() != "oidc":
        problem = "sasl.oauthbearer.method: only oidc works in both the Python and the Java client"
        fix = "set it to oidc, and set sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and " + _ENDPOINT
        raise OptionsRefused(problem, fix)
    known = {*_OIDC, _ENDPOINT, "sasl.oauthbearer.method", "sasl.oauthbearer.extensions"}
    for name in given:
        if name.startswith("sasl.oauthbearer.") and name not in known and name not in JAVA_ONLY:
            raise OptionsRefused(f"{name}: the Python and Java clients do not both have it", "leave it out")


def _java_tls(given: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    java: dict[str, str] = {}
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    java.update(_trust("ssl.ca", given, read))
    if "ssl.keystore.location" in given:
        java |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": given["ssl.keystore.location"]}
        java["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
    chain, key = (_text(given, name, read) for name in ("ssl.certificate", "ssl.key"))
    if chain is not None and key is not None:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----" in key
        if not encrypted and "-----BEGIN PRIVATE KEY-----" not in key:
            fix = "convert it with `openssl pkcs8 -topk8` and name the new file"
            raise OptionsRefused("ssl.key.location: the Java client reads keys in PKCS#8 only", fix)
        if encrypted:
            if not given.get("ssl.key.password"):
                raise OptionsRefused("ssl.key.location: the key is encrypted", "add ssl.key.password")
            java["ssl.key.password"] = given["ssl.key.password"]
    return java


def _trust(name: str, given: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """Return the CA certificates of ``name`` (``ssl.ca``, ``https.ca``) as a trust store; without any, Java's own is
    used."""
    location, text = given.get(f"{name}.location"), given.get(f"{name}.pem")
    if location is not None and location != "probe":
        # The file is named, not embedded: a bundle of all public CAs is large, and is sent to each task.
        if "-----BEGIN CERTIFICATE-----" not in read(location):
            fix = _PEM_TRUST.replace("ssl.ca", name)
            raise OptionsRefused(f"{name}.location: {location} has no certificate in PEM", fix)
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text} if text else {}


def _text(given: Mapping[str, str], name: str, read: Callable[[str], str]) -> str | None:
    location = given.get(f"{name}.location")
    return read(location) if location is not None else given.get(f"{name}.pem")


def _java_sasl(given: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    mechanism = given["sasl.mechanism"]
    java = {"sasl.mechanism": mechanism}
    if mechanism in _PASSWORD_MECHANISMS:
        entry = {"username": given["sasl.username"], "password": given["sasl.password"]}
    else:
        java |= {_ENDPOINT: given[_ENDPOINT], "sasl.login.callback.handler.class": _TOKEN_HANDLER}
        entry = {jaas: given[name] for name, jaas in _OIDC.items() if name in given}
        for extension in filter(None, given.get("sasl.oauthbearer.extensions", "").split(",")):
            name, _, value = extension.partition("=")
            entry[f"extension_{name.strip()}"] = value.strip()
        # The entry contains the endpoint's own CA. Without one, Java's default trust store applies.
        entry |= _trust("https.ca", given, read)
    shown = "".join(f' {name}="{_escaped(value)}"' for name, value in entry.items())
    java["sasl.jaas.config"] = f"{_MODULES[mechanism]} required{shown};"
    return java


def _escaped(value: str) -> str:
    value = value.replace("\\", "\\\\").replace('"', '\\"')
    return value.replace("\n", "\\n").replace("\r", "\\r")
