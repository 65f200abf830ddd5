"""The reference engine: ``python -m testbed.engines.reference CONFIG.json [--instance N] [--stop-at-end] ...``.

It keeps the guarantee in its configuration at any kill point; ``core`` explains why. Exit status: 0 after a stop, 1
if it cannot continue (restart it), 2 for an invalid configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from pydantic import ValidationError

from testbed.engines.core import LateEvent, Result
from testbed.engines.job import Job, JobError, OutputPlanner, log
from testbed.engines.mutations import EmittedResult
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import DeliveryError, RetryFromCommitted


def honest(answers: Sequence[Result | LateEvent]) -> Iterable[EmittedResult | LateEvent]:
    """Produce every result unchanged."""
    return [answer if isinstance(answer, LateEvent) else EmittedResult(answer) for answer in answers]


def parse_arguments(arguments: Sequence[str] | None, program: str) -> argparse.Namespace:
    """Parse the command line of both engines."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("config", type=Path, help="JSON file of testbed.engines.settings.EngineSettings")
    parser.add_argument("--instance", type=int, default=0, help="number of this instance in its group")
    parser.add_argument("--stop-at-end", action="store_true", help="read up to the end offsets at start, then exit 0")
    parser.add_argument("--close-at-end", action="store_true", help="with --stop-at-end: close open windows, too")
    return parser.parse_args(arguments)


def run(settings: EngineSettings, arguments: argparse.Namespace, plan: OutputPlanner) -> int:
    """Run one instance to its end; return the exit status."""
    log(f"start {settings.group}-{arguments.instance} guarantee={settings.guarantee} window_ms={settings.window_ms}")
    try:
        job = Job(settings, arguments.instance, plan)
        job.run(stop_at_end=arguments.stop_at_end, close_at_end=arguments.close_at_end)
    except (KafkaException, DeliveryError, JobError, RetryFromCommitted) as error:
        log(f"failed: {error}")
        return 1
    return 0


def read_settings(path: Path) -> EngineSettings:
    """Return the settings in a JSON file. Exits with status 2 and one sentence if they are invalid."""
    try:
        return EngineSettings.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        log(f"{path}: {' '.join(str(error).split())}")
        raise SystemExit(2) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parsed = parse_arguments(arguments, "testbed.engines.reference")
    return run(read_settings(parsed.config), parsed, honest)


if __name__ == "__main__":
    sys.exit(main())
