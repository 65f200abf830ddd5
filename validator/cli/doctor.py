"""`streamproof doctor`: prints a line per check with `ok`, `note` or `problem`. Each problem says how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from validator.cli.check_result import CheckResult
from validator.cli.exits import PASS, UNKNOWN
from validator.config.model import Config
from validator.model.terminal import plain


def run(config: Config | None, stream: TextIO) -> int:
    """Check this machine, and with ``config`` its pipeline. Returns exit status 0, or 3 if there is a problem."""
    from validator.cli import machine

    problems = print_findings(machine.check(), stream)
    if config is not None:
        from validator.cli import pipeline

        problems += print_findings(pipeline.check(config), stream)
    if problems:
        stream.write(f"\n{problems} {'problem' if problems == 1 else 'problems'} to fix.\n")
    return UNKNOWN if problems else PASS


def print_findings(findings: Iterable[CheckResult], stream: TextIO) -> int:
    """Write each finding as soon as it is available. Returns the number of problems."""
    problems = 0
    for finding in findings:
        stream.write(plain(f"{finding.status:<9}{finding.subject:<20}  {finding.text}") + "\n")
        stream.flush()
        problems += finding.status == "problem"
    return problems
