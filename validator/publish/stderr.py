"""Lines on stderr. A closed pipe or a full disk never ends the command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from validator.model.terminal import plain


def to_stderr(line: str) -> None:
    """Print ``line``, escaped by `plain`, on stderr. A closed pipe (``2>&1 | head``) or a full disk is ignored."""
    with suppress(OSError):
        print(plain(line), file=sys.stderr, flush=True)


def release_stderr() -> None:
    """If stderr cannot be written to, discard its buffer. Otherwise Python would exit with its own status (120)."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stderr.fileno())
            os.close(null)
