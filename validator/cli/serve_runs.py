"""Runs of `validate --once` one after another in this process, whose Spark starts once. For the pytest fixture.

Each line of stdin is a request (JSON: ``config``, ``assignments``, ``environment``, ``leave_open``, ``at_rest``), each
line of stdout an answer (``status``, the last ``message``, and whether an error ended the run: ``failed``). Settings
may be secrets, and no other user can read a pipe.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from validator.cli.commands import for_the_owner_only
from validator.cli.exits import sentence_of, status_of
from validator.config.load import load
from validator.config.model import Config
from validator.stream import jars, session
from validator.stream.sidecar import Sidecar


class _Runs:
    """The session that all runs share."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do one run. Returns its exit status and its last line."""
        said = ["it wrote no message"]
        try:
            config = load(Path(asked["config"]), asked["assignments"], asked["environment"])
            run = Sidecar(
                config,
                once=True,
                leave_open=asked["leave_open"],
                at_rest=asked["at_rest"],
                say=said.append,
                session=self._session(config),
            )
            return {"status": run.run(), "message": said[-1], "failed": False}
        except Exception as error:  # noqa: BLE001 - the caller raises it, with its sentence
            return {"status": status_of(error), "message": sentence_of(error), "failed": True}

    def _session(self, config: Config) -> SparkSession:
        if self._spark is None:
            options = {str(name): str(value) for name, value in config.spark.options.items()}
            self._spark = session.start(
                "tests",
                config.spark.master,
                jars.resolve(jars.SIDECAR_LOCK),
                options,
                withheld=config.secret_variables,
                crash_folder=Path(tempfile.gettempdir()),
            )
        return self._spark


def main() -> int:
    """Answer requests until stdin is closed."""
    # Only answers may go to the caller: whatever else prints, prints to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    runs = _Runs()
    with for_the_owner_only():
        for line in sys.stdin:
            print(json.dumps(runs.answer(json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
