"""The demo's load generator: ``streamproof generate`` with a clean shutdown on SIGTERM.

The length of a scenario depends on the healing of its faults, so it is not known to the load. Run as ``python -m
testbed.demo.load CONFIG``; SIGTERM ends the load, closes its windows and writes ``summary.json``.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from generator.config import load
from generator.run import generate
from validator.model.signals import set_from_handler


def load_until_stopped(config: Path) -> list[str | Path]:
    """The command line of this module."""
    return [sys.executable, "-m", "testbed.demo.load", config]


def main() -> int:
    """Send until the limit or SIGTERM; return exit status 0 in both cases."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: set_from_handler(stop))
    generate(load(sys.argv[1]), stop=stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
