"""Clients of the pipeline's cluster: their options, and the reasons for which the cluster refuses them."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError

from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused, java_options, librdkafka_options
from validator.model.kafka_refusals import UNTRUSTED, ClientMessages, Refusal, address_in, refusal, refusal_of_kind

ClientOptions = dict[str, Any]
_Client = TypeVar("_Client")
_PROBE_SECONDS: Final = 3.0
_PBES2: Final = ("PBES2", "1.2.840.113549.1.5.13")
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
"""DER tags in a certificate."""
_DECRYPT: Final = 2
"""Java's `Cipher.DECRYPT_MODE`."""
_BY_VERIFICATION: Final = {9: "not_yet", 10: "expired", 62: "host", 64: "host"}
"""OpenSSL's verification error -> kind of refusal. With any other error the certificate is not trusted."""


def for_librdkafka(config: Config, ours: Mapping[str, Any]) -> ClientOptions:
    """Options of a librdkafka client for the cluster of ``config``; ``ours`` take precedence. Raises OptionsRefused."""
    options = {"client.id": "streamproof", **librdkafka_options(config.kafka.options)}
    return {**options, "bootstrap.servers": config.kafka.bootstrap_servers, **ours}


def for_java(config: Config, java: Any = None) -> dict[str, str]:
    """Options of a Java client for the cluster of ``config``. Raises OptionsRefused, also for an unreadable file.

    ``java``: the py4j view of the client's JVM. Without it an encrypted key is left as it is: the options are then only
    checked.
    """
    options = java_options(config.kafka.options, _read)
    if java is not None and "ssl.key.password" in options:
        # The PEM reader of Kafka's client does not support keys encrypted by OpenSSL (PBES2), but Java does.
        password = options.pop("ssl.key.password")
        options["ssl.keystore.key"] = _decrypted(java, options["ssl.keystore.key"], password)
    return {**options, "bootstrap.servers": config.kafka.bootstrap_servers}


def _decrypted(java: Any, key: str, password: str) -> str:
    """Decrypt a PKCS#8 key in PEM format. Raises OptionsRefused."""
    try:
        body = key.partition("-----BEGIN ENCRYPTED PRIVATE KEY-----")[2].partition("-----END")[0]
        info = java.javax.crypto.EncryptedPrivateKeyInfo(bytearray(base64.b64decode(body)))
        parameters, algorithm = info.getAlgParameters(), str(info.getAlgName())
        if algorithm in _PBES2:
            algorithm = str(parameters.toString())
        writer = java.java.io.CharArrayWriter()
        writer.write(password)
        secret = java.javax.crypto.SecretKeyFactory.getInstance(algorithm).generateSecret(
            java.javax.crypto.spec.PBEKeySpec(writer.toCharArray())
        )
        cipher = java.javax.crypto.Cipher.getInstance(algorithm)
        cipher.init(_DECRYPT, secret, parameters)
        clear = base64.encodebytes(bytes(info.getKeySpec(cipher).getEncoded())).decode()
    except (Py4JJavaError, ValueError) as error:
        del error  # its stack trace may contain the password
        problem = "ssl.key.location: the Java client cannot decrypt the key with ssl.key.password"
        raise OptionsRefused(problem, "correct the password, or convert the key with `openssl pkcs8 -topk8`") from None
    return f"-----BEGIN PRIVATE KEY-----\n{clear}-----END PRIVATE KEY-----\n"


def made(client: Callable[[ClientOptions], _Client], options: ClientOptions) -> _Client:
    """A librdkafka client. Raises OptionsRefused if the client rejects its options."""
    try:
        return client(options)
    except KafkaException as error:
        message = error.args[0].str()
        found = refusal([message], {})
        if found is not None:
            raise OptionsRefused(found.problem, found.fix) from None
        # The client's message is not passed on: it may contain the option's value, which may be a secret.
        name = next((name for name in options if f'"{name}"' in message or f"{name} failed" in message), None)
        if name is not None and "No such configuration property" in message:
            raise OptionsRefused(f"{name} is not an option of Kafka's clients", "correct or remove it") from None
        problem = f"the Python client refuses {name or 'the options'}"
        raise OptionsRefused(problem, "correct the value, or the file that it names") from None


