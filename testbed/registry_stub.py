"""A schema registry on a port of this process: the requests that the sidecar makes, and ways to fail."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryStub:
    """A registry with the schemas that it is given. ``schemas``: id or GUID -> schema. ``subjects``: subject -> schema
    of its version 1. ``is_away``: it answers with an error. ``wanted``: the `Authorization` header that it wants."""

    def __init__(self, wanted: str | None = None) -> None:
        self.schemas: dict[int | str, dict[str, Any]] = {}
        self.subjects: dict[str, dict[str, Any]] = {}
        self.is_away = False
        self.wanted = wanted
        self.asked: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub.asked.append(self.path)
                status, found = stub.answer(self.path, self.headers.get("Authorization"))
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str, authorization: str | None) -> tuple[int, object]:
        """The status and the content for a request."""
        if self.is_away:
            return 503, {"error_code": 50301}
        if authorization != self.wanted:
            return 401, {"error_code": 40101}
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number]:
                found = self.schemas.get(int(number))
            case ["schemas", "guids", guid]:
                found = self.schemas.get(guid)
            case ["subjects", subject, "versions", "1"]:
                found = self.subjects.get(subject)
            case _:
                return 404, {"error": "no such page"}
        return (404, {"error_code": 40403}) if found is None else (200, found)

    def add(self, number: int | str, schema: object, **more: Any) -> None:
        """Add the schema of an id or a GUID. ``more``: further fields of the answer, such as `schemaType`."""
        self.schemas[number] = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}

    def close(self) -> None:
        """Stop answering."""
        self.server.shutdown()
        self.server.server_close()
