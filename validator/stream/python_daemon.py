"""PySpark's daemon of Python workers, with SIGTERM and SIGINT blocked.

These signals may be sent to the whole process group, but only the sidecar acts on them. A worker that acted on them
would end during a batch, and Spark would write a stack trace. The daemon ends, and ends its workers, when the JVM
closes its input.
"""

from __future__ import annotations

import signal

from pyspark.daemon import manager

from validator.stream import workers  # noqa: F401  # imported once here: each worker is a fork of this process

if __name__ == "__main__":
    # Blocked rather than ignored: the daemon and its workers set handlers for these signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    manager()
