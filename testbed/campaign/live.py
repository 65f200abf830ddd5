"""What a running campaign serves to Prometheus: the samples and the engine's counters of the current run, and the
metrics of its sidecar. Series end with their run.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.campaign import counters
from testbed.campaign.matrix import Run
from testbed.campaign.sampler import Sample

PREFIX: Final = "streamproof_campaign_"
_ADDRESS: Final = "127.0.0.1"
_ANSWER_SECONDS_MAX: Final = 2.0
_NOW: Final = ("memory_bytes", "heap_bytes", "lag_events")
"""Measures of a sample that are values at its instant. The others are those since the sample before, which add up."""
_SINCE: Final = tuple(one.name for one in fields(Sample) if one.name not in ("time_us", "process", *_NOW))
_OF_RUN: Final = ("engine", "workload", "guarantee", "fault", "setting")
_Key = tuple[str, str]
_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)


class LiveMetrics(Collector):
    """The measures of the current run; none between two runs. It is safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._run: Run | None = None
        self._sidecar: Callable[[], str | None] = lambda: None
        self._now: dict[_Key, float] = {}
        self._since: dict[_Key, float] = {}
        self._counters: dict[str, dict[_Key, float]] = {}

    @contextmanager
    def of(self, run: Run) -> Iterator[None]:
        """Serve the measures of ``run`` inside the `with` block."""
        with self._lock:
            self._run = run
        try:
            yield
        finally:
            with self._lock:
                self._forget()

    def ask(self, sidecar: Callable[[], str | None]) -> None:
        """Also serve the metrics of a sidecar. ``sidecar``: the address of its port, None until it is known."""
        with self._lock:
            self._sidecar = sidecar

    def add(self, samples: Sequence[Sample]) -> None:
        """Serve the samples of a second. A process without one has ended."""
        now: dict[_Key, float] = {}
        with self._lock:
            for sample in samples:
                for name in _NOW:
                    if (value := getattr(sample, name)) is not None:
                        now[name, sample.process] = value
                for name in _SINCE:
                    if (value := getattr(sample, name)) is not None:
                        key = name, sample.process
                        self._since[key] = self._since.get(key, 0.0) + value
            self._now = now

    def count(self, source: str, rows: Sequence[counters.Row]) -> None:
        """Serve the counters of a source, such as the engine, instead of its earlier ones."""
        with self._lock:
            self._counters[source] = {(part, name): value for _, part, name, value in rows}

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each measure."""
        with self._lock:
            run = self._run
            now, since = dict(self._now), dict(self._since)
            counted = [one for of in self._counters.values() for one in of.items()]
        if run is None:
            return
        of_run = [str(getattr(run.cell, name)) for name in _OF_RUN]
        info = GaugeMetricFamily(f"{PREFIX}run", "The current run.", labels=["pipeline", *_OF_RUN])
        info.add_metric([run.name, *of_run], 1)
        yield info
        for name in _NOW:
            text = f"{name} of a process group, or of the engine's inputs."
            yield _filled(GaugeMetricFamily(PREFIX + name, text, labels=["pipeline", "process"]), run.name, name, now)
        for name in _SINCE:
            text = f"{name} of a process group, or of the engine's inputs, since the begin of the load."
            yield _filled(
                CounterMetricFamily(PREFIX + name, text, labels=["pipeline", "process"]), run.name, name, since
            )
        # Flink's totals begin again at a restart, and some values are no totals: the type is left to the reader.
        own = GaugeMetricFamily(f"{PREFIX}engine", "What the engine counts.", labels=["pipeline", "part", "name"])
        for (part, name), value in counted:
            own.add_metric([run.name, part, name], value)
        yield own

    def sidecars(self) -> bytes:
        """The metrics of the run's sidecar; nothing before it serves them."""
        with self._lock:
            sidecar = self._sidecar
        try:
            if (url := sidecar()) is None:
                return b""
            with urllib.request.urlopen(f"{url}metrics", timeout=_ANSWER_SECONDS_MAX) as answer:  # noqa: S310
                return bytes(answer.read())
        except (OSError, HTTPException, ValueError):
            return b""  # it starts, ends, or is busy


def _filled(family: _Family, pipeline: str, name: str, values: dict[_Key, float]) -> _Family:
    for (measure, process), value in values.items():
        if measure == name:
            family.add_metric([pipeline, process], value)
    return family


class LiveServer:
    """A context manager that serves ``/metrics`` at a port of this machine."""

    def __init__(self, live: LiveMetrics, port: int) -> None:
        """``port`` 0: a free one. Raises OSError if the port cannot be used."""
        registry = CollectorRegistry()
        registry.register(live)

        class Handler(BaseHTTPRequestHandler):
            """Answers scrapes."""

            def do_GET(self) -> None:
                """Answer a scrape."""
                known = self.path.partition("?")[0] == "/metrics"
                body = generate_latest(registry) + live.sidecars() if known else b"see /metrics\n"
                self.send_response(HTTPStatus.OK if known else HTTPStatus.NOT_FOUND)
                self.send_header("Content-Type", CONTENT_TYPE_LATEST if known else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - that of the base class
                """Log nothing."""

        self._server = ThreadingHTTPServer((_ADDRESS, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        """The address of the metrics."""
        return f"http://{_ADDRESS}:{self._server.server_address[1]}/metrics"

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
