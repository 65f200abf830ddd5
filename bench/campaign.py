"""``scripts/bench campaign [NAME|PLAN]``: a campaign that goes on when the terminal is closed, and where it ended.

NAME is a plan in bench/plans (pgval if none is named). A campaign that was interrupted or killed is resumed.
``python -m bench.campaign write`` writes the tables anew from the results, with ``check`` it compares.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testbed.campaign import formats
from testbed.campaign.command import build_table
from testbed.campaign.journal import FILE
from testbed.campaign.plan import PlanError, load
from testbed.checkout import ROOT, python_path, streamproof

PLANS: Final = ROOT / "bench" / "plans"
DEFAULT: Final = "pgval"
LOG: Final = "campaign.log"


def check() -> list[str]:
    """What of the committed tables is not what the result files beside them say, one sentence each."""
    wrong = []
    for path in sorted(PLANS.glob("*.yaml")):
        plan = load(path)
        if not (plan.results / FILE).exists():
            continue
        for name, text in formats.rendered(build_table(plan)).items():
            kept = plan.results / name
            if not kept.exists() or kept.read_text(encoding="utf-8") != text:
                shown = kept.resolve().relative_to(ROOT)
                wrong.append(f"{shown} is not what its runs say: python -m bench.campaign write")
    return wrong


def write() -> None:
    """Write the tables of all plans that have results, from their result files."""
    for path in PLANS.glob("*.yaml"):
        plan = load(path)
        if (plan.results / FILE).exists():
            formats.write(plan.results, build_table(plan))


def main(arguments: Sequence[str]) -> int:
    """Start it and return, or with ``--wait`` do it here; the exit status."""
    names = ", ".join(sorted(path.stem for path in PLANS.glob("*.yaml")))
    parser = argparse.ArgumentParser(prog="scripts/bench campaign", description=__doc__)
    parser.add_argument("plan", nargs="?", default=DEFAULT, help=f"one of {names}, or a file (default: {DEFAULT})")
    parser.add_argument("--only", action="append", default=[], metavar="KEY=VALUE", help="as in streamproof campaign")
    parser.add_argument("--wait", action="store_true", help="do it here, not detached")
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
    print(f"The campaign runs as process {process.pid} and goes on without this terminal.")
    print(f"What it does: tail -f {log}\nIts table so far: {folder / 'table.md'}\nTo end it: kill {process.pid}")
    print("The same command again goes on where it ended; a second one beside it is refused.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    for sentence in (found := check()):
        print(sentence, file=sys.stderr)
    sys.exit(1 if found else 0)
