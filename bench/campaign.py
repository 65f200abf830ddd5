"""``scripts/bench campaign [NAME|PLAN ...]``: campaigns that survive their terminal and resume where they stopped.

NAME is a plan in bench/plans (default: pgval). Several plans run one after another, also if runs of one have no
result. A campaign that was interrupted or killed is resumed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from testbed.campaign.plan import PlanError, load
from testbed.checkout import ROOT, python_path, streamproof
from validator.cli.parser import port

PLANS: Final = ROOT / "bench" / "plans"
DEFAULT: Final = "pgval"
LOG: Final = "campaign.log"
COMMAND: Sequence[str] = (sys.executable, "-m", "bench")
_REFUSED: Final = 2
_KILLED: Final = 128
_INTERRUPTED: Final = 130


def main(arguments: Sequence[str]) -> int:
    """Start the campaign and return, or with ``--wait`` run it in the foreground; the exit status."""
    names = ", ".join(sorted(path.stem for path in PLANS.glob("*.yaml")))
    parser = argparse.ArgumentParser(prog="scripts/bench campaign", description=__doc__)
    parser.add_argument("plan", nargs="*", help=f"some of {names}, or files (default: {DEFAULT})")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help="as in streamproof campaign")
    parser.add_argument("--scale", metavar="NAME", help="as in streamproof campaign")
    parser.add_argument("--metrics-port", type=port, metavar="PORT", help="as in streamproof campaign")
    parser.add_argument("--wait", action="store_true", help="run in the foreground")
    given = parser.parse_args(arguments)
    paths = [path_of(name) for name in given.plan or [DEFAULT]]
    try:
        folders = [load(path, given.scale).results for path in paths]
    except PlanError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if not given.wait:
        return _detach([*COMMAND, "campaign", *arguments, "--wait"], folders)
    options = [part for text in given.only for part in ("--only", text)]
    options += [] if given.scale is None else ["--scale", given.scale]
    options += [] if given.metrics_port is None else ["--metrics-port", str(given.metrics_port)]
    commands = [streamproof("campaign", path, "--resume", *options) for path in paths]
    return _in_turn(commands)


def path_of(name: str) -> Path:
    """The path of a plan: one of ours, or a file."""
    named = PLANS / f"{name}.yaml"
    return named if named.exists() else Path(name).absolute()


def _in_turn(commands: Sequence[Sequence[str | Path]]) -> int:
    """Run the commands; the highest exit status. A signal, a campaign that a signal ended, and one that is refused end
    all."""
    status = 0
    for command in commands:
        process = subprocess.Popen(command, cwd=ROOT)
        signal.signal(signal.SIGTERM, partial(_pass_on, process))
        # Ctrl-C reaches the campaign by itself, which then removes what it has started.
        signal.signal(signal.SIGINT, _pass_by)
        ended = process.wait()
        if ended < 0:
            print(f"bench: signal {-ended} ended the campaign: {shlex.join(map(str, command))}", file=sys.stderr)
            return _KILLED - ended
        if ended in (_REFUSED, _INTERRUPTED):
            return ended
        status = max(status, ended)
    return status


def _pass_on(process: subprocess.Popen[bytes], number: int, frame: object) -> None:
    del number, frame
    process.terminate()


def _pass_by(number: int, frame: object) -> None:
    del number, frame


def _detach(command: Sequence[str | Path], folders: Sequence[Path]) -> int:
    folders[0].mkdir(parents=True, exist_ok=True)
    log = folders[0] / LOG
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT,
            env={**os.environ, **python_path()},
        )  # fmt: skip
    print(f"The campaign runs as process {process.pid} and continues without this terminal.")
    tables = ", ".join(str(folder / "table.md") for folder in folders)
    print(f"Progress: tail -f {log}\nTables so far: {tables}\nTo end it: kill {process.pid}")
    print("The same command resumes a campaign that has ended; while it runs, a second one is refused.")
    return 0
