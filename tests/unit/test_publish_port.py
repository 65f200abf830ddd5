"""The HTTP port against clients that exhaust it, read it without a token, or reach it by other names; real sockets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import shutil
import socket
import ssl
import statistics
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from testbed.certificates import Authority
from tests.unit.publish_snapshots import broken, config
from validator.config.model import Config, Metrics
from validator.publish import feed, server
from validator.publish.access import Access, AccessError
from validator.publish.publisher import Endpoint, Publisher
from validator.publish.server import TEXT, Answer, Request, Server, Stream

pytestmark = pytest.mark.unit

TOKEN = "a-token-of-24-characters"
HALF_OPEN, DRIPPING, SCRAPES = 500, 20, 40


def with_metrics(state: Path, **settings: Any) -> Config:
    plain = config(state)
    return plain.model_copy(update={"metrics": Metrics.model_validate({"port": 0, **settings})})


@contextlib.contextmanager
def serving(state: Path, **settings: Any) -> Iterator[Endpoint]:
    state.mkdir(exist_ok=True)
    publisher = Publisher(with_metrics(state, **settings), state)
    publisher.publish(broken())
    try:
        yield publisher.start()
    finally:
        publisher.stop()


def get(port: int, path: str, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None) -> HTTPResponse:
    connection = (
        HTTPConnection("127.0.0.1", port, timeout=10)
        if tls is None
        else HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
    )
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        return response


def said(port: int, request: bytes) -> bytes:
    """The response until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(tmp_path_factory.mktemp("state"), allowed_hosts=["proof.example.org", "*.svc.cluster.local"]) as one:
        yield one.port


def test_scrapes_are_answered_while_slow_clients_hold_connections(tmp_path: Path) -> None:
    dripped = threading.Event()

    async def drip(port: int) -> None:
        writers = []
        for _ in range(DRIPPING):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            writers.append(writer)
        while not dripped.is_set():
            for writer in writers:
                writer.write(b"x")
            await asyncio.sleep(0.02)
        for writer in writers:
            writer.close()

    with serving(tmp_path) as endpoint, contextlib.ExitStack() as held:
        connect = socket.create_connection
        silent = [held.enter_context(connect(("127.0.0.1", endpoint.port), timeout=10)) for _ in range(HALF_OPEN)]
        dripping = threading.Thread(target=lambda: asyncio.run(drip(endpoint.port)))
        dripping.start()
        try:
            seconds = []
            for _ in range(SCRAPES):
                begun = time.perf_counter()
                assert get(endpoint.port, "/metrics").status == 200
                seconds.append(time.perf_counter() - begun)
        finally:
            dripped.set()
            dripping.join()
        left = sum(map(is_ended, silent))
        threads = [one.name for one in threading.enumerate() if one.name.startswith("streamproof-http")]
    print(f"{SCRAPES} scrapes, median {statistics.median(seconds):.4f} s, longest {max(seconds):.4f} s; {left} ended")
    assert statistics.median(seconds) < 0.1
    assert left >= HALF_OPEN - server.CONNECTIONS_MAX
    assert len(threads) <= 1 + server.THREADS


def test_a_request_with_slow_headers_ends_at_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    with serving(tmp_path) as endpoint, socket.create_connection(("127.0.0.1", endpoint.port), timeout=10) as slow:
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
            slow.settimeout(0.02)
            while True:
                slow.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    if slow.recv(1) == b"":
                        break
        assert time.monotonic() - begun < 5


