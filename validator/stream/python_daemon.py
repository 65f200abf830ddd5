"""PySpark's daemon of Python workers, deaf to the signals that end a whole group of processes.

The sidecar alone acts on SIGTERM and Ctrl-C. A worker that did too would end under a running batch, and Spark would
write a trace of it. The daemon ends when the JVM closes its input, and ends its workers then.
"""

from __future__ import annotations

import signal

from pyspark.daemon import manager

from validator.stream import workers  # noqa: F401  # each worker is forked, and has it without a second of its own

if __name__ == "__main__":
    # Blocked rather than ignored: the daemon and each of its workers set handlers of their own.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    manager()
