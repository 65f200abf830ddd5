"""The server beside a pipeline, over real HTTP on a free port."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from setuptools import find_namespace_packages

from tests.unit.publish_snapshots import broken, clean, config
from validator.config.model import Metrics
from validator.publish import canary, next_steps
from validator.publish.access import Access
from validator.publish.publisher import READY_SECONDS, Endpoint, EndpointError, Publisher
from validator.publish.report import write
from validator.publish.runbook_pages import runbook_names
from validator.publish.server import HTML, TEXT, Answer, Request, Route, Server

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
OPEN = Access(Metrics(), print)
"""The default access to a port."""


class Clock:
    """A clock in seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Served:
    """A publisher with its HTTP server."""

    def __init__(self, state: Path) -> None:
        self.clock = Clock()
        self.publisher = Publisher(config(state), state, self.clock)
        self.endpoint = self.publisher.start()

    def get(self, path: str, method: str = "GET", accept: str = "*/*") -> tuple[HTTPResponse, str]:
        connection = HTTPConnection("127.0.0.1", self.endpoint.port, timeout=10)
        try:
            connection.request(method, path, headers={"Accept": accept})
            response = connection.getresponse()
            return response, response.read().decode()
        finally:
            connection.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    one = Served(tmp_path / "state")
    yield one
    one.publisher.stop()


