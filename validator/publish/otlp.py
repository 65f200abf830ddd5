"""Sends what `/metrics` shows to an OpenTelemetry collector. No decision depends on it, and it delays no batch."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from validator import __version__
from validator.config.model import Otlp
from validator.model.terminal import plain
from validator.publish.catalogue import CATALOGUE, PREFIX
from validator.publish.samples import Samples

_REQUEST_SECONDS: Final = 5.0
"""Longest time of a request, with the repeats of the exporter."""
_REFUSED: Final = "metrics.otlp: the endpoint does not accept the metrics; check its address and headers"
_NO_START: Final = 0
"""Totals continue over restarts: with the start of the process as theirs, each restart would count all events again."""


class OtlpSender:
    """Sends ``samples()`` regularly in a thread of its own, and once more at the end. None: there are none yet.

    Raises ModuleNotFoundError without the packages of the extra `otlp`.
    """

    def __init__(
        self, place: Otlp, names: tuple[str, str], samples: Callable[[], Samples | None], say: Callable[[str], None]
    ) -> None:
        """``names``: of the pipeline, and of this sidecar among others."""
        self._place, self._names, self._samples, self._say = place, names, samples, say
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # its lines can contain a header
        http = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        headers = {name: value.get_secret_value() for name, value in place.headers.items()}
        self._exporter = http.OTLPMetricExporter(place.endpoint, headers=headers, timeout=_REQUEST_SECONDS)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamproof-otlp", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send the newest samples, and end: within `_REQUEST_SECONDS`, also if the collector does not answer."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_REQUEST_SECONDS)

    def _run(self) -> None:
        fails = ending = False
        while not ending:
            ending = self._ended.wait(self._place.interval_us / 1e6)
            samples = self._samples()
            # A collector that did not answer would only delay the end.
            if samples is not None and not (ending and fails):
                failed = not self._is_sent(samples)
                if failed is not fails:
                    self._say(_REFUSED if failed else "metrics.otlp: the endpoint accepts the metrics now")
                fails = failed

    def _is_sent(self, samples: Samples) -> bool:
        try:
            return bool(self._exporter.export(data_of(samples, *self._names, time.time_ns())).name == "SUCCESS")
        except Exception:  # noqa: BLE001 - whatever it is, its text may contain a header, and the next request may succeed
            return False


def data_of(samples: Samples, pipeline: str, instance: str, now_ns: int) -> Any:
    """The samples as data of OpenTelemetry, under the names of `/metrics`. One that is not measured (NaN) is absent."""
    sdk: Any = import_module("opentelemetry.sdk.metrics.export")
    resource = import_module("opentelemetry.sdk.resources").Resource.create(
        {"service.name": "streamproof", "service.version": __version__, "service.instance.id": instance}
    )
    scope = import_module("opentelemetry.sdk.util.instrumentation").InstrumentationScope("streamproof", __version__)
    metrics = []
    for entry in CATALOGUE:
        names = ("pipeline", *(label.name for label in entry.labels))
        points = [
            sdk.NumberDataPoint(_attributes(names, pipeline, labels), _NO_START, now_ns, float(value))
            for labels, value in samples.plain.get(entry.name, {}).items()
            if not math.isnan(value)
        ] + [
            sdk.HistogramDataPoint(
                *(_attributes(names, pipeline, labels), _NO_START, now_ns),
                *(sum(one.counts), one.sum_seconds, one.counts, one.bounds, None, one.max_seconds),
            )
            for labels, one in samples.histograms.get(entry.name, {}).items()
        ]
        if points:
            metrics.append(sdk.Metric(PREFIX + entry.name, entry.help, "", _of_kind(sdk, entry.kind, points)))
    return sdk.MetricsData([sdk.ResourceMetrics(resource, [sdk.ScopeMetrics(scope, metrics, "")], "")])


def _of_kind(sdk: Any, kind: str, points: list[Any]) -> Any:
    if kind == "gauge":
        return sdk.Gauge(points)
    cumulative = sdk.AggregationTemporality.CUMULATIVE
    return sdk.Histogram(points, cumulative) if kind == "histogram" else sdk.Sum(points, cumulative, is_monotonic=True)


def _attributes(names: tuple[str, ...], pipeline: str, labels: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(names, map(plain, (pipeline, *labels)), strict=True))
