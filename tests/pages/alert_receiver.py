"""A pager for tests: it accepts an Alertmanager's webhook messages, and keeps their alerts."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """One alert of one message. ``receiver`` is the path of the POST request."""

    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels["alertname"]


@dataclass
class Receiver:
    """An HTTP server on a free port. ``heard`` has all alerts in order of arrival."""

    heard: list[Received] = field(default_factory=list)

    def __enter__(self) -> Self:
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver = self.path.strip("/")
                heard.extend(
                    Received(receiver, alert["status"], alert["labels"], alert["annotations"])
                    for alert in message["alerts"]
                )
                self.send_response(HTTPStatus.NO_CONTENT)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name in the base class
                """Log nothing: ``heard`` has the alerts."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="alert-receiver")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Base URL of the webhooks, without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"
