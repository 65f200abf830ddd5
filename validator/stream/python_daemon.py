"""PySpark's daemon of Python workers, with SIGTERM and SIGINT blocked.

These signals may be sent to the whole process group, but only the sidecar acts on them. A worker that acted on them
would end during a batch, and Spark would write a stack trace. The daemon ends, and ends its workers, when the JVM
closes its input.
"""

from __future__ import annotations

import os
import signal
import socket

from pyspark import daemon

from validator.stream import workers  # noqa: F401  # imported once here: each worker is a fork of this process

_serve = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001  # PySpark's signature
    """Serve one task of the JVM. If the JVM has ended, end without the trace that PySpark would write to the
    terminal."""
    try:
        code: int = _serve(sock, authenticated)
    except ConnectionError:
        os._exit(1)
    return code


if __name__ == "__main__":
    # Blocked rather than ignored: the daemon and its workers set handlers for these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    daemon.worker = worker
    daemon.manager()
