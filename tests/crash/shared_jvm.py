"""Drivers that share one JVM: Spark starts once, and each run of a sidecar is a fork of the process that started it.

A start of Spark takes most of the processor time of a short run. Here SIGKILL ends the driver only, as the kernel does
when memory is short. Tests that start whole sidecars (`tests/crash/sidecars.py`) kill the JVM as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext

from testbed.checkout import ROOT, python_path
from validator.config.load import load
from validator.stream import jars, session
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATUS: Final = "status "


class SharedJvm:
    """Runs sidecars one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def once(self, config: Path, log: Path, *settings: str, failpoint: str | None = None) -> int:
        """Run `validate --once` to its end; return its exit status, which is -9 if it was killed at ``failpoint``."""
        asked = {"config": str(config), "log": str(log), "settings": settings, "failpoint": failpoint}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        for line in self._process.stdout:  # the JVM writes here, too
            if line.startswith(_STATUS):
                return int(line.removeprefix(_STATUS))
        raise AssertionError("the process with the JVM has ended")


@contextmanager
def shared_jvm(folder: Path) -> Iterator[SharedJvm]:
    """Start the process with the JVM; it ends with the block, or with this process."""
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    with (folder / "jvm.log").open("wb") as log, subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **python_path()}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=log, text=True,
    ) as process:  # fmt: skip
        try:
            yield SharedJvm(process)
        finally:
            process.kill()


def serve() -> None:
    """Start Spark, then fork a driver for each line of stdin."""
    spark = session.start("tests", "local[2]", jars.resolve(jars.SIDECAR_LOCK), {"spark.driver.memory": "1g"})
    for line in sys.stdin:
        driver = os.fork()
        if driver == 0:
            _drive(spark, json.loads(line))
        print(f"{_STATUS}{os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])}", flush=True)


def _drive(spark: SparkSession, asked: dict[str, Any]) -> None:
    """Be the driver of one run. Does not return."""
    if asked["failpoint"] is not None:
        os.environ["STREAMPROOF_FAILPOINT"] = asked["failpoint"]
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = [70]

    def run() -> None:
        # The JVM must call this process, not its parent: a server of its own.
        gateway: Any = SparkContext._gateway
        gateway._callback_server = None
        session._guard_callbacks(gateway)
        for query in spark.streams.active:  # of a driver that was killed
            query.stop()
        status[0] = Sidecar(load(Path(asked["config"]), asked["settings"]), once=True, session=spark).run()

    # Another thread has its own connection to the JVM. The parent's connection may not be used twice.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    os._exit(status[0])
