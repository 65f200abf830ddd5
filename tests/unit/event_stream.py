"""A listener to the event stream of the status page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from validator.publish.publisher import Publisher


@contextmanager
def listening(publisher: Publisher) -> Iterator[HTTPResponse]:
    connection = HTTPConnection("127.0.0.1", publisher.start().port, timeout=10)
    try:
        connection.request("GET", "/events")
        response = connection.getresponse()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield response
    finally:
        connection.close()
        publisher.stop()


def next_event(response: HTTPResponse) -> tuple[str, dict[str, Any]]:
    """Name and data of the next event."""
    name = ""
    for line in response:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            return name, json.loads(text.removeprefix("data: "))
    raise AssertionError("the stream ended")
