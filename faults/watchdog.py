"""Heals when the runner cannot: a small process that waits for the runner's end of a pipe to close.

The runner writes the configuration as the first line and ``done`` as the last one. A pipe that closes without it
belongs to a runner that was killed: the watchdog takes the journal's lock, which the kernel freed, and heals what is
open.
It is in a session of its own and ignores the signals that a terminal or an orchestrator sends to a whole group.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from faults.config import FaultConfig, KafkaSection, LimitsSection
from faults.errors import FaultError
from faults.healing import heal_all
from faults.journal import Journal
from faults.section import Section
from faults.topic import FaultsTopic, tell_again

_READY: Final = b"ready\n"
_DONE: Final = "done\n"
LOG_FILE: Final = "watchdog.log"


class _Orders(Section):
    state: Path
    kafka: KafkaSection | None
    limits: LimitsSection


class Watchdog:
    """The runner's side; a context manager that starts it, and lets it go when all is healed."""

    def __init__(self, config: FaultConfig) -> None:
        self._orders = _Orders(state=config.state.resolve(), kafka=config.kafka, limits=config.limits)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it watches. Raises FaultError."""
        with (self._orders.state / LOG_FILE).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(self._orders.model_dump_json().encode() + b"\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != _READY:
            raise FaultError(f"The watchdog did not start; see {self._orders.state / LOG_FILE}.")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let it go: what could be healed is. It tries no more than ``faults heal`` would."""
        assert self._process is not None
        self._process.communicate(_DONE.encode())


def main() -> int:
    """Watch, and heal where the runner did not."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders = _Orders.model_validate_json(sys.stdin.readline())
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if sys.stdin.readline() == _DONE:
        return 0

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    say("The fault runner is gone without an end; healing what it left.")
    try:
        with Journal.locked(orders.state, wait="wait") as journal:
            topic = None if orders.kafka is None else FaultsTopic(orders.kafka)
            heal_all(journal, topic, orders.limits, say)
            tell_again(topic, journal)
    except FaultError as error:
        say(str(error))
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
