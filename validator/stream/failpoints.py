"""Failpoints: named points at which a test kills the sidecar with SIGKILL.

``STREAMPROOF_FAILPOINT=NAME[:NTH[:TARGET]]``: at the NTH passing of NAME (default 1, the first) kill TARGET, which is
`driver` (this process, the default) or `jvm`. Without this variable failpoints have no effect.
"""

from __future__ import annotations

import os
import signal
from typing import Final

NAMES: Final = (
    "batch_begun",
    "before_facts",
    "after_judging",
    "after_facts",
    "after_violations",
    "after_verdicts",
    "before_publishing",
    "after_publishing",
    "before_rest",
    "after_rest",
    "before_retiring",
    "after_retiring",
    "after_saving",
)
"""The failpoints, in the order in which a batch passes them. A batch at the end of a `--once` run differs.

It passes ``before_rest`` before ``before_facts``, and ``after_rest`` instead of ``after_facts``."""

_passed: dict[str, int] = {}


def reach(name: str) -> None:
    """Pass the failpoint ``name``."""
    assert name in NAMES, name
    wanted = os.environ.get("STREAMPROOF_FAILPOINT")
    if wanted is None:
        return
    target, _, rest = wanted.partition(":")
    nth, _, victim = rest.partition(":")
    if target != name:
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] == int(nth or "1"):
        os.kill(jvm_pid() if victim == "jvm" else os.getpid(), signal.SIGKILL)


def jvm_pid() -> int:
    """Process id of the Spark driver's JVM."""
    # `report` imports modules that pass failpoints, and must not wait for Spark.
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None, "Spark runs"
    return int(gateway.jvm.java.lang.ProcessHandle.current().pid())