def test_a_free_port_is_reported_and_recorded(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    endpoint = publisher.start()
    written = json.loads((tmp_path / "endpoint.json").read_text())
    assert endpoint.port > 0
    assert (written["port"], written["url"]) == (endpoint.port, endpoint.url)
    publisher.stop()
    assert not (tmp_path / "endpoint.json").exists()


def test_a_new_state_has_metrics_before_its_first_batch(served: Served) -> None:
    response, body = served.get("/metrics")
    assert response.status == 200
    assert {f.name for f in text_string_to_metric_families(body)} >= {"streamproof_events", "streamproof_build_info"}
    assert served.get("/healthz")[0].status == 200
    for path in ("/readyz", "/report.json", "/violations.json"):
        assert served.get(path)[0].status == 503, path


def test_every_runbook_is_a_page_beside_the_status_page(served: Served) -> None:
    written = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert set(runbook_names()) == written
    for name in written:
        response, body = served.get(f"/runbooks/{name}")
        assert (response.status, response.headers["Content-Type"]) == (200, HTML)
        assert f"<h1>{name}</h1>" in body
        assert "<h2>What to do</h2>" in body
        assert "](" not in body
        linked = re.findall('<a href="([^"]+)"', body)
        assert set(linked) - {"../"} <= written
    assert served.get("/runbooks/StreamproofNoSuch")[0].status == 404
    assert {next_steps.RUNBOOK, canary.RUNBOOK} <= {f"runbooks/{name}" for name in written}


def test_the_runbooks_are_data_of_the_package() -> None:
    # `find_namespace_packages` also finds folders without modules, and follows the link to docs/runbooks.
    assert "validator.publish.runbooks" in find_namespace_packages(str(ROOT), include=["validator*"])


def test_openmetrics_is_served_on_request(served: Served) -> None:
    response, body = served.get("/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_published_files_are_served(served: Served) -> None:
    report = served.publisher.publish(broken())
    assert json.loads(served.get("/report.json")[1]) == report
    assert 'streamproof_contributions{class="missing",pipeline="clickstream"} 3.0' in served.get("/metrics")[1]
    assert [v["id"] for v in json.loads(served.get("/violations.json")[1])["violations"]] == ["v-2", "v-1"]


def test_violations_after_a_time_are_those_that_changed_later(served: Served) -> None:
    served.publisher.publish(broken())
    newer = json.loads(served.get("/violations.json?after=2026-01-31T11:59:59.000000Z")[1])
    assert [v["id"] for v in newer["violations"]] == ["v-2"]
    assert json.loads(served.get("/violations.json?after=2026-01-31T12:00:00Z")[1])["violations"] == []
    assert served.get("/violations.json?after=2026-01-31T12:59:59+01:00")[0].status == 200
    refused, body = served.get("/violations.json?after=yesterday")
    assert refused.status == 400
    assert "is not a time" in json.loads(body)["error"]


def test_readiness_requires_a_batch_within_half_a_minute(served: Served) -> None:
    served.publisher.publish(clean())
    served.clock.now += READY_SECONDS
    assert served.get("/readyz")[0].status == 200
    served.clock.now += 1
    assert served.get("/readyz")[0].status == 503
    served.publisher.publish(clean())
    assert served.get("/readyz")[0].status == 200


def test_the_verdict_is_a_status_a_line_and_json(tmp_path: Path) -> None:
    one = Served(tmp_path)
    try:
        response, body = one.get("/verdict")
        assert (response.status, body) == (503, "unknown: no batch was committed since the sidecar started.\n")
        one.publisher.publish(clean())
        response, body = one.get("/verdict")
        assert (response.status, response.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
        assert body == ("pass: Pipeline clickstream keeps its exactly-once guarantee. As of 2026-01-31 12:00:00 UTC.\n")
        one.publisher.publish(broken())
        response, body = one.get("/verdict", accept="application/json")
        found = json.loads(body)
        assert (response.status, found["verdict"], found["guarantee"]) == (503, "fail", "exactly_once")
        assert found["text"].startswith("fail: Pipeline clickstream breaks its exactly-once guarantee. 3 events were")
        one.publisher.publish(clean())
    finally:
        one.publisher.stop()
    for snapshot, verdict in ((clean(), "unknown"), (broken(), "fail")):
        # A pass of an earlier process says nothing about now; a violation that it confirmed stands.
        write(tmp_path, snapshot)
        again = Served(tmp_path)
        try:
            response, body = again.get("/verdict")
            assert (response.status, body.partition(":")[0]) == (503, verdict)
        finally:
            again.publisher.stop()


def test_after_a_restart_the_old_report_is_served_and_no_counter_falls_to_zero(tmp_path: Path) -> None:
    first = Publisher(config(tmp_path), tmp_path)
    first.publish(broken())
    again = Served(tmp_path)
    try:
        assert json.loads(again.get("/report.json")[1])["outcome"] == "fail"
        assert len(json.loads(again.get("/violations.json")[1])["violations"]) == 2
        assert again.get("/metrics")[0].status == 503
        again.publisher.publish(broken())
        assert again.get("/metrics")[0].status == 200
    finally:
        again.publisher.stop()


def test_the_page_is_one_file_that_may_load_nothing(served: Served) -> None:
    response, body = served.get("/")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert 'new EventSource("events")' in body
    assert not re.search(r"/\*(STYLE|UPLOT|PLOTS|PAGE)\*/", body)


def test_head_has_no_body_and_an_unknown_path_lists_the_pages(served: Served) -> None:
    response, body = served.get("/metrics", method="HEAD")
    assert (response.status, body) == (200, "")
    assert int(response.headers["Content-Length"]) > 0
    response, body = served.get("/nothing")
    assert response.status == 404
    assert "/report.json" in body
    refused, _ = served.get("/metrics", method="POST")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_a_port_in_use_is_an_error(served: Served, tmp_path: Path) -> None:
    busy = config(tmp_path).model_copy(
        update={"metrics": config(tmp_path).metrics.model_copy(update={"port": served.endpoint.port})}
    )
    with pytest.raises(EndpointError, match=r"in use\); .* set metrics\.port"):
        Publisher(busy, tmp_path).start()


def test_all_addresses_are_reached_through_this_machine() -> None:
    assert Endpoint("0.0.0.0", 80).url == "http://127.0.0.1:80/"


def test_a_connection_that_is_kept_alive_ends_with_the_server() -> None:
    """Otherwise a scraper would keep reading the last values of a sidecar that has ended."""
    server = Server("127.0.0.1", 0, {"/": lambda _: Answer(b"here", TEXT)}, OPEN)
    server.start()
    kept = HTTPConnection("127.0.0.1", server.port, timeout=10)
    kept.connect()
    for _ in range(2):
        kept.request("GET", "/")
        assert kept.getresponse().read() == b"here"
    assert kept.sock is not None
    server.stop()
    assert kept.sock.recv(1) == b""
    kept.close()


def test_a_closed_connection_is_not_logged_and_an_error_of_a_route_is(capfd: pytest.CaptureFixture[str]) -> None:
    asked, gone, done = threading.Event(), threading.Event(), threading.Event()

    def slow_route(_: Request) -> Answer:
        asked.set()
        gone.wait(10)
        return Answer(bytes(5_000_000), TEXT)

    def broken_route(_: Request) -> Answer:
        done.set()
        raise LookupError("ours")

    routes: dict[str, Route] = {"/slow": slow_route, "/broken": broken_route}
    one = Server("127.0.0.1", 0, routes, OPEN)
    one.start()
    try:
        with socket.create_connection(("127.0.0.1", one.port)) as scraper:
            scraper.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
            assert asked.wait(10)
            # Closed with a reset, so that the server's next write fails.
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        with socket.create_connection(("127.0.0.1", one.port)) as reader:
            reader.sendall(b"GET /broken HTTP/1.0\r\n\r\n")
            assert done.wait(10)
            assert reader.recv(100) == b""
    finally:
        one.stop()
    said = capfd.readouterr().err
    assert "LookupError: ours" in said
    assert "Broken pipe" not in said
    assert "ConnectionResetError" not in said
