"""The journal of a campaign: append-only JSON lines that are synced before a run begins. One campaign at a time locks
it.

A run counts as done if its result file is complete; the journal records the attempts and their outcomes. A run that
began but has neither a result nor a recorded end was cut off, and counts as failed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self, get_args

from faults.section import Section
from testbed.campaign import result
from testbed.campaign.matrix import Run
from testbed.campaign.plan import CampaignPlan, PlanError
from testbed.campaign.result import RunResult

FILE: Final = "journal.jsonl"
FAILED_MOST: Final = 3
"""Consecutive failures after which the campaign stops: the cause is then the machine or the installation, and all
further runs would fail in the same way.
"""
INTERRUPTED: Final = "The campaign was interrupted during this run."
CUT_OFF: Final = "The campaign was killed during this run."


class CampaignBroken(Exception):
    """Several runs failed in a row. The campaign ends, and can be resumed."""

    exit_status = 3


@dataclass(frozen=True)
class Failure:
    """A failed attempt of a run."""

    run: str
    time: str
    reason: str


@dataclass(frozen=True)
class Heading:
    """Header of the table: machine and version of the campaign."""

    machine: str
    version: str


class CampaignJournal:
    """A context manager; meanwhile no other campaign can use the folder."""

    def __init__(self, folder: Path, plan: CampaignPlan) -> None:
        self._folder = folder
        self._plan = plan
        self._descriptor = -1
        self._lines: list[dict[str, Any]] = []

    def open(self, *, resumes: bool) -> Self:
        """Lock and read the folder. Raises PlanError if another campaign holds the lock, if the folder has a campaign
        and ``resumes`` is false, and if that campaign had other settings.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise PlanError(f"{self._folder}: another campaign is running there; wait for it, or end it.") from None
        self._lines = read_lines(self._folder)
        try:
            self._check(resumes=resumes)
        except PlanError:
            self.close()
            raise
        return self

    def _check(self, *, resumes: bool) -> None:
        if not self._lines:
            return
        if not resumes:
            raise PlanError(f"{self._folder}: it has an earlier campaign; add --resume, or use another results folder.")
        settings = [line["settings"] for line in self._lines if line["event"] == "campaign"]
        before: dict[str, Any] = {}
        for earlier in reversed(settings):
            before |= _flat(_completed(earlier))
        for name, value in _flat(self._plan.same_in_all).items():
            # A schedule that is new has no runs yet.
            if (was := before.get(name, value)) != value:
                raise PlanError(
                    f"{name}: the runs in {self._folder} were made with {was}, not {value}; restore the earlier "
                    "value, or use another results folder."
                )

    def begin(self, heading: Heading) -> None:
        """Record that a campaign continues here; an attempt that was cut off becomes a failure."""
        for torn in (self._folder / "runs").glob(".*.json.*.tmp"):
            torn.unlink()
        self.append("campaign", settings=self._plan.same_in_all, machine=heading.machine, version=heading.version)
        for run in open_runs(self._lines):
            # Result files are replaced atomically: if the file exists, the run was done and only its journal line is
            # missing.
            if (self._folder / "runs" / f"{run}.json").exists():
                self.append("done", run=run)
            else:
                self.append("failed", run=run, reason=CUT_OFF)

    def append(self, event: str, **more: object) -> None:
        """Append one line and sync it. Raises OSError."""
        line = {"event": event, "time": datetime.now(UTC).isoformat(timespec="seconds"), **more}
        # A line that was torn by a kill is terminated first.
        torn = os.fstat(self._descriptor).st_size > 0 and not _ends_whole(self._folder / FILE)
        os.write(self._descriptor, (("\n" if torn else "") + json.dumps(line) + "\n").encode())
        os.fsync(self._descriptor)
        self._lines.append(json.loads(json.dumps(line)))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All failures, in order."""
        return failures(self._lines)

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _completed(settings: dict[str, Any]) -> dict[str, Any]:
    """``settings`` with the keys that the version which wrote them did not have, also those of sections: they were at
    their defaults."""
    found = _defaults(CampaignPlan) | settings
    for name, field in CampaignPlan.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section) and isinstance(found.get(name), dict):
                found[name] = _defaults(kind) | found[name]
    return found


def _defaults(section: type[Section]) -> dict[str, Any]:
    return section.model_construct().model_dump(mode="json")


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """``settings`` with each schedule, shape, phase and rate as a key of its own."""
    parts = ("schedules", "shapes", "phases", "sustained")
    found = {name: value for name, value in settings.items() if name not in parts}
    for part in parts:
        found |= {f"{part}.{name}": value for name, value in settings.get(part, {}).items()}
    return found


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """The complete lines of a journal; none if there is no journal."""
    try:
        text = (folder / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    found = [_parsed(line) for line in text.splitlines()]
    return [line for line in found if line is not None]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        loaded = json.loads(line)
    except ValueError:
        return None  # torn by a kill: a result is in its own file, and a run without one counts as cut off
    return loaded if isinstance(loaded, dict) else None


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def open_runs(lines: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The runs that began and have no end."""
    begun: dict[str, None] = {}
    for line in lines:
        if line["event"] == "started":
            begun[line["run"]] = None
        elif line["event"] in ("done", "failed"):
            begun.pop(line["run"], None)
    return tuple(begun)


