"""Next steps after a violation: commands that run as printed, the extent of the violation, the runbook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from validator.model.terminal import as_value, shell_word
from validator.model.violation import Violation
from validator.model.wording import plural, plural_of
from validator.publish.redaction import HIDDEN
from validator.publish.runbook_pages import runbook_place
from validator.publish.sentences import clock
from validator.publish.times import rfc3339

STATE: Final = "STATE"
"""Stands for the state folder if it is not known."""
RUNBOOK: Final = runbook_place("StreamproofGuaranteeViolated")
"""The runbook's path, relative to the status page."""


def acknowledge_command(records: Iterable[Violation], state: str) -> str | None:
    """Return the command that removes the newest open one of ``records`` from the alert; None if none is open."""
    first = next((record.id for record in _open(records)), None)
    return None if first is None else f'streamproof ack {_word(state)} {shell_word(first)} --reason "WHY"'


def acknowledge_all_command(records: Iterable[Violation], state: str) -> str | None:
    """Return the command that removes all violations of the class of ``records`` from the alert; None if fewer than two
    are open.

    If another open violation has the same fault as the newest open one, the command is restricted to that fault.
    """
    opened = _open(records)
    if len(opened) < 2:
        return None
    fault, which = opened[0].fault, f" --class {opened[0].violation_class}"
    if fault is not None and sum(record.fault == fault for record in opened) > 1:
        which += f" --fault{as_value(fault)}"
    return f'streamproof ack {_word(state)}{which} --reason "WHY"'


def acknowledged_scope(command: str) -> str:
    """Return in words which violations a command of `acknowledge_all_command` removes from the alert. They may be more
    than the listed ones."""
    return "of this class and fault" if " --fault" in command else "of this class, with or without a fault"


def extent(records: Iterable[Violation], count: int, noun: str = "window") -> str | None:
    """Return the windows and the number of keys of the confirmed ``records``, as a phrase; None if none has a window.
    ``noun``: what the oracle calls them.

    ``count``: total number of violating contributions. If the bounded list lacks some of them, the phrase states that.
    """
    confirmed = [record for record in records if record.state == "confirmed"]
    cells = {(start, record.key) for record in confirmed if (start := rfc3339(record.window_start_us)) is not None}
    if not cells:
        return None
    starts, keys = sorted({start for start, _ in cells}), {key for _, key in cells}
    several = plural_of(noun)
    if HIDDEN in keys:
        return f"{plural(len(starts), noun, several)} from {clock(starts[0])} UTC on; keys are hidden"
    of = plural(len(keys), "key")
    if len(starts) == 1:
        said = f"the {noun} that starts at {clock(starts[0])} UTC, {of}"
    else:
        first, last = clock(starts[0]), clock(starts[-1])
        span = f"from {first} to {last.removeprefix(first[:11])} UTC"
        said = f"{len(starts)} {several} that start {span}, {of}, {plural(len(cells), 'cell')}"
    covered = sum(record.count for record in confirmed)
    return said if covered >= count else f"{said}; this covers only the newest {plural(covered, 'contribution')}"


def explain_command(records: Iterable[Violation], state: str) -> str | None:
    """Return the command that explains the first id of the newest of ``records`` with ids; None if none has ids."""
    return next((f"streamproof explain {_word(state)} --id{as_value(r.ids[0])}" for r in records if r.ids), None)


def _open(records: Iterable[Violation]) -> list[Violation]:
    return [record for record in records if record.state == "confirmed" and record.acknowledged is None]


def _word(state: str) -> str:
    return state if state == STATE else shell_word(state)
