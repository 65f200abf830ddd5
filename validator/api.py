"""The Python API: verify a pipeline once, read a sidecar's report, and fail if a guarantee is broken.

```python
import streamproof

streamproof.verify("orders.yaml").require()
```

docs/python.md describes the API. docs/CONTRACT.md lists its names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from validator.cli.exits import STATUS_OF_OUTCOME
from validator.model.classes import Verdict
from validator.settings.errors import ConfigError

__all__ = ["ConfigError", "GuaranteeBroken", "NotVerified", "Report", "Verdict", "read_report", "verify"]

_STOP_SECONDS: Final = 45.0
"""A sidecar stops within 30 s of SIGTERM."""


class GuaranteeBroken(AssertionError):
    """The declared guarantee is broken. The text is the report's summary. ``report``: the whole report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(report.summary())


class NotVerified(Exception):
    """Nothing is proven: the run failed, or the data proves neither that the guarantee holds nor that it is broken.

    ``report`` is None if the run wrote no report.
    """

    def __init__(self, message: str, report: Report | None = None) -> None:
        self.report = report
        super().__init__(message)


@dataclass(frozen=True)
class Report:
    """The report that a sidecar has published about a pipeline.

    ``state``: the sidecar's state folder. ``content``: report.json, with the names in docs/CONTRACT.md. ``violations``:
    the newest violations (violations.json), each with its class, cell, ids and explanation.
    """

    state: Path
    content: Mapping[str, Any]
    violations: Sequence[Mapping[str, Any]]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the declared guarantee."""
        return Verdict(self.content["outcome"])

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not `pass`, as sentences."""
        return tuple(self.content["reasons"])

    @property
    def contributions(self) -> Mapping[str, int]:
        """Class -> number of contributions: `expected`, `processed`, `missing`, `duplicate` ..."""
        counts: Mapping[str, int] = self.content["contributions"]
        return counts

    def summary(self) -> str:
        """Return the verdict, the violations and where to look, as `validate --once` prints them."""
        from validator.publish import report_types
        from validator.publish.report import records_of
        from validator.publish.text import summary

        content = cast("report_types.Report", self.content)
        return summary(content, records_of({"violations": self.violations}), state=str(self.state))

    def require(self) -> Report:
        """Return this report if the verdict is `pass`. Raises `GuaranteeBroken` if it is `fail`, else `NotVerified`."""
        if self.verdict is Verdict.FAIL:
            raise GuaranteeBroken(self)
        if self.verdict is not Verdict.PASS:
            raise NotVerified(self.summary(), self)
        return self


def verify(
    config: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    state: str | Path | None = None,
    at_rest: bool = False,
    leave_open: bool = False,
    timeout_seconds: float | None = None,
) -> Report:
    """Read a pipeline's topics to their ends, as `streamproof validate CONFIG --once` does, and return the report.

    ``settings``: dotted name -> value, as for `--set`, but on no command line. ``state``: the state folder, in place of
    ``state.path``; an existing state is continued. ``at_rest``, ``leave_open``: as the options with these names. The
    run is a process of its own, with a Spark JVM.

    Raises `NotVerified` if the run ends without a report of its own, or takes longer than ``timeout_seconds``: the text
    ends with the last line that the run wrote to stderr. Raises `ConfigError`, with a sentence for each problem, if the
    configuration is refused.
    """
    from validator.config.load import load

    given = {**(settings or {}), **({} if state is None else {"state.path": str(Path(state).absolute())})}
    assignments = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()]
    folder = load(Path(config), assignments).state.path
    options = ["--at-rest"] if at_rest else []
    options += ["--leave-open"] if leave_open else []
    program = [sys.executable, "-m", "validator.cli.private_arguments"]
    private = [part for one in assignments for part in ("--set", one)]  # a setting may be a password
    status, message = _run([*program, "validate", str(config), "--once", "--quiet", *options], private, timeout_seconds)
    if status not in STATUS_OF_OUTCOME.values():
        raise NotVerified(f"streamproof ended with status {status}: {message}")
    try:
        found = read_report(folder)
    except FileNotFoundError:
        raise NotVerified(f"streamproof wrote no report: {message}") from None
    if status != STATUS_OF_OUTCOME[found.verdict.value]:
        # The run ended before it could publish: the report is that of an earlier run.
        raise NotVerified(f"streamproof could not verify the pipeline: {message}", found)
    return found


def read_report(state: str | Path) -> Report:
    """Return the last published report of a state folder, also while its sidecar runs.

    Raises `FileNotFoundError` if nothing was published yet, and `ValueError` if another version wrote the report.
    """
    from validator.publish.report import REPORT_FILE, SCHEMA, VIOLATIONS_FILE

    folder = Path(state)
    content = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else None
        problem = f"its schema is {found} and this version of streamproof reads {SCHEMA}"
        raise ValueError(f"{folder / REPORT_FILE}: {problem}; use the version of streamproof that wrote it")
    try:
        listed = json.loads((folder / VIOLATIONS_FILE).read_text(encoding="utf-8"))["violations"]
    except FileNotFoundError:
        listed = []
    return Report(folder, content, tuple(listed))


def _run(command: Sequence[str], private: Sequence[str], timeout_seconds: float | None) -> tuple[int, str]:
    """Return the exit status and the last line on stderr. Raises `NotVerified` after ``timeout_seconds``.

    ``private``: the arguments that the process reads from stdin.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as process:
        try:
            _, message = process.communicate(json.dumps(private), timeout=timeout_seconds)
        except subprocess.TimeoutExpired as expired:
            written = (expired.stderr or b"").decode(errors="replace")
            raise NotVerified(f"streamproof did not end within {timeout_seconds:g} s: {_last_line(written)}") from None
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.communicate(timeout=_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
    return process.returncode, _last_line(message)


def _last_line(message: str) -> str:
    lines = message.strip().splitlines()
    return lines[-1] if lines else "it wrote no message"
