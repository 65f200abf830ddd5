"""``scripts/bench campaign [NAME|PLAN]``: a campaign that survives its terminal and resumes where it stopped.

NAME is a plan in bench/plans (default: pgval). A campaign that was interrupted or killed is resumed.
``python -m bench.campaign write`` writes the tables again from the results; ``check`` compares them.
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
    """The committed tables that differ from the result files beside them, one sentence each."""
    wrong = []
    for path in sorted(PLANS.glob("*.yaml")):
        plan = load(path)
        if not (plan.results / FILE).exists():
            continue
        for name, text in formats.rendered(build_table(plan)).items():
            kept = plan.results / name
            if not kept.exists() or kept.read_text(encoding="utf-8") != text:
                shown = kept.resolve().relative_to(ROOT)
                wrong.append(f"{shown} differs from the results of its runs; run python -m bench.campaign write")
    return wrong


def write() -> None:
    """Write the table of each plan that has results, from its result files."""
    for path in PLANS.glob("*.yaml"):
        plan = load(path)
        if (plan.results / FILE).exists():
            formats.write(plan.results, build_table(plan))


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


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        write()
    for sentence in (found := check()):
        print(sentence, file=sys.stderr)
    sys.exit(1 if found else 0)