def test_a_client_that_reads_nothing_is_replaced_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 8)
    one = Server("127.0.0.1", 0, {"/": lambda _: Answer(bytes(50_000_000), TEXT)}, Access(Metrics(), print))
    one.start()
    try:
        with contextlib.ExitStack() as held:
            for _ in range(8):
                stuck = held.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=10))
                stuck.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert stuck.recv(1) == b"H"
            assert get(one.port, "/nothing").status == 404
    finally:
        one.stop()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"POST /report.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /report.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65537\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +3\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: evil@127.0.0.1\r\n\r\n", 421),
        (b"GET http://evil@127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n", 400),
        (b"GET /runbooks/../../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /runbooks/%2e%2e%2freport.json HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /runbooks/StreamproofGuaranteeViolated.md HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
    ],
)
def test_every_request_gets_its_status_and_the_security_headers(port: int, request_: bytes, status: int) -> None:
    head, _, _ = said(port, request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    for line in (b"X-Content-Type-Options: nosniff", b"frame-ancestors 'none'", b"Referrer-Policy: no-referrer",
                 b"Cache-Control: no-store", b"Connection: close", b"default-src 'none'"):  # fmt: skip
        assert line in head


def test_a_request_body_is_not_read_as_the_next_request(port: int) -> None:
    hidden = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(hidden), hidden)
    got = said(port, first + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 ") == 2
    assert b"404" not in got


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("10.1.2.3:9464", 200),
        ("[::1]:9464", 200),
        (socket.gethostname(), 200),
        ("Proof.example.org", 200),
        ("proof.example.org.", 200),
        ("proof.example.org.:9464", 200),
        ("localhost.", 200),
        ("proof.example.org..", 421),
        ("a.b.svc.cluster.local:9464", 200),
        ("svc.cluster.local.evil.example", 421),
        ("example.org", 421),
        ("evil.example.", 421),
        (".", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_only_allowed_host_names_are_served(port: int, host: str, status: int) -> None:
    assert get(port, "/report.json", {"Host": host}).status == status


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


def test_without_the_token_only_the_probes_are_answered(tmp_path: Path) -> None:
    with serving(tmp_path, authorization={"credentials": TOKEN}) as endpoint:
        for path in ("/", "/metrics", "/report.json", "/violations.json", "/events", "/history.json", "/nothing"):
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": basic("é")}, {"Authorization": TOKEN}):
                refused = get(endpoint.port, path, wrong)
                assert refused.status == 401, path
                assert (refused.headers["WWW-Authenticate"] or "").startswith("Bearer ")
        for path in ("/healthz", "/readyz"):
            assert get(endpoint.port, path).status == 200
        for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)):
            assert get(endpoint.port, "/report.json", {"Authorization": right}).status == 200


def test_a_changed_token_file_takes_effect_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with serving(tmp_path / "state", authorization={"credentials_file": str(file)}) as endpoint:
        old = {"Authorization": f"Bearer {TOKEN}"}
        assert get(endpoint.port, "/metrics", old).status == 200
        file.write_text("another-of-24-characters")
        assert get(endpoint.port, "/metrics", old).status == 401
        file.unlink()
        assert get(endpoint.port, "/metrics", old).status == 503
    with pytest.raises(AccessError, match="credentials_file"):
        Publisher(with_metrics(tmp_path, authorization={"credentials_file": str(file)}), tmp_path).start()


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command on the PATH")


