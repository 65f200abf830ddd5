"""A Grafana in a thread: the part of its HTTP API that the product uses, from its documentation and source.

It keeps what a client sends, adds what Grafana adds (numbers, versions, times), refuses what Grafana refuses, and
records every request. ``failures``: the outcome of the first requests, one each: a status, a text, `drop` (the
request), `lose` (the answer) or `hang` (until the server ends).
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

TOKEN = "secret-token"
PREFIX = "/grafana"
Answer = tuple[int, Any]


@dataclass
class FakeGrafana:
    url: str = ""
    folders: dict[str, dict[str, Any]] = field(default_factory=dict)
    dashboards: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    datasources: list[dict[str, Any]] = field(default_factory=lambda: [{"uid": "prom", "type": "prometheus"}])
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    failures: list[int | str] = field(default_factory=list)
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)
    spoiled: dict[int, int | str] = field(default_factory=dict)  # number of a request -> its failure
    keeps_alerts: bool = True  # the default since Grafana 12.0
    ended: threading.Event = field(default_factory=threading.Event)

    def changes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]

    def answer(self, method: str, path: str, body: Any) -> Answer:
        if method == "GET" and path == "/api/org":
            return 200, {"id": 7, "name": "Main Org."}
        if method == "GET" and path == "/api/datasources":
            return 200, self.datasources
        if method == "GET" and path == "/api/folders":
            return 200, list(self.folders.values())
        if method == "POST" and path == "/api/folders":
            if body["title"] in {kept["title"] for uid, kept in self.folders.items() if uid != body["uid"]}:
                return 409, {"message": "a folder with the same name already exists in the current location"}
            if body["uid"] in self.folders:
                return 412, {"message": "a folder with the same uid already exists"}
            self.folders[body["uid"]] = {**body, "id": 3, "version": 1}
            return 200, self.folders[body["uid"]]
        if method == "POST" and path == "/api/dashboards/db":
            return self._save(body)
        if path.startswith("/api/annotations"):
            return self._annotation(method, urlsplit(path), body)
        if found := re.fullmatch("/api/folders/([^/]+)", path):
            return self._found(self.folders.get(found[1]), "folder not found")
        if found := re.fullmatch("/api/dashboards/uid/([^/]+)", path):
            return self._found(self.dashboards.get(found[1]), "Dashboard not found")
        if found := re.fullmatch("/api/v1/provisioning/folder/([^/]+)/rule-groups/([^/]+)", path):
            place = (unquote(found[1]), unquote(found[2]))
            return self._put_group(place, body) if method == "PUT" else self._found(self.groups.get(place), "not found")
        return 404, {"message": "Not found"}

    def as_from_files(self) -> None:
        """Mark everything as read from Grafana's provisioning files."""
        for kept in self.dashboards.values():
            kept["meta"]["provisioned"] = True
        for group in self.groups.values():
            for rule in group["rules"]:
                rule["provenance"] = "file"

    def _found(self, what: dict[str, Any] | None, message: str) -> Answer:
        return (404, {"message": message}) if what is None else (200, what)

    def _annotation(self, method: str, url: SplitResult, body: Any) -> Answer:
        if method == "GET":
            wanted = parse_qs(url.query, strict_parsing=True)
            if wanted["type"] != ["annotation"]:
                return 400, {"message": "this test asks for no alerts"}
            tags = set(wanted["tags"])  # all of them, unless the query has matchAny
            return 200, [kept for kept in self.annotations.values() if tags <= set(kept["tags"])][:100]
        if method == "POST":
            if not body.get("text"):
                return 400, {"message": "text field should not be empty"}
            number = len(self.annotations) + 1
            # Grafana sorts tags, and adds an end to an instant.
            kept = {"timeEnd": body["time"], **body, "tags": sorted(body["tags"]), "id": number, "login": "sa"}
            self.annotations[number] = kept
            return 200, {"id": number, "message": "Annotation added"}
        number = int(url.path.rsplit("/", 1)[1])
        if number not in self.annotations:
            return 404, {"message": "Could not find annotation to update"}
        self.annotations[number] |= body
        return 200, {"message": "Annotation patched"}

    def _save(self, body: dict[str, Any]) -> Answer:
        uid = body["dashboard"]["uid"]
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        if uid in self.dashboards and self.dashboards[uid]["meta"].get("provisioned"):
            return 400, {"message": "Cannot save provisioned dashboard"}
        if uid in self.dashboards and not body["overwrite"]:
            return 412, {"message": "A dashboard with the same uid already exists", "status": "version-mismatch"}
        version = self.dashboards[uid]["dashboard"]["version"] + 1 if uid in self.dashboards else 1
        kept = {**copy.deepcopy(body["dashboard"]), "id": 10 + len(self.dashboards), "version": version}
        self.dashboards[uid] = {"dashboard": kept, "meta": {"folderUid": body["folderUid"]}}
        return 200, {"uid": uid, "status": "success", "version": version}

    def _put_group(self, place: tuple[str, str], body: dict[str, Any]) -> Answer:
        if place[0] not in self.folders:
            return 404, {"message": "folder does not exist"}
        if any(rule["provenance"] == "file" for rule in self.groups.get(place, {}).get("rules", ())):
            return 409, {"message": "cannot update with provided provenance '', needs 'file'"}
        kept = copy.deepcopy(body)
        for number, rule in enumerate(kept["rules"]):
            if not rule["data"] or rule["condition"] not in {step["refId"] for step in rule["data"]}:
                return 400, {"message": f"invalid alert rule {rule['title']}"}
            if not re.fullmatch("[A-Za-z0-9_-]{1,40}", rule["uid"]):
                return 400, {"message": f"invalid uid {rule['uid']}"}
            rule |= {"id": number + 1, "updated": "2026-01-31T12:00:00Z", "provenance": ""}
            if self.keeps_alerts:
                rule.setdefault("keep_firing_for", "0s")
            else:
                rule.pop("keep_firing_for", None)
        self.groups[place] = kept
        return 200, kept


def _handler(fake: FakeGrafana) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            path = self.path.removeprefix(PREFIX)
            fake.requests.append((self.command, path))
            fake.headers.append(dict(self.headers))
            spoiled = fake.spoiled.pop(len(fake.requests) - 1, None)
            if spoiled is not None or fake.failures:
                failure = fake.failures.pop(0) if spoiled is None else spoiled
                if failure == "lose":
                    fake.answer(self.command, path, body)
                if failure == "hang":
                    fake.ended.wait()
                if failure in {"drop", "lose", "hang"}:
                    self.close_connection = True
                    return
                if failure == 204:
                    self._send(204, b"")
                    return
                if isinstance(failure, str):
                    self._send(200, failure.encode())
                    return
                self._send(failure, json.dumps({"message": "no message for this"}).encode())
            elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._send(401, b'{"message": "Invalid API key"}')
            else:
                status, answered = fake.answer(self.command, path, body)
                self._send(status, json.dumps(answered).encode())

        do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - the base class's names

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if status in {301, 302}:
                self.send_header("Location", "/login")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    return Handler


@contextmanager
def running() -> Iterator[FakeGrafana]:
    fake = FakeGrafana()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    fake.url = f"http://127.0.0.1:{server.server_port}{PREFIX}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
