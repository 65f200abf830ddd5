"""The sidecar's HTTP server: status page, metrics, health, report. Read-only; standard library only.

One thread handles all connections, and a few others make the answers. A client that sends slowly, or nothing, occupies
a socket until the deadline. A connection beyond the limit replaces another one, in the order of
`_Connection.eviction_key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import socket
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from time import monotonic
from typing import Final
from urllib.parse import parse_qs, urlsplit

from validator.model.terminal import plain_json
from validator.publish.access import CHALLENGE, Access, AccessError

CONNECTIONS_MAX: Final = 256
"""Largest number of open connections, including listeners to events (`feed.LISTENERS_MAX`)."""
THREADS: Final = 4
"""Number of threads that make answers."""
HEAD_SECONDS: Final = 5.0
"""Longest time from the opening of a connection to its first byte, and from the first byte of a request to the end of
its headers and body."""
KEEP_ALIVE_SECONDS: Final = 90.0
"""Longest silence of a connection between two requests. By default Prometheus scrapes once a minute and keeps the
connection."""
ANSWER_SECONDS: Final = 30.0
"""Longest time that a reader may take to receive a whole answer, or a piece of a stream."""
STOP_SECONDS: Final = 2.0
"""Time for answers in progress when the server stops."""
HEAD_BYTES: Final = 16 * 1024
BODY_BYTES: Final = 64 * 1024
"""Largest body of a request. It is read and ignored."""
PIECE_BYTES: Final = 64 * 1024
"""Largest buffer for a slow reader, in addition to the answer itself. Over TLS, asyncio buffers up to 128 KiB more."""

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CLOSED_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The content security policy of answers that are not pages: nothing is loaded, and nothing may frame them."""
JSON: Final = "application/json; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream; charset=utf-8"
METHODS: Final = ("GET", "HEAD")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True)
class Request:
    """The part of a request that a route gets: the first value of each query parameter, and the header `Accept`."""

    query: Mapping[str, str]
    accept: str


@dataclass(frozen=True)
class Answer:
    """The answer of a route."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """Return ``value`` as a JSON answer."""
    return Answer((plain_json(value) + "\n").encode(), JSON, status)


@dataclass(frozen=True)
class Stream:
    """An answer that lasts until ``chunks`` end, the reader disconnects, or the server stops."""

    chunks: AsyncGenerator[bytes]
    content_type: str = EVENTS


Route = Callable[[Request], Answer | Stream]


class Server:
    """Serves ``routes`` (path -> function that runs in a thread) on one address."""

    def __init__(self, address: str, port: int, routes: Mapping[str, Route], access: Access) -> None:
        """Bind the port (0: a free one). Raises OSError if the address cannot be bound."""
        self._socket = _listening(address, port)
        self._routes = routes
        self._access = access
        self._connections: set[_Connection] = set()
        self._running = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="streamproof-http", daemon=True)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Start answering requests."""
        self._thread.start()
        self._running.wait()

    def stop(self) -> None:
        """Stop listening, free the port and accept no further request. A second call does nothing."""
        if self._thread.is_alive() and self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended just now
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="streamproof-http"))
        accepting = asyncio.create_task(self._accept())
        self._running.set()
        await self._stopping.wait()
        accepting.cancel()
        for connection in [connection for connection in self._connections if not connection.answering]:
            connection.abort()
        if self._connections:
            await asyncio.wait(
                [connection.task for connection in self._connections if connection.task], timeout=STOP_SECONDS
            )
        for connection in list(self._connections):
            connection.abort()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(self._socket)
            except OSError:
                # The client has disconnected, or the process has no free descriptor until a connection closes.
                await asyncio.sleep(0.05)
                continue
            if len(self._connections) >= CONNECTIONS_MAX:
                longest = min(self._connections, key=_Connection.eviction_key)
                self._connections.discard(longest)
                longest.abort()
            connection = _Connection(client)
            self._connections.add(connection)
            connection.task = asyncio.create_task(self._serve_connection(connection))
            connection.task.add_done_callback(partial(self._on_closed, connection))
            await asyncio.sleep(0)  # a queue of connections must not delay the accepted ones

    def _on_closed(self, connection: _Connection, done: asyncio.Task[None]) -> None:
        self._connections.discard(connection)
        connection.close()
        error = None if done.cancelled() else done.exception()
        # A reader that disconnected, or a timeout of either side, is not an error of the server.
        if error is not None and not isinstance(error, OSError | TimeoutError | EOFError):
            traceback.print_exception(error, file=sys.stderr)

    async def _serve_connection(self, connection: _Connection) -> None:
        """Answer one request after another on a connection."""
        async with asyncio.timeout(HEAD_SECONDS):
            reader, writer = await connection.open(self._access)
            first = await reader.read(1)
        while first:
            keep_alive = False
            try:
                async with asyncio.timeout(HEAD_SECONDS):
                    asked = await _read_request(reader, first)
                    connection.has_sent_request = True
                answer = await self._answer(asked)
                keep_alive = asked.keep_alive and not isinstance(answer, Stream)
                head_only = asked.method == "HEAD"
            except RequestRefused as refused:
                answer, head_only = refused.answer, False
            connection.answering = True
            await _write(writer, answer, head_only=head_only, keep_alive=keep_alive)
            connection.mark_idle()
            if not keep_alive or (self._stopping is not None and self._stopping.is_set()):
                break
            async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                first = await reader.read(1)
        async with asyncio.timeout(HEAD_SECONDS):
            writer.close()
            await writer.wait_closed()

    async def _answer(self, asked: _ParsedRequest) -> Answer | Stream:
        if asked.method not in METHODS:
            said = "This server accepts only GET and HEAD.\n"
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, said, {"Allow": ", ".join(METHODS)})
        if not self._access.accepts_host(asked.host):
            said = "This host name is not accepted; add it to metrics.allowed_hosts.\n"
            raise RequestRefused(HTTPStatus.MISDIRECTED_REQUEST, said)
        try:
            admitted = self._access.admits(asked.path, asked.authorization)
        except AccessError:
            said = "metrics.authorization.credentials_file is not usable; `streamproof doctor` prints the reason.\n"
            raise RequestRefused(HTTPStatus.SERVICE_UNAVAILABLE, said) from None
        if not admitted:
            said = "This path requires the token of metrics.authorization.\n"
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, said, {"WWW-Authenticate": CHALLENGE})
        route = self._routes.get(asked.path)
        if route is None:
            known = ", ".join(sorted(self._routes))
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"This path does not exist; see {known}.\n")
        return await asyncio.to_thread(route, Request(asked.query, asked.accept))


