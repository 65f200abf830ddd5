"""`metrics.otlp` sends what `/metrics` shows, again and again and at the end, with its headers."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.publish_snapshots import broken, config
from validator.cli.exits import sentence_of, status_of
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Authorization, Metrics, Otlp
from validator.publish import otlp
from validator.publish.access import AccessError
from validator.publish.publisher import EndpointError, Publisher
from validator.settings.errors import ConfigError
from validator.stream.sidecar import Sidecar

pytestmark = pytest.mark.unit
SECRET = "planted-key"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Collector:
    """A collector that keeps the metrics it gets, and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[str | None] = []
        self.got: list[Any] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.headers.append(self.headers["api-key"])
                outer.got.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(outer.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def place(self, interval: str) -> Otlp:
        address = f"http://127.0.0.1:{self.server.server_port}/v1/metrics"
        return Otlp.model_validate({"endpoint": address, "interval": interval, "headers": {"api-key": SECRET}})


@pytest.fixture
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")
    found = Collector()
    yield found
    found.server.shutdown()
    found.server.server_close()


def published(state: Path, place: Otlp, say: Callable[[str], None] = print, **more: Any) -> Publisher:
    metrics = Metrics(**{"port": 0, "otlp": place, **more})
    return Publisher(config(state).model_copy(update={"metrics": metrics}), state, say=say)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def series_of(request: Any) -> Series:
    """The series of a request, under the names that a scrape has."""
    found: Series = {}
    [resource] = request.resource_metrics
    [scope] = resource.scope_metrics
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        assert kind == "gauge" or getattr(metric, kind).aggregation_temporality == 2, "cumulative"
        for point in getattr(metric, kind).data_points:
            labels = {(one.key, one.value.string_value) for one in point.attributes}
            assert point.time_unix_nano > 0
            if kind == "histogram":
                edges = [*(f"{bound:g}" for bound in point.explicit_bounds), "+Inf"]
                for edge, count in zip(edges, accumulate(point.bucket_counts), strict=True):
                    found[f"{metric.name}_bucket", frozenset({*labels, ("le", edge)})] = count
                found[f"{metric.name}_count", frozenset(labels)] = point.count
                found[f"{metric.name}_sum", frozenset(labels)] = point.sum
            else:
                assert kind == "gauge" or metric.sum.is_monotonic
                found[metric.name, frozenset(labels)] = point.as_double
    return found


def scraped(url: str) -> Series:
    with urlopen(f"{url}metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.value == sample.value
    }


def test_the_collector_gets_every_sample_of_a_scrape_with_its_value(collector: Collector, tmp_path: Path) -> None:
    publisher = published(tmp_path, collector.place("1h"))
    url = publisher.start().url
    publisher.publish(broken())
    shown = scraped(url)
    publisher.stop()
    [request] = collector.got
    assert series_of(request) == shown
    assert len(shown) > 200
    assert collector.headers == [SECRET]
    about = {one.key: one.value.string_value for one in request.resource_metrics[0].resource.attributes}
    assert about["service.name"] == "streamproof"


def test_samples_are_sent_regularly_and_a_refusal_is_said_once(collector: Collector, tmp_path: Path) -> None:
    said: list[str] = []
    publisher = published(tmp_path, collector.place("50ms"), said.append)
    publisher.start()
    until(lambda: len(collector.got) > 2)
    collector.status = 400
    until(lambda: bool(said))
    refused = len(collector.got)
    until(lambda: len(collector.got) > refused + 2)
    collector.status = 200
    until(lambda: len(said) > 1)
    publisher.stop()
    assert ["does not accept" in line for line in said] == [True, False]


def test_an_exporter_that_raises_is_asked_again_and_its_error_is_in_no_line(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    publisher = published(tmp_path, collector.place("20ms"), said.append)
    publisher.start()
    assert publisher._otlp is not None
    with monkeypatch.context() as broken_exporter:
        broken_exporter.setattr(type(publisher._otlp._exporter), "export", raising)
        until(lambda: bool(said))
    until(lambda: len(said) > 1)
    publisher.stop()
    assert ["does not accept" in line for line in said] == [True, False]
    assert SECRET not in f"{said}{capfd.readouterr()}"


def raising(*_: object) -> None:
    raise RuntimeError(f"api-key: {SECRET}")


@pytest.mark.parametrize("sent", [b"", b"x"], ids=["silent", "dripping"])
def test_a_collector_that_hangs_delays_the_end_by_one_request_at_most(
    sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")
    assert otlp._REQUEST_SECONDS <= 5
    monkeypatch.setattr(otlp, "_REQUEST_SECONDS", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        hung = threading.Thread(target=hang, args=(server, sent, ended), daemon=True)
        hung.start()
        endpoint = f"http://127.0.0.1:{server.getsockname()[1]}/v1/metrics"
        publisher = published(tmp_path, Otlp.model_validate({"endpoint": endpoint, "interval": "1h"}))
        publisher.start()
        publisher.publish(broken())
        began = time.monotonic()
        publisher.stop()
        seconds = time.monotonic() - began
        ended.set()
        hung.join()
    assert 0.4 < seconds < 4


def hang(server: socket.socket, sent: bytes, ended: threading.Event) -> None:
    """Accept one request, and answer it with ``sent`` again and again: no header ever ends."""
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: " if sent else b"")
        while not ended.wait(0.02):
            connection.sendall(sent)


def test_no_thread_stays_where_the_port_cannot_be_used_and_a_run_with_once_sends_without_one(
    collector: Collector, tmp_path: Path
) -> None:
    absent = Authorization.model_validate({"credentials_file": str(tmp_path / "absent")})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for more, refusal in (({"port": port}, EndpointError), ({"authorization": absent}, AccessError)):
            with pytest.raises(refusal):
                published(tmp_path, collector.place("1h"), **more).start()
        assert not [one for one in threading.enumerate() if one.name == "streamproof-otlp"]
        publisher = published(tmp_path, collector.place("1h"), port=port)
        assert Sidecar(publisher._config, once=True)._served(publisher).startswith("without a status page")
        publisher.publish(broken())
        publisher.stop()
    [request] = collector.got
    assert len(series_of(request)) > 200


def test_a_header_that_cannot_be_sent_is_in_no_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otlp is not installed")
    said: list[str] = []
    place = Otlp.model_validate({"endpoint": "http://127.0.0.1:1/", "headers": {"api-key": f"{SECRET}\n"}})
    publisher = published(tmp_path, place, said.append)
    publisher.start()
    publisher.stop()
    assert len(said) == 1
    assert SECRET not in f"{said}{capfd.readouterr()}"


def test_nothing_is_sent_until_the_totals_are_restored(collector: Collector, tmp_path: Path) -> None:
    first = published(tmp_path, collector.place("1h"))
    first.start()
    first.publish(broken())
    first.stop()
    again = published(tmp_path, collector.place("20ms"))
    again.start()
    time.sleep(0.3)  # an input of this test: fifteen intervals
    again.stop()
    assert len(collector.got) == 1, "zeros would look like a reset of the counters"


def test_without_the_packages_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ModuleNotFoundError) as lacks:
        published(tmp_path, Otlp(endpoint="http://127.0.0.1:1/v1/metrics")).start()
    assert (status_of(lacks.value), "streamproof[otlp]" in sentence_of(lacks.value)) == (2, True)


@pytest.mark.parametrize(
    "otlp",
    ["{}", "{endpoint: host}", "{endpoint: 'http://u:planted@h/'}", "{endpoint: 'http://h', headers: {a: [planted]}}"],
)
def test_a_place_that_cannot_be_sent_to_is_refused_without_its_secrets(otlp: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(EXAMPLES["clickstream"], "/", [f"metrics.otlp={otlp}"], environment={})
    assert "metrics.otlp" in str(refused.value)
    assert "planted" not in str(refused.value)


def test_the_variables_of_headers_are_withheld_from_child_processes() -> None:
    otlp = "{endpoint: 'http://h/v1/metrics', headers: {api-key: '${OTLP_KEY}'}}"
    text = EXAMPLES["clickstream"].replace("metrics: {", f"metrics: {{otlp: {otlp}, ")
    loaded = loads(text, "/", environment={"OTLP_KEY": SECRET})
    assert "OTLP_KEY" in loaded.secret_variables
    assert SECRET not in repr(loaded)
