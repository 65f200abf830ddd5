"""The entry point of the command `streamproof`. It handles signals before it imports what takes time."""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Sequence

from validator.cli.exits import INTERRUPTED
from validator.model.signals import end_at_once, handled_by

# Pydantic would search all installed packages for plugins, which takes longer than to read a configuration.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# Python would search all modules for garbage as it ends: a sixth of the time of a short command.
atexit.register(gc.freeze)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in ``argv`` (None: the process's arguments). Returns its exit status; never raises."""
    before = end_at_once(INTERRUPTED)
    try:
        try:
            from validator.cli.command_line import run
        except KeyboardInterrupt:  # without this, Ctrl-C during these imports would print a traceback
            return INTERRUPTED
        return run(argv, before)
    finally:
        handled_by(before)


if __name__ == "__main__":
    import sys

    sys.exit(main())
