"""The watchdog's process: waits for the runner's end of a pipe to close, and heals where the runner did not.

The runner writes the orders as the first line and ``done`` as the last one. A pipe that closes without it belongs to a
runner that was killed: the journal's lock, which the kernel freed, is taken, and what is open is healed.
It ignores the signals that a terminal or an orchestrator sends to a whole group. What healing needs is imported only
then: the watchdog is up in a moment and holds little memory, also where memory is what the fault takes.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

READY: Final = b"ready\n"
DONE: Final = b"done\n"


def main() -> int:
    """Watch, and heal; the exit status is that of ``faults heal``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders = sys.stdin.buffer.readline()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline() == DONE:
        return 0
    _say("The fault runner is gone without an end; healing what it left.")
    return _heal(orders)


def _say(line: str) -> None:
    # The log may be on the very disk that the fault has filled: nothing that is said is worth more than healing.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _heal(orders: bytes) -> int:
    from faults.errors import FaultError
    from faults.healing import heal_all
    from faults.journal import Journal
    from faults.topic import FaultsTopic
    from faults.watchdog import Orders
    from validator.model.terminal import plain

    def say(line: str) -> None:
        _say(plain(line))

    given = Orders.model_validate_json(orders)
    try:
        with Journal.locked(Path(given.state), wait="wait") as journal:
            topic = None if given.kafka is None else FaultsTopic(given.kafka)
            heal_all(journal, topic, given.limits, say)
    except FaultError as error:
        say(str(error))
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
