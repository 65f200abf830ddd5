"""Printing the report that a state has published."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from validator.cli.exits import STATUS_OF_OUTCOME, UsageError
from validator.model.terminal import plain_json, shell_word
from validator.model.violation import Violation
from validator.publish import history, text
from validator.publish.published_files import DAMAGED
from validator.publish.report import REPORT_FILE, SCHEMA, VIOLATIONS_FILE, records_of, report_of
from validator.publish.report_types import Report
from validator.publish.sentences import verdict_line
from validator.state.folder import check_schema


def print_summary(state: Path) -> None:
    """Print the result of a run that has ended, unless it published none because no topic exists."""
    read = _read_json(state, REPORT_FILE)
    found = None if read is None else report_of(read)
    if found is not None:
        sys.stdout.write(text.summary(found, _records(state), str(state)))


def last_lines(state: Path, status: int) -> list[str]:
    """The last lines of a live run that ends with the exit status ``status``: its verdict, and where its report is."""
    read = _read_json(state, REPORT_FILE)
    found = None if read is None else report_of(read)
    if found is None or STATUS_OF_OUTCOME[found["outcome"]] != status:
        return []  # the run ended before it could publish
    return [verdict_line(found), f"the report: streamproof report {shell_word(str(state))}"]


def print_report(folder: str, form: str) -> str:
    """Print the report of the state in ``folder`` in a format of the option `--format`. Returns its outcome."""
    state = Path(folder)
    found = report_in(state)
    beside: list[object] = [] if form == "json" else [_records(state)]
    if form == "github":
        _write_for_github(found, _records(state), folder)
        return str(found["outcome"])
    if form in {"html", "text"}:
        beside += [folder]
    if form == "html":
        from validator.state.judged_windows import judged_windows
        from validator.stream.phase_latency import phase_latencies

        beside += [history.read(state), judged_windows(state), phase_latencies(state, found)]
    sys.stdout.write(_render(form, found, *beside))
    return str(found["outcome"])


def _write_for_github(found: Report, records: tuple[Violation, ...], folder: str) -> None:
    """Append the summary to the file that GitHub names for it, and print the annotation; elsewhere, print both."""
    from validator.publish import github

    summary, page = github.summary(found, records, folder), os.environ.get("GITHUB_STEP_SUMMARY")
    sys.stdout.write(github.annotation(found))
    if page:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(summary)
    else:
        sys.stdout.write(f"\n{summary}")


def report_in(state: Path) -> Report:
    """The report in a state folder. Raises UsageError if there is none that can be read."""
    check_schema(state)
    read = _read_json(state, REPORT_FILE)
    if read is None:
        fix = "name the state.path of a run that has committed a batch"
        raise UsageError(f"{state / REPORT_FILE}: there is no report; {fix}.")
    found = report_of(read)
    if found is None:
        problem = f"its schema is {read.get('schema')} and this version of streamproof reads {SCHEMA}"
        raise UsageError(f"{state / REPORT_FILE}: {problem}; use the version of streamproof that wrote it.")
    return found


def _records(state: Path) -> tuple[Violation, ...]:
    read = _read_json(state, VIOLATIONS_FILE)
    try:
        return records_of(read)
    except DAMAGED as error:
        raise UsageError(
            f"{state / VIOLATIONS_FILE}: it is damaged ({error!r}); run the sidecar for one batch to rewrite it."
        ) from None


def _read_json(state: Path, name: str) -> dict[str, Any] | None:
    try:
        read = json.loads((state / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise UsageError(f"{state}: it is a file; name the state folder.") from None
    except ValueError:
        raise UsageError(f"{state / name}: it is not JSON; run the sidecar for one batch to rewrite it.") from None
    return read if isinstance(read, dict) else None


def _render(form: str, read: Report, *beside: object) -> str:
    if form == "json":
        return plain_json(read, indent=2) + "\n"
    renderer = importlib.import_module(f"validator.publish.{form}")
    return str(renderer.render(read, *beside))
