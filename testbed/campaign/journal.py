"""The journal of a campaign: append-only JSON lines, on disk before anything is begun, held by one campaign at a time.

A run counts as done when its result file is whole; the journal says what was tried, and what became of it. A run that
was begun and of which neither a result nor an end is known was cut off, and is a failure like any other.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from testbed.campaign import result
from testbed.campaign.matrix import Run
from testbed.campaign.plan import CampaignPlan, PlanError
from testbed.campaign.result import RunResult

FILE: Final = "journal.jsonl"
FAILED_MOST: Final = 3
"""In a row: what fails so often is the machine or the installation, and all further rows would say the same."""
INTERRUPTED: Final = "The campaign was interrupted during this run."
CUT_OFF: Final = "The campaign was killed during this run."


class CampaignBroken(Exception):
    """Nothing but failures: the campaign ends, and can be resumed."""

    exit_status = 3


@dataclass(frozen=True)
class Failure:
    """A run that was begun and has no result from that attempt."""

    run: str
    time: str
    reason: str


@dataclass(frozen=True)
class Heading:
    """What the table says of the whole campaign: what it ran on, and which version."""

    machine: str
    version: str


class CampaignJournal:
    """A context manager; inside, no other campaign can use the folder."""

    def __init__(self, folder: Path, plan: CampaignPlan) -> None:
        self._folder = folder
        self._plan = plan
        self._descriptor = -1
        self._lines: list[dict[str, Any]] = []

    def open(self, *, resumes: bool) -> Self:
        """Lock and read the folder. Raises PlanError where another campaign has it, where there is one already and
        ``resumes`` is not said, and where that one ran under other settings.
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
            raise PlanError(f"{self._folder}: a campaign was begun there; add --resume, or name other results.")
        settings = [line["settings"] for line in self._lines if line["event"] == "campaign"]
        before: dict[str, Any] = settings[0] if settings else self._plan.same_in_all
        for name, value in self._plan.same_in_all.items():
            if before.get(name) != value:
                raise PlanError(
                    f"{name}: the runs in {self._folder} were made with {before.get(name)}, not {value}; "
                    "put it back, or name other results."
                )

    def begin(self, heading: Heading) -> None:
        """Note that a campaign goes on from here; what was cut off before becomes a failure."""
        for torn in (self._folder / "runs").glob(".*.json.*.tmp"):
            torn.unlink()
        self.append("campaign", settings=self._plan.same_in_all, machine=heading.machine, version=heading.version)
        for run in open_runs(self._lines):
            # Result files are replaced whole: one that is there was done, and only its line is missing.
            if (self._folder / "runs" / f"{run}.json").exists():
                self.append("done", run=run)
            else:
                self.append("failed", run=run, reason=CUT_OFF)

    def append(self, event: str, **more: object) -> None:
        """One line, synced. Raises OSError."""
        line = {"event": event, "time": datetime.now(UTC).isoformat(timespec="seconds"), **more}
        # After a line that a kill has torn, a new one begins.
        torn = os.fstat(self._descriptor).st_size > 0 and not _ends_whole(self._folder / FILE)
        os.write(self._descriptor, (("\n" if torn else "") + json.dumps(line) + "\n").encode())
        os.fsync(self._descriptor)
        self._lines.append(json.loads(json.dumps(line)))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All, in order."""
        return failures(self._lines)

    def close(self) -> None:
        """Let the folder go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of a journal that are whole; none where there is no journal."""
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
        return None  # torn by a kill: what it would have said is known from the result file, or is a run cut off
    return loaded if isinstance(loaded, dict) else None


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def open_runs(lines: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The runs that were begun and have no end."""
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
    """The machines and versions that the campaign was run on, each once."""
    found = [Heading(line["machine"], line["version"]) for line in lines if line["event"] == "campaign"]
    return tuple(dict.fromkeys(found))


def work(
    journal: CampaignJournal,
    folder: Path,
    wanted: Sequence[Run],
    run_one: Callable[[Run], RunResult],
    told: Callable[[Run, RunResult | Failure], None],
) -> None:
    """Do those of ``wanted`` that have no whole result, one after another; ``told`` hears of the end of each.

    A run that raises is a failure in the journal and not the end of the campaign; `FAILED_MOST` in a row are the end,
    since then it is not the runs that fail: raises CampaignBroken. So is KeyboardInterrupt.
    """
    in_a_row = 0
    failed = {failure.run for failure in journal.failures if failure.reason not in (CUT_OFF, INTERRUPTED)}
    # What failed before comes last: else a job that always fails would keep the rest from being reached.
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
            # Whatever it is, it becomes a row; the next run may well succeed.
            journal.append("failed", run=run.name, reason=_brief(f"{type(error).__name__}: {error}"))
            told(run, journal.failures[-1])
            in_a_row += 1
            if in_a_row >= FAILED_MOST:
                raise CampaignBroken(
                    f"{in_a_row} runs in a row failed, the last with: {' '.join(journal.failures[-1].reason.split())}; "
                    "mend that, and go on with --resume, which leaves them for the end."
                ) from error
        else:
            in_a_row = 0
            result.write(folder, run, found)
            journal.append("done", run=run.name)
            told(run, found)


def _brief(reason: str) -> str:
    """``reason`` without the frames of a traceback, which are long and full of one machine's paths."""
    before, _, after = reason.partition("Traceback (most recent call last):")
    return before + after.strip().splitlines()[-1] if after.strip() else reason