def _listening(address: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address, port))
        listener.listen(1024)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class RequestRefused(Exception):
    """A request that no route answers. Its connection ends with the refusal."""

    def __init__(self, status: HTTPStatus, said: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(said)
        self.answer = Answer(said.encode(), TEXT, status, headers or {})


class _Connection:
    """One connection, from its acceptance to its end."""

    def __init__(self, client: socket.socket) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._opening = False
        self.task: asyncio.Task[None] | None = None
        self.has_sent_request = False
        self.mark_idle()

    def mark_idle(self) -> None:
        """Note that no request is being answered now."""
        self.answering = False
        self._since = monotonic()

    def eviction_key(self) -> tuple[bool, bool, float]:
        """Return the sort key of eviction: first connections without a request, then idle ones, then those that are
        being answered; within each, the longest wait first."""
        return self.answering, self.has_sent_request, self._since

    def abort(self) -> None:
        """End the connection at once."""
        if self.task is not None:
            self.task.cancel()
        self.close()

    def close(self) -> None:
        """Free the socket, even if data is left to be sent."""
        if self._transport is not None:
            self._transport.abort()
        elif not self._opening:
            self._client.close()

    async def open(self, access: Access) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return reader and writer, after the TLS handshake if there is one."""
        loop, encryption = asyncio.get_running_loop(), access.encryption()
        reader = asyncio.StreamReader(limit=HEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        limits = {} if encryption is None else {"ssl_handshake_timeout": HEAD_SECONDS, "ssl_shutdown_timeout": 1.0}
        self._client.setblocking(False)
        self._opening = True  # from now on asyncio closes the socket, also if this is cancelled
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, self._client, ssl=encryption, **limits)
        # `drain` then waits until nothing is buffered, so a slow reader holds at most one piece here.
        # With 0, asyncio's TLS transport counts an empty buffer as full, and `drain` may never return.
        transport.set_write_buffer_limits(high=1)
        self._transport = transport
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


@dataclass(frozen=True)
class _ParsedRequest:
    """A request whose head and body were read."""

    method: str
    host: str
    path: str
    query: Mapping[str, str]
    accept: str
    authorization: str
    keep_alive: bool


async def _read_request(reader: asyncio.StreamReader, first: bytes) -> _ParsedRequest:
    """Read the next request, whose first byte was read already (RFC 9112). Raises RequestRefused."""
    try:
        head = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too long.\n") from None
    line, *lines = head.decode("latin-1").lstrip("\r\n").removesuffix("\r\n\r\n").split("\r\n")
    asked = line.split(" ")
    if len(asked) != 3 or asked[2] not in ("HTTP/1.1", "HTTP/1.0") or not _TOKEN.fullmatch(asked[0]):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "This is not an HTTP/1.1 request.\n")
    headers: dict[str, str] = {}
    for text in lines:
        name, colon, value = text.partition(":")
        name = name.lower()
        # Servers in a chain differ in how they read a repeated or folded header, or one with a space before its colon.
        is_whole = colon and _TOKEN.fullmatch(name) and not _ENDS_A_LINE.search(value)
        if not is_whole or (name in headers and name in _NOT_REPEATABLE):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "A header is malformed or repeated.\n")
        headers[name] = value.strip(" \t")
    await _read_body(reader, headers)
    method, target, version = asked
    try:
        url = urlsplit(target)
    except ValueError:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "The path cannot be read.\n") from None
    if version == "HTTP/1.1" and "host" not in headers:
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "The header Host is missing.\n")
    connection = headers.get("connection", "").lower()
    return _ParsedRequest(
        method=method,
        host=url.netloc or headers.get("host", "localhost"),
        path=url.path,
        query={name: values[0] for name, values in parse_qs(url.query).items()},
        accept=headers.get("accept", ""),
        authorization=headers.get("authorization", ""),
        keep_alive="close" not in connection if version == "HTTP/1.1" else "keep-alive" in connection,
    )


_ENDS_A_LINE: Final = re.compile("[\r\n\0]")
"""What another server may read as the end of a header (RFC 9110, 5.5)."""
_NOT_REPEATABLE: Final = frozenset({"host", "content-length", "transfer-encoding", "authorization"})


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> None:
    """Read a body to its end, so that it cannot be read as the next request. Raises RequestRefused."""
    if "transfer-encoding" in headers:
        raise RequestRefused(
            HTTPStatus.LENGTH_REQUIRED, "A body with Transfer-Encoding is not accepted; send it with Content-Length.\n"
        )
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "The length of the body cannot be read.\n")
    if int(length) > BODY_BYTES:
        raise RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {BODY_BYTES} bytes.\n")
    await reader.readexactly(int(length))


async def _write(writer: asyncio.StreamWriter, answer: Answer | Stream, *, head_only: bool, keep_alive: bool) -> None:
    status = answer.status if isinstance(answer, Answer) else HTTPStatus.OK
    headers = {"Content-Type": answer.content_type, **HEADERS}
    if isinstance(answer, Stream):
        headers |= {"Content-Security-Policy": CLOSED_POLICY, "Connection": "close"}
        # A proxy in between would hold back events to fill a buffer.
        headers["X-Accel-Buffering"] = "no"
    else:
        policy = page_policy(answer.body) if answer.content_type == HTML else CLOSED_POLICY
        headers |= {"Content-Length": str(len(answer.body)), "Content-Security-Policy": policy, **answer.headers}
        headers |= {} if keep_alive else {"Connection": "close"}
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    async with asyncio.timeout(ANSWER_SECONDS):
        writer.write(head.encode("latin-1"))
        if isinstance(answer, Answer) and not head_only:
            body = memoryview(answer.body)
            for start in range(0, len(body), PIECE_BYTES):
                writer.write(body[start : start + PIECE_BYTES])
                await writer.drain()
        await writer.drain()
    if isinstance(answer, Stream):
        async with contextlib.aclosing(answer.chunks) as chunks:
            if not head_only:
                async for chunk in chunks:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        writer.write(chunk)
                        await writer.drain()


@lru_cache(maxsize=4)
def page_policy(page: bytes) -> str:
    """Return the content security policy of a page in one file: only its own scripts and styles are allowed."""
    allowed = {}
    for tag in ("script", "style"):
        parts = re.findall(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), page, re.DOTALL)
        hashes = [f"'sha256-{b64encode(hashlib.sha256(part).digest()).decode()}'" for part in parts]
        allowed[tag] = " ".join(hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
