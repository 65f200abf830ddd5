"""``scripts/bench campaign [NAME|PLAN]``: a campaign that survives its terminal and resumes where it stopped.

NAME is a plan in bench/plans (default: pgval). A campaign that was interrupted or killed is resumed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testbed.campaign.plan import PlanError, load
from testbed.checkout import ROOT, python_path, streamproof

PLANS: Final = ROOT / "bench" / "plans"
DEFAULT: Final = "pgval"
LOG: Final = "campaign.log"


def main(arguments: Sequence[str]) -> int:
    """Start the campaign and return, or with ``--wait`` run it in the foreground; the exit status."""
    names = ", ".join(sorted(path.stem for path in PLANS.glob("*.yaml")))
    parser = argparse.ArgumentParser(prog="scripts/bench campaign", description=__doc__)
    parser.add_argument("plan", nargs="?", default=DEFAULT, help=f"one of {names}, or a file (default: {DEFAULT})")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help="as in streamproof campaign")
    parser.add_argument("--wait", action="store_true", help="run in the foreground")
    given = parser.parse_args(arguments)
    named = PLANS / f"{given.plan}.yaml"
    path = named if named.exists() else Path(given.plan).absolute()
    try:
        folder = load(path).results
    except PlanError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    command = streamproof("campaign", path, "--resume", *(part for text in given.only for part in ("--only", text)))
    if given.wait:
        return subprocess.run(command, check=False, cwd=ROOT).returncode
    return _detach(command, folder)


def _detach(command: Sequence[str | Path], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, cwd=ROOT,
            env={**os.environ, **python_path()},
        )  # fmt: skip
    print(f"The campaign runs as process {process.pid} and continues without this terminal.")
    print(f"Progress: tail -f {log}\nTable so far: {folder / 'table.md'}\nTo end it: kill {process.pid}")
    print("The same command resumes a campaign that has ended; while it runs, a second one is refused.")
    return 0
