"""The publisher, which the sidecar calls after each commit: report files, metrics and status page from a snapshot.

publisher = Publisher(config, config.state.path)
publisher.start()
publisher.publish(snapshot)   # after every commit; the first time with the restored totals
publisher.stop()
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

from prometheus_client.exposition import choose_encoder

from validator.config.model import Config, Publish
from validator.model.snapshot import Snapshot
from validator.model.terminal import plain, plain_values
from validator.publish import series, server
from validator.publish.access import Access
from validator.publish.atomic import replace_file
from validator.publish.canary import CanaryStatus, canary_status
from validator.publish.effective import effective_guarantee, effective_lines, effective_settings
from validator.publish.feed import Feed, event
from validator.publish.findings import findings
from validator.publish.frontiers import Frontiers, for_update, no_partitions
from validator.publish.history import HISTORY_FILE, read
from validator.publish.live_page import live_page
from validator.publish.metrics import SnapshotCollector, registry
from validator.publish.next_steps import RUNBOOK
from validator.publish.otlp import OtlpSender
from validator.publish.published_files import DAMAGED, Say, json_of, not_shown, violations_of
from validator.publish.redaction import Redaction
from validator.publish.report import (
    REPORT_FILE,
    VIOLATIONS_FILE,
    build_violations,
    records_of,
    render_json,
    report_of,
    write,
)
from validator.publish.report_types import Report, ViolationsReport
from validator.publish.runbook_pages import runbook_names, runbook_page, runbook_place
from validator.publish.samples import Samples
from validator.publish.sentences import headline, outstanding, verdict_line
from validator.publish.server import Answer, Request, Route, Server, Stream, json_answer
from validator.publish.times import parse_rfc3339

READY_SECONDS: Final = 30.0
"""Largest age of the last batch of a ready sidecar. Time advances with a tick, so there are batches without traffic,
too."""
HISTORY_EVERY_SECONDS: Final = 10.0
"""Interval at which `history.json` is written. If the process is killed, the plots lack at most this much time."""
NEWEST_POINTS: Final = 5
"""Number of points that an update repeats: a slow listener only gets the last update, and must not miss a point."""
ENDPOINT_FILE: Final = "endpoint.json"


@dataclass(frozen=True)
class Endpoint:
    """Address, port and scheme of the sidecar's server."""

    address: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """URL of the status page, as reached from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(self.address, self.address)  # noqa: S104
        return f"{self.scheme}://{host}:{self.port}/"


class EndpointError(Exception):
    """The sidecar cannot listen on the configured address and port."""

    exit_status = 2

    def __init__(self, address: str, port: int, reason: str) -> None:
        self.reason = f"port {port} on {address}: {reason}"
        fix = "stop the process that listens there, or set metrics.port to another port or to 0 (any free port)"
        super().__init__(f"metrics.port {port}: the sidecar cannot listen on {address} ({reason}); {fix}.")


class Publisher:
    """Publishes committed state. No decision depends on it."""

    def __init__(
        self,
        config: Config,
        state_path: Path,
        clock: Callable[[], float] = time.monotonic,
        say: Say = lambda _: None,
        on_report: Callable[[Report], None] = lambda _: None,
    ) -> None:
        """``clock``: monotonic, in seconds, for the age of the last batch. ``say`` gets a message about each damaged
        file that an earlier process published, ``on_report`` each report that is published."""
        self._config = config
        self._state = state_path
        self._clock = clock
        self._say = say
        self._on_report = on_report
        self._lock = threading.Lock()
        # The metrics publish the scheme. Alerts and dashboards need it for links: the address that Prometheus scrapes
        # has no scheme.
        self._scheme = "http" if config.metrics.tls_server_config is None else "https"
        self._collector = SnapshotCollector(config.pipeline, time.time(), self._scheme)
        self._registry = registry(self._collector)
        self._published_at: float | None = None
        self._server: Server | None = None
        self._otlp: OtlpSender | None = None
        # If the state has a report, an earlier process published its counters: zeros would make them fall.
        self._restoring = (state_path / REPORT_FILE).exists()
        self._report: str | None = None
        self._plain: Report | None = None
        self._frontiers: Frontiers | None = None
        self._violations: ViolationsReport | None = None
        self._history = read(state_path, say)
        self._history_written_at: float | None = None
        self._canary: CanaryStatus | None = None
        self._redaction: Redaction | None = None
        self._feed = Feed(self._history_data, self._heartbeat)
        self._show_previous(say)

    def _show_previous(self, say: Say) -> None:
        """Show what the previous process published, until there is a batch."""
        path = self._state / REPORT_FILE
        found = json_of(path, say)
        if self._config.publish == Publish():
            # If ids or keys are redacted, the file may be from a process that published them in plain text.
            self._violations = violations_of(self._state / VIOLATIONS_FILE, say)
        if found is None:
            return
        try:
            text = render_json(found)
            self._plain = report_of(found)
            if self._plain is not None:
                self._frontiers = Frontiers(self._plain)
                # Made once here as a check: the report must have all parts of an update, and the update must be valid.
                event("update", self._update())
                self._frontiers.encoded()
        except DAMAGED as error:
            self._plain = self._frontiers = None
            say(not_shown(path, error))
            return
        self._report = text
        if self._plain is not None:
            self._feed.publish(self._update)

    def start(self) -> Endpoint:
        """Listen, and write the endpoint to `endpoint.json`. Returns the endpoint.

        Raises EndpointError, AccessError, OSError, and ModuleNotFoundError for `metrics.otlp` without its packages.
        """
        metrics = self._config.metrics
        self._state.mkdir(parents=True, exist_ok=True)
        if metrics.otlp is not None:
            names = self._config.pipeline, f"{platform.node()}:{metrics.port}"
            self._otlp = OtlpSender(metrics.otlp, names, self._samples, self._say)
        routes: dict[str, Route] = {
            "/": self._page,
            "/metrics": self._metrics,
            "/healthz": lambda _: Answer(b"ok\n", server.TEXT),
            "/readyz": self._ready,
            "/verdict": self._verdict,
            "/report.json": self._report_json,
            "/violations.json": self._violations_json,
            "/history.json": lambda _: json_answer(self._history_data()),
            "/events": self._events,
            "/partitions.json": self._partitions_json,
            **{f"/{runbook_place(name)}": partial(_runbook, name) for name in runbook_names()},
        }
        try:
            self._server = Server(metrics.address, metrics.port, routes, Access(metrics, self._say))
        except OSError as error:
            raise EndpointError(metrics.address, metrics.port, error.strerror or str(error)) from None
        endpoint = Endpoint(metrics.address, self._server.port, self._scheme)
        described = {"address": endpoint.address, "port": endpoint.port, "url": endpoint.url, "pid": os.getpid()}
        replace_file(self._state / ENDPOINT_FILE, json.dumps(described, indent=2) + "\n")
        self._server.start()
        self.send()
        return endpoint

    def send(self) -> None:
        """Begin to send the metrics to `metrics.otlp`, if it is set, also where `start` found no port."""
        if self._otlp is not None:
            self._otlp.start()

    @property
    def shown(self) -> Report | None:
        """The report that is shown now: at first that of an earlier process, if there is one."""
        with self._lock:
            return self._plain

    def publish(self, snapshot: Snapshot, *, age_seconds: float = 0.0) -> Report:
        """Show ``snapshot`` in files, metrics and page. Returns the report. Raises OSError.

        ``age_seconds``: time since its batch was committed, if it is published again because no batch follows.
        """
        if self._redaction is None:
            self._redaction = Redaction(self._config.publish, self._state)
        snapshot = self._redaction.redacted(snapshot)
        effective = effective_guarantee(self._config.engine.effective, self._config.guarantee)
        report = write(self._state, snapshot, effective)
        self._collector.update(snapshot)
        with self._lock:
            self._report, self._plain = render_json(report), report
            self._frontiers = Frontiers(report)
            self._violations = build_violations(snapshot)
            self._canary = canary_status(snapshot.canary, snapshot.taken_us)
            self._published_at = self._clock() - age_seconds
            self._restoring = False
            self._history = self._history.add(snapshot)
        self._feed.publish(self._update)
        self._keep_history()
        self._on_report(report)
        return report

    def stop(self) -> None:
        """Stop serving, remove `endpoint.json` and write the history. The report stays. Raises OSError."""
        self._feed.close()
        if self._otlp is not None:
            self._otlp.close()
            self._otlp = None
        if self._server is not None:
            self._server.stop()
            self._server = None
            (self._state / ENDPOINT_FILE).unlink(missing_ok=True)
            if self._history_written_at is not None:
                replace_file(self._state / HISTORY_FILE, self._history.to_json())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _page(self, _: Request) -> Answer:
        return Answer(live_page().encode(), server.HTML)

    def _metrics(self, request: Request) -> Answer:
        if self._restoring:
            text = b"The totals of this state are not restored yet; scrape again.\n"
            return Answer(text, server.TEXT, HTTPStatus.SERVICE_UNAVAILABLE)
        encode, content_type = choose_encoder(request.accept)
        return Answer(encode(self._registry), content_type)

    def _samples(self) -> Samples | None:
        return None if self._restoring else self._collector.samples()

    def _ready(self, _: Request) -> Answer:
        with self._lock:
            at = self._published_at
        if at is None:
            return Answer(b"No batch was committed yet.\n", server.TEXT, HTTPStatus.SERVICE_UNAVAILABLE)
        ago = self._clock() - at
        status = HTTPStatus.OK if ago <= READY_SECONDS else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer(f"The last batch was committed {ago:.0f} s ago.\n".encode(), server.TEXT, status)

    def _verdict(self, request: Request) -> Answer:
        with self._lock:
            report, at = self._plain, self._published_at
        config = self._config
        found: dict[str, object] = {"pipeline": config.pipeline, "guarantee": config.guarantee.value}
        if report is None or (at is None and report["outcome"] != "fail"):
            # Nothing vouches for the pipeline yet; a violation that an earlier process confirmed stands.
            text = "unknown: no batch was committed since the sidecar started."
            found |= {"verdict": "unknown", "time": None, "text": text, "reasons": [text]}
        else:
            text = verdict_line(report)
            found |= {"verdict": report["outcome"], "time": report["time"], "text": text, "reasons": report["reasons"]}
        status = HTTPStatus.OK if found["verdict"] == "pass" else HTTPStatus.SERVICE_UNAVAILABLE
        if "application/json" in request.accept:
            return json_answer(found, status)
        return Answer(f"{plain(text)}\n".encode(), server.TEXT, status)

    def _report_json(self, _: Request) -> Answer:
        with self._lock:
            report = self._report
        if report is None:
            return json_answer({"error": "No batch was committed yet."}, HTTPStatus.SERVICE_UNAVAILABLE)
        return Answer(report.encode(), server.JSON)

    def _violations_json(self, request: Request) -> Answer:
        with self._lock:
            violations = self._violations
        if violations is None:
            return json_answer({"error": "No batch was committed yet."}, HTTPStatus.SERVICE_UNAVAILABLE)
        after = request.query.get("after", "")
        try:
            return json_answer(changed_after(violations, after) if after else violations)
        except ValueError:
            sentence = f"after={after!r} is not a time; use the value of `changed` of the newest violation you read."
            return json_answer({"error": sentence}, HTTPStatus.BAD_REQUEST)

    def _keep_history(self) -> None:
        now = self._clock()
        if self._history_written_at is None or now - self._history_written_at >= HISTORY_EVERY_SECONDS:
            replace_file(self._state / HISTORY_FILE, self._history.to_json())
            self._history_written_at = now

    def _events(self, _: Request) -> Answer | Stream:
        events = self._feed.listen()
        if events is None:
            text = b"Too many pages listen already; close some, or read /report.json.\n"
            return Answer(text, server.TEXT, HTTPStatus.SERVICE_UNAVAILABLE)
        return Stream(events)

    def _partitions_json(self, _: Request) -> Answer:
        with self._lock:
            frontiers = self._frontiers
        # No error status before the first batch: a browser would log it to the console of a page that asks too early.
        return Answer(no_partitions() if frontiers is None else frontiers.encoded(), server.JSON)

    def _history_data(self) -> dict[str, Any]:
        """Return the data of the event `history`."""
        with self._lock:
            history = self._history
        return series.plain(history)

    def _heartbeat(self) -> dict[str, Any]:
        """Return the data of the event `beat`: seconds since the last batch, null before the first of this process."""
        with self._lock:
            at = self._published_at
        return {"age_seconds": None if at is None else round(self._clock() - at, 1)}

    def _update(self) -> dict[str, Any]:
        """Return the data of the event `update`: what the page shows, without the partitions, and with only the newest
        rows of the history.

        Control characters in untrusted data are escaped, so that they neither reverse nor hide parts of a sentence.
        """
        with self._lock:
            report, violations = self._plain, self._violations
            history, restoring, canary = self._history, self._restoring, self._canary
        if report is None:
            return {"report": None}
        records, state = records_of(violations), str(self._state.absolute())
        update = {
            **self._heartbeat(),
            "report": for_update(report),
            "violations": violations,
            "headline": headline(report),
            "findings": [asdict(finding) for finding in findings(report, records, state)],
            "runbook": RUNBOOK,
            "effective": [*effective_lines(report), *_runs_with(report)],
            "outstanding": outstanding(report),
            "canary": canary and asdict(canary),
            "restoring": restoring,
            "rows": series.rows(history, len(history.points) - NEWEST_POINTS),
            "restarts": series.restarts(history),
            "definition": history.definition,
        }
        # This comes last, because it would change texts that are still to be quoted for a shell.
        shown: dict[str, Any] = plain_values(update)
        return shown


def _runs_with(report: Report) -> list[str]:
    """Return the engine's settings, a table in the report, as one sentence."""
    said = ", ".join(f"{name} {value}" for name, value in effective_settings(report))
    return [f"Settings: {said}."] if said else []


def _runbook(name: str, _: Request) -> Answer:
    return Answer(runbook_page(name).encode(), server.HTML)


def changed_after(violations: ViolationsReport, after: str) -> ViolationsReport:
    """Return ``violations`` with only those that changed after the RFC 3339 time ``after``. Raises ValueError."""
    # In a query, the unescaped + of a zone arrives as a space.
    bound = parse_rfc3339(after.replace(" ", "+"))
    newer = [v for v in violations["violations"] if v["changed"] is not None and parse_rfc3339(v["changed"]) > bound]
    return {**violations, "violations": newer}
