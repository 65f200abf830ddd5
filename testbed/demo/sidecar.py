"""The demo's sidecar: a separate process that is observed only from outside, as by a user."""

from __future__ import annotations

import json
import os
import shlex
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from testbed import gc_log
from testbed.checkout import python_path, streamproof
from testbed.processes import OwnedProcess
from validator.model.violation import Violation
from validator.publish.report import REPORT_FILE, VIOLATIONS_FILE, records_of, report_of
from validator.publish.report_types import Report

_ANSWER_SECONDS_MAX: Final = 2.0
_UNSETTLED: Final = ("overdue", "blocked", "unconsumed", "unresolved")


class DemoSidecar:
    """``streamproof validate`` on a configuration file, with its state folder next to it."""

    def __init__(self, config: Path) -> None:
        """Start the sidecar. Its files, including its JVM's temporary ones, stay below the folder of ``config``."""
        folder = config.parent
        self.state = folder / "state"
        scratch = folder / "tmp"
        scratch.mkdir(exist_ok=True)
        # A run of a minute is too short for the optimising compiler to pay off on two cores.
        java = f"{shlex.quote(f'-Djava.io.tmpdir={scratch}')} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        java += f" {shlex.quote(gc_log.option(folder))}"
        self.process = OwnedProcess(
            streamproof("validate", config),
            log=folder / "sidecar.log",
            name="sidecar",
            environment={**python_path(), "TMPDIR": str(scratch), "JAVA_TOOL_OPTIONS": java},
            folder=folder,
        )

    def url(self) -> str | None:
        """Return the address of its status page; None until the page is served."""
        try:
            return str(json.loads((self.state / "endpoint.json").read_text(encoding="utf-8"))["url"])
        except FileNotFoundError:
            return None

    def report(self) -> Report | None:
        """Return the report that it serves now; None before the first one, or if it does not answer in time."""
        url = self.url()
        if url is None:
            return None
        try:
            with urllib.request.urlopen(url + "report.json", timeout=_ANSWER_SECONDS_MAX) as answer:  # noqa: S310
                report = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return None
        return report_of(report) if isinstance(report, dict) else None

    def request_stop(self) -> None:
        """Send SIGTERM to the sidecar only: its JVM is in the same process group, and the sidecar ends it."""
        if self.process.is_running:
            os.kill(self.process.pid, signal.SIGTERM)

    def read_report(self) -> tuple[Report, tuple[Violation, ...]] | None:
        """Return the report and the violations that it wrote last; None if it wrote none. Raises OSError."""
        if not (self.state / REPORT_FILE).exists():
            return None
        report = report_of(self._read(REPORT_FILE))
        assert report is not None, "the sidecar of this checkout writes the schema that this checkout reads"
        return report, records_of(self._read(VIOLATIONS_FILE))

    def _read(self, name: str) -> dict[str, Any]:
        read: dict[str, Any] = json.loads((self.state / name).read_text(encoding="utf-8"))
        return read


def is_settled(report: Report, expected: int, left_open: int) -> bool:
    """Return whether ``expected`` inputs were read and all but ``left_open`` of them judged."""
    counts = report["contributions"]
    return (
        (report["inputs"]["read"] or 0) >= expected
        and (counts["pending"] or 0) <= left_open
        and not any(counts[name] for name in _UNSETTLED)
        and not any(report["violations"]["suspected"].values())
        and not any(partition["lag_events"] for partition in report["coverage"]["partitions"])
    )
