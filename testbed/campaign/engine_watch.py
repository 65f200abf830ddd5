"""Notices the processes of an engine that end although no fault ends them.

The measures of a run with such a death are not those of its fault. The run then fails, and the table gives the reason.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from testbed.engines.base import EngineError, Instance, ProcessEngine

_LINES_MAX = 15


class EngineWatch:
    """Watches the processes that an engine has now. ``phase``: the phase of the run (SEMANTICS section 6).

    Storm's Supervisor replaces a dead worker at once. So a worker with another process id has died, too.
    """

    def __init__(self, engine: ProcessEngine, phase: str, *, but: Collection[int] = ()) -> None:
        """``but``: numbers of instances that may end."""
        self._engine = engine
        self._phase = phase
        self._pids = {one.number: one.pid for one in engine.instances if one.number not in but}

    def death(self) -> str | None:
        """A sentence about the first process that has ended, and the end of its log; None if all are running."""
        for one in self._engine.instances:
            if one.number in self._pids and not (one.alive and one.pid == self._pids[one.number]):
                return f"{self._sentence(one)}\n{_end_of_log(one)}"
        return None

    def _sentence(self, one: Instance) -> str:
        how = "ended"
        # Of Storm's worker no status is known.
        with suppress(EngineError):
            how = f"ended with status {self._engine.process(one.number).returncode}"
        name = f"{one.role} {self._engine.name}-{one.number} (process {self._pids[one.number]})"
        return f"The {name} {how} in the {self._phase} phase, and no fault of the campaign ended it:"


def _end_of_log(one: Instance) -> str:
    with suppress(FileNotFoundError):
        return "\n".join(one.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LINES_MAX:])
    return "it has no log"