def _read(location: str) -> str:
    try:
        return Path(location).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OptionsRefused(f"{location} cannot be read ({error.strerror})", "name a readable PEM file") from None


def why_refused(config: Config, client_messages: ClientMessages) -> Refusal | None:
    """Why the cluster refuses a librdkafka client, from its log lines ``client_messages``; None if they do not show it.

    librdkafka has one text for all problems with a broker's certificate, and none for a listener that closes the
    connection. In these cases a TLS handshake with that broker determines the reason.
    """
    options = librdkafka_options(config.kafka.options)
    found = refined(refusal(client_messages.texts, options), options)
    if found is not None and found.kind in (UNTRUSTED, "closed"):
        servers = config.kafka.bootstrap_servers.split(",")
        kind = _probed(address_in(client_messages.texts) or servers[0].strip(), options)
        if kind is not None and not (kind == "tls" and options.get("security.protocol", "").endswith("SSL")):
            return refusal_of_kind(kind, options)
    return found


def refined(found: Refusal | None, options: Mapping[str, str]) -> Refusal | None:
    """``found``, or the refusal of an expired client certificate, which a broker's TLS alert does not show."""
    if found is not None and found.kind in ("client_certificate", "handshake") and _has_expired(options):
        return refusal_of_kind("client_expired", options)
    return found


def _has_expired(options: Mapping[str, str]) -> bool:
    text = options.get("ssl.certificate.pem", "")
    if "ssl.certificate.location" in options:
        text = _read(options["ssl.certificate.location"])
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    if begin not in text:
        return False
    der = ssl.PEM_cert_to_DER_cert(begin + text.partition(begin)[2].partition(end)[0] + end)
    certificate = _Der(der).inside().inside()
    if certificate.tag == _VERSION:
        certificate = certificate.next()
    after = certificate.next().next().next().inside().next()  # past serial number, algorithm, issuer; past notBefore
    expiry = after.content.decode("ascii")
    if after.tag == _UTC_TIME:
        expiry = ("19" if expiry >= "5" else "20") + expiry
    return datetime.strptime(expiry, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC) < datetime.now(UTC)


@dataclass(frozen=True)
class _Der:
    """A DER element: the first one in ``rest``."""

    rest: bytes

    @property
    def tag(self) -> int:
        return self.rest[0]

    @property
    def _bounds(self) -> tuple[int, int]:
        length, start = self.rest[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(self.rest[2:start])
        return start, start + length

    @property
    def content(self) -> bytes:
        start, end = self._bounds
        return self.rest[start:end]

    def inside(self) -> _Der:
        """The first element within this one."""
        return _Der(self.content)

    def next(self) -> _Der:
        """The element after this one."""
        return _Der(self.rest[self._bounds[1] :])


def _probed(address: str, options: dict[str, str]) -> str | None:
    """Attempt a TLS handshake with a broker.

    Returns `tls` if the broker speaks TLS, the kind of refusal if the client uses TLS and cannot verify the broker's
    certificate, or None if the handshake fails.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        context = ssl.create_default_context(cadata=options.get("ssl.ca.pem"), cafile=_ca_file(options))
    except OSError:
        return None
    context.check_hostname = options.get("ssl.endpoint.identification.algorithm") != "none"
    try:
        with (
            socket.create_connection((host, int(port)), _PROBE_SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return "tls"
    except ssl.SSLCertVerificationError as error:
        if not options.get("security.protocol", "").endswith("SSL"):
            return "tls"
        return _BY_VERIFICATION.get(error.verify_code, UNTRUSTED)
    except (ValueError, OSError):
        return None


def _ca_file(options: dict[str, str]) -> str | None:
    location = options.get("ssl.ca.location")
    return None if location == "probe" else location
