"""The HTTP server beside a pipeline: status page, metrics, health, report. Reads only; stdlib only."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The page is one file: nothing may be loaded from elsewhere, and nothing may frame it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
JSON: Final = "application/json; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
EVENTS: Final = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """What a route may look at: the first value of each query parameter, and the header `Accept`."""

    query: Mapping[str, str]
    accept: str


@dataclass(frozen=True)
class Answer:
    """What a route answers."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """``value`` as a JSON answer."""
    return Answer((json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode(), JSON, status)


@dataclass(frozen=True)
class Stream:
    """An answer that goes on until ``chunks`` end, the reader leaves, or the server stops."""

    chunks: Iterator[bytes]
    content_type: str = EVENTS


Route = Callable[[Request], Answer | Stream]


class Server:
    """Serves ``routes`` (path -> function) on one address, each request in a thread of its own."""

    def __init__(self, address: str, port: int, routes: Mapping[str, Route]) -> None:
        """Bind the port (0: a free one). Raises OSError if the address cannot be had."""
        self._http = _Http((address, port), _handler(routes))
        # Looks for the end ten times a second; requests are answered at once.
        serve = partial(self._http.serve_forever, poll_interval=0.1)
        self._thread = threading.Thread(target=serve, name="streamproof-http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._http.server_address[1])

    def start(self) -> None:
        """Answer requests from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening, free the port and let no connection ask again; does nothing the second time."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self._http.hear_no_more()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    # A stuck reader must not hold up the end of the sidecar.
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._connected: set[Any] = set()
        self._guard = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, and remember the connection."""
        with self._guard:
            self._connected.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection has ended."""
        with self._guard:
            self._connected.discard(request)
        super().shutdown_request(request)

    def hear_no_more(self) -> None:
        """End what a reader keeps alive to ask again, and nothing that is being answered."""
        with self._guard:
            for request in self._connected:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RD)

    def handle_error(self, request: object, client_address: object) -> None:
        """Write a traceback, but for a reader who went away: a scraper's patience is no trouble of ours."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # passed on as it came


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "streamproof"
        sys_version = ""
        timeout = 30  # seconds without a byte, after which a connection is closed

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def _answer(self) -> None:
            try:
                url = urlsplit(self.path)
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
                return
            route = routes.get(url.path)
            answer: Answer | Stream
            if route is None:
                known = ", ".join(sorted(routes))
                answer = Answer(f"There is nothing here; see {known}.\n".encode(), TEXT, HTTPStatus.NOT_FOUND)
            else:
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                answer = route(Request(query, self.headers.get("Accept", "")))
            if isinstance(answer, Stream):
                # The second is for a proxy in between, which would hold back events to fill a buffer.
                self._head(HTTPStatus.OK, answer.content_type, ("Connection", "close"), ("X-Accel-Buffering", "no"))
                if self.command != "HEAD":
                    self._stream(answer.chunks)
                return
            self._head(answer.status, answer.content_type, ("Content-Length", str(len(answer.body))))
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def _head(self, status: HTTPStatus, content_type: str, *more: tuple[str, str]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            for name, value in (*more, *HEADERS.items()):
                self.send_header(name, value)
            self.end_headers()

        def _stream(self, chunks: Iterator[bytes]) -> None:
            # A reader who went away, or who takes nothing for `timeout`, ends its own stream and nothing else.
            with contextlib.suppress(ConnectionError, TimeoutError):
                for chunk in chunks:
                    self.wfile.write(chunk)
            if isinstance(chunks, Generator):
                chunks.close()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            """A scrape a second is no news."""

    return Handler