def failures(lines: Sequence[dict[str, Any]]) -> tuple[Failure, ...]:
    """The failures in a journal, in order."""
    return tuple(Failure(line["run"], line["time"], line["reason"]) for line in lines if line["event"] == "failed")


def headings(lines: Sequence[dict[str, Any]]) -> tuple[Heading, ...]:
    """The machines and versions of the campaign, each once."""
    found = [Heading(line["machine"], line["version"]) for line in lines if line["event"] == "campaign"]
    return tuple(dict.fromkeys(found))


def work(
    journal: CampaignJournal,
    folder: Path,
    wanted: Sequence[Run],
    run_one: Callable[[Run], RunResult],
    on_end: Callable[[Run, RunResult | Failure], None],
) -> None:
    """Do the runs of ``wanted`` without a complete result, one after another; call ``on_end`` after each.

    A run that raises is recorded as a failure and does not end the campaign. `FAILED_MOST` failures in a row raise
    CampaignBroken, because the cause is then not the run. KeyboardInterrupt also ends the campaign.
    """
    in_a_row = 0
    failed = {failure.run for failure in journal.failures if failure.reason not in (CUT_OFF, INTERRUPTED)}
    # Runs that failed before are last, so that a run that always fails does not prevent the others.
    for run in sorted(wanted, key=lambda run: run.name in failed):
        if result.read(folder, run) is not None:
            continue
        journal.append("started", run=run.name)
        try:
            found = run_one(run)
        except KeyboardInterrupt:
            journal.append("failed", run=run.name, reason=INTERRUPTED)
            raise
        except Exception as error:
            # Any exception becomes a row of the table; the next run may succeed.
            journal.append("failed", run=run.name, reason=_brief(f"{type(error).__name__}: {error}"))
            on_end(run, journal.failures[-1])
            in_a_row += 1
            if in_a_row >= FAILED_MOST:
                raise CampaignBroken(
                    f"{in_a_row} runs in a row failed, the last with: "
                    f"{' '.join(journal.failures[-1].reason.split())}; fix the cause and continue with --resume, "
                    "which puts the failed runs last."
                ) from error
        else:
            in_a_row = 0
            result.write(folder, run, found)
            journal.append("done", run=run.name)
            on_end(run, found)


def _brief(reason: str) -> str:
    """``reason`` without the frames of a traceback, which are long and contain paths of this machine."""
    before, _, after = reason.partition("Traceback (most recent call last):")
    return before + after.strip().splitlines()[-1] if after.strip() else reason
