"""The Python API: verify a pipeline once, read a sidecar's report, and fail if a guarantee is broken.

```python
import streamproof

streamproof.verify("orders.yaml").require()
```

docs/python.md describes the API. docs/CONTRACT.md lists its names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from validator.cli.exits import STATUS_OF_OUTCOME
from validator.model.classes import Verdict
from validator.runs import Outcome, Run, TimedOut, in_own_process
from validator.settings.errors import ConfigError

__all__ = ["ConfigError", "GuaranteeBroken", "NotVerified", "Report", "Verdict", "read_report", "verify"]


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
    return verified_by(
        in_own_process,
        config,
        settings,
        state,
        at_rest=at_rest,
        leave_open=leave_open,
        timeout_seconds=timeout_seconds,
    )


def verified_by(
    do: Callable[[Run], Outcome],
    config: str | Path,
    settings: Mapping[str, object] | None,
    state: str | Path | None,
    *,
    at_rest: bool,
    leave_open: bool,
    timeout_seconds: float | None,
) -> Report:
    """As `verify`. ``do`` does the run."""
    from validator.config.load import load

    given = {**(settings or {}), **({} if state is None else {"state.path": str(Path(state).absolute())})}
    assignments = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()]
    loaded = load(Path(config), assignments)
    folder, session = loaded.state.path, f"{loaded.spark.master} {sorted(loaded.spark.options.items())}"
    run = Run(Path(config), assignments, at_rest, leave_open, session, timeout_seconds)
    try:
        status, message = do(run)
    except TimedOut as error:
        raise NotVerified(f"streamproof did not end within {timeout_seconds:g} s: {error}") from None
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
