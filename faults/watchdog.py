"""The runner's side of the watchdog, a small process in its own session that heals if the runner cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from faults import watch
from faults.config import FaultConfig
from faults.errors import FaultError
from faults.orders import Orders

LOG_FILE: Final = "watchdog.log"


class Watchdog:
    """A context manager that starts the watchdog, and ends it when the runner has healed all that it could."""

    def __init__(self, config: FaultConfig) -> None:
        self._orders = Orders(state=config.state.resolve(), kafka=config.kafka, limits=config.limits)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start the watchdog and wait until it watches. Raises FaultError."""
        log_file = self._orders.state / LOG_FILE
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", watch.__name__],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(self._orders.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()
            is_ready = self._process.stdout.readline() == watch.READY
        except BrokenPipeError:
            is_ready = False
        if not is_ready:
            raise FaultError(f"The watchdog did not start; see {log_file}.")
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """End the watchdog: the runner has healed the faults, or has reported those that are not healed.

        After any other error, the watchdog heals the remaining faults when the journal is unlocked.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        if error is None or isinstance(error, FaultError):
            self._process.communicate(watch.DONE)
        else:
            self._process.stdin.close()
