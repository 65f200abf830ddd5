"""The Prometheus collector: the last snapshot's samples, with counters that never fall.

Totals are committed with the facts and restored at a start. A counter that falls looks like a reset to Prometheus,
which then counts its value a second time. After a restart `/metrics` has no samples before the first snapshot.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from validator.model.snapshot import Histogram, Snapshot
from validator.model.terminal import plain
from validator.publish.catalogue import BOUNDS_SECONDS, CATALOGUE, PREFIX
from validator.publish.catalogue import Metric as Entry
from validator.publish.samples import Labels, Samples, at_start, of

METRIC_WITH_EXEMPLARS: Final = "violations_confirmed_total"
"""The metric whose samples have a violation as exemplar."""


class SnapshotCollector(Collector):
    """Serves the values of the last :meth:`update`. It is safe to scrape from any thread.

    Totals are committed with the facts, and restored at a start. In addition, the collector shows the largest value
    that a counter or a bucket had in this process, so that none of them falls.
    """

    def __init__(self, pipeline: str, started_seconds: float = 0.0, scheme: str = "http") -> None:
        """``started_seconds``: instant at which this process began to serve, in seconds since the epoch. ``scheme``:
        that of the port."""
        self._pipeline = plain(pipeline)
        self._lock = threading.Lock()
        start = at_start(scheme)
        self._plain: dict[str, dict[Labels, float]] = {name: dict(values) for name, values in start.plain.items()}
        self._histograms: dict[str, dict[Labels, Histogram]] = {n: dict(v) for n, v in start.histograms.items()}
        self._plain["start_timestamp_seconds"] = {(): started_seconds}
        self._batches: int | None = None
        self._exemplars: Mapping[Labels, Exemplar] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Serve ``snapshot`` from the next scrape on."""
        samples = of(snapshot)
        with self._lock:
            for entry in CATALOGUE:
                if entry.kind == "histogram":
                    self._raise_histograms(entry.name, samples.histograms.get(entry.name, {}))
                else:
                    self._set_plain(entry, samples)
            if snapshot.batch_durations is None and snapshot.batches != self._batches:
                self._count_batch(snapshot.batch_seconds)
            self._batches = snapshot.batches
            self._exemplars = _exemplars(snapshot)

    def samples(self) -> Samples:
        """Return the values that a scrape would get now."""
        with self._lock:
            plain_values = {name: dict(values) for name, values in self._plain.items()}
            return Samples(plain_values, {name: dict(values) for name, values in self._histograms.items()})

    def collect(self) -> Iterator[Metric]:
        """Yield one family for each entry of the catalogue, in its order."""
        with self._lock:
            families = [self._family(entry) for entry in CATALOGUE]
        yield from families

    def _set_plain(self, entry: Entry, samples: Samples) -> None:
        values = samples.plain.get(entry.name)
        if values is None:
            return
        if entry.kind == "counter":
            shown = self._plain.setdefault(entry.name, {})
            for labels, value in values.items():
                shown[labels] = max(shown.get(labels, 0.0), value)
        else:
            self._plain[entry.name] = dict(values)

    def _raise_histograms(self, name: str, measured: Mapping[Labels, Histogram]) -> None:
        shown = self._histograms[name]
        for labels, histogram in measured.items():
            before = shown.get(labels)
            # Only an empty histogram may change its buckets: to a scraper, a removed bucket looks like a falling one.
            same = before is not None and (before.bounds == histogram.bounds or before.count)
            shown[labels] = _larger(before, histogram) if before is not None and same else histogram

    def _count_batch(self, seconds: float) -> None:
        shown = self._histograms["batch_duration_seconds"]
        before = shown[()]
        counts = list(before.counts)
        counts[bisect_left(before.bounds, seconds)] += 1
        top = seconds if before.max_seconds is None else max(before.max_seconds, seconds)
        shown[()] = Histogram(before.bounds, tuple(counts), before.sum_seconds + seconds, top)

    def _family(self, entry: Entry) -> Metric:
        names = ["pipeline", *(label.name for label in entry.labels)]
        full = PREFIX + entry.name
        if entry.kind == "histogram":
            family = HistogramMetricFamily(full, entry.help, labels=names)
            for labels, histogram in self._histograms[entry.name].items():
                edges = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
                buckets = list(zip(edges, (float(n) for n in accumulate(histogram.counts)), strict=True))
                family.add_metric([self._pipeline, *map(plain, labels)], buckets, histogram.sum_seconds)
            return family
        values = self._plain.get(entry.name, {})
        if entry.kind == "counter":
            counter = CounterMetricFamily(full, entry.help, labels=names)
            exemplars = self._exemplars if entry.name == METRIC_WITH_EXEMPLARS else {}
            for labels, value in values.items():
                counter.add_metric([self._pipeline, *map(plain, labels)], value, exemplar=exemplars.get(labels))
            return counter
        gauge = GaugeMetricFamily(full, entry.help, labels=names)
        for labels, value in values.items():
            gauge.add_metric([self._pipeline, *map(plain, labels)], value)
        return gauge


def _exemplars(snapshot: Snapshot) -> dict[Labels, Exemplar]:
    """Return (class, phase) -> the newest confirmed violation, by its id in `violations.json`.

    The id is not a label, so it adds no series. Only a scrape in OpenMetrics has exemplars.
    """
    found: dict[Labels, Exemplar] = {}
    for violation in snapshot.violations_latest:
        place = (violation.violation_class, violation.phase)
        known = found.get(place)
        seconds = violation.changed_us / 1e6
        if violation.state == "confirmed" and (known is None or float(known.timestamp or 0) < seconds):
            found[place] = Exemplar({"violation": plain(violation.id)}, violation.count, seconds)
    return found


def _larger(before: Histogram, now: Histogram) -> Histogram:
    if before.bounds != now.bounds:
        raise ValueError(f"the buckets of a measure changed from {before.bounds} to {now.bounds} while it is served")
    counts = tuple(max(a, b) for a, b in zip(before.counts, now.counts, strict=True))
    return Histogram(now.bounds, counts, max(before.sum_seconds, now.sum_seconds), now.max_seconds)


def registry(collector: SnapshotCollector) -> CollectorRegistry:
    """Return a separate registry with ``collector`` only: in tests one process may serve several pipelines."""
    own = CollectorRegistry(auto_describe=False)
    own.register(collector)
    return own


__all__ = ["BOUNDS_SECONDS", "SnapshotCollector", "registry"]