@needs_openssl
def test_tls_serves_the_current_certificate_files(tmp_path: Path) -> None:
    lines: list[str] = []
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def issue(folder: str) -> ssl.SSLContext:
        (tmp_path / folder).mkdir()
        authority = Authority(tmp_path / folder)
        made = authority.issue("sidecar", address="127.0.0.1")
        for new, place in ((made.certificate, cert), (made.key, key)):
            shutil.copy(new, tmp_path / "new")
            (tmp_path / "new").replace(place)
        return ssl.create_default_context(cafile=str(authority.certificate))

    first = issue("first")
    settings = with_metrics(tmp_path, tls_server_config={"cert_file": str(cert), "key_file": str(key)})
    publisher = Publisher(settings, tmp_path / "state", say=lines.append)
    endpoint = publisher.start()
    try:
        assert endpoint.url.startswith("https://")
        assert get(endpoint.port, "/healthz", tls=first).status == 200
        metrics = get(endpoint.port, "/metrics", tls=first).body.decode()  # type: ignore[attr-defined]
        assert re.search(r'^streamproof_build_info\{.*scheme="https".*} 1\.0$', metrics, re.MULTILINE), "links need it"
        second = issue("second")
        assert get(endpoint.port, "/healthz", tls=second).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            get(endpoint.port, "/healthz", tls=first)
        key.write_text("no key")
        assert get(endpoint.port, "/healthz", tls=second).status == 200
        assert len(lines) == 1
        assert "keeps the previous certificate" in lines[0]
    finally:
        publisher.stop()


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], ssl.SSLContext]:
    """The setting `metrics.tls_server_config`, and the context of its clients."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    made = authority.issue("sidecar", address="127.0.0.1")
    files = {"cert_file": str(made.certificate), "key_file": str(made.key)}
    return files, ssl.create_default_context(cafile=str(authority.certificate))


def in_records(port: int, tls: ssl.SSLContext, request: bytes, records: int) -> ssl.SSLSocket:
    """A TLS connection that has sent ``request`` in as many records."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection = tls.wrap_socket(plain, server_hostname="127.0.0.1")
    size = -(-len(request) // records)
    for start in range(0, len(request), size):
        connection.sendall(request[start : start + size])
    return connection


@needs_openssl
@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_long_answer_over_tls_arrives_whole(issued: tuple[dict[str, str], ssl.SSLContext], records: int) -> None:
    files, tls = issued
    for size in (65_536, 65_537, 131_073, 400_000, 5_000_000):
        body = bytes(range(251)) * (size // 251) + bytes(size % 251)
        access = Access(Metrics.model_validate({"tls_server_config": files}), print)
        one = Server("127.0.0.1", 0, {"/": lambda _, body=body: Answer(body, TEXT)}, access)  # type: ignore[misc]
        one.start()
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        try:
            with in_records(one.port, tls, request, records) as reader:
                got = b"".join(iter(lambda: reader.recv(65_536), b""))
        finally:
            one.stop()
        assert got.partition(b"\r\n\r\n")[2] == body, size


@needs_openssl
@pytest.mark.parametrize("records", [1, 2, 3])
def test_events_over_tls_deliver_updates(
    tmp_path: Path, issued: tuple[dict[str, str], ssl.SSLContext], records: int
) -> None:
    files, tls = issued
    request = b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    publisher = Publisher(with_metrics(tmp_path, tls_server_config=files), tmp_path)
    publisher.publish(broken())
    try:
        with in_records(publisher.start().port, tls, request, records) as listener:
            got = b""
            for updates in (1, 2):
                while got.count(b"event: update\n") < updates:
                    got += listener.recv(65_536)
                publisher.publish(broken())
    finally:
        publisher.stop()


@needs_openssl
def test_a_reader_that_stops_reading_over_tls_fills_no_memory(
    issued: tuple[dict[str, str], ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.5)
    files, tls = issued
    most, made, ended = 100_000_000, 0, threading.Event()

    async def chunks() -> AsyncGenerator[bytes]:
        nonlocal made
        try:
            while made < most:
                made += 65_536
                yield bytes(65_536)
        finally:
            ended.set()

    def endless(_: Request) -> Stream:
        return Stream(chunks())

    access = Access(Metrics.model_validate({"tls_server_config": files}), print)
    one = Server("127.0.0.1", 0, {"/": endless}, access)
    one.start()
    try:
        with in_records(one.port, tls, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1):
            assert ended.wait(30)
    finally:
        one.stop()
    assert made < most, "the kernel buffers a few MB, and the server must buffer little more"


@needs_openssl
def test_incomplete_handshakes_free_their_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 20)
    authority = Authority(tmp_path)
    made = authority.issue("sidecar", address="127.0.0.1")
    tls = ssl.create_default_context(cafile=str(authority.certificate))
    files = {"cert_file": str(made.certificate), "key_file": str(made.key)}
    with serving(tmp_path / "state", tls_server_config=files) as endpoint, contextlib.ExitStack() as held:
        get(endpoint.port, "/healthz", tls=tls)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(100):
            half = held.enter_context(socket.create_connection(("127.0.0.1", endpoint.port), timeout=10))
            half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert get(endpoint.port, "/metrics", tls=tls).status == 200
        # The test's own 100 sockets, and the 20 that the server may keep.
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= 100 + 20


def test_listeners_to_events_have_a_limit_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LISTENERS_MAX", 3)
    with serving(tmp_path) as endpoint, contextlib.ExitStack() as held:
        for _ in range(3):
            listener = held.enter_context(socket.create_connection(("127.0.0.1", endpoint.port), timeout=10))
            listener.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            whole = b""
            while b"retry: " not in whole:
                whole += listener.recv(65_536)
        assert get(endpoint.port, "/events").status == 503
        assert get(endpoint.port, "/metrics").status == 200
