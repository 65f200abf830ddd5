"""Waits without a sleep for the end of processes that are not children of this one."""

from __future__ import annotations

import os
import select

import pytest

needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for strangers' ends with Linux's pidfd")


def await_end(pid: int, timeout_seconds: float = 10) -> bool:
    """Whether the process ``pid`` ends within the time limit, reaped or not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_seconds)[0])
    finally:
        os.close(descriptor)
