"""The watchdog process: waits until the runner's end of a pipe is closed, and heals if the runner has not.

The runner writes its orders as the first line and ``done`` as the last one. If the pipe is closed without ``done``, the
runner was killed or has failed: the watchdog waits for the lock of the journal, and heals the open faults.
It ignores the signals that a terminal or an orchestrator sends to a whole process group. The modules for healing are
imported only when needed, so that the watchdog starts fast and uses little memory, also under memory pressure.
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
    """Watch the runner, and heal if it ends without ``done``. The exit status is that of ``faults heal``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    orders = sys.stdin.buffer.readline()
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    if sys.stdin.buffer.readline() == DONE:
        return 0
    _say("The fault runner ended without healing; the watchdog heals the active faults.")
    return _heal(orders)


def _say(line: str) -> None:
    # The log may be on the disk that the fault has filled. A lost message must not prevent the healing.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _heal(orders: bytes) -> int:
    from faults.errors import FaultError
    from faults.healing import heal_all
    from faults.journal import Journal
    from faults.orders import Orders
    from faults.topic import FaultsTopicWriter
    from validator.model.terminal import plain

    def say(line: str) -> None:
        _say(plain(line))

    given = Orders.model_validate_json(orders)
    try:
        with Journal.locked(Path(given.state), wait="wait") as journal:
            topic = None if given.kafka is None else FaultsTopicWriter(given.kafka)
            heal_all(journal, topic, given.limits, say)
    except FaultError as error:
        say(str(error))
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
