"""The errors that mutants make in the results of each workload: tests/e2e/test_workloads.py runs them on a real broker,
and docs/engines.md lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from generator.workloads.kinds import built, named
from generator.workloads.seam import Workload
from testbed.engines.mutations import Mutation

Errors = tuple[Mutation, ...]

ONE_OF_EACH_CLASS: Final[Errors] = (Mutation.DROP, Mutation.DUPLICATE, Mutation.MISPLACE, Mutation.INVENT)
DAMAGE: Final[Mapping[str, Errors]] = {
    **dict.fromkeys(
        ("nexmark_q5_count", "nexmark_q7", "nexmark_q4", "distinct_count"), (Mutation.DROP, Mutation.DUPLICATE)
    ),
    **dict.fromkeys(
        ("nexmark_q20", "nexmark_q4_bids", "traffic_join"), (Mutation.DROP_CELL, Mutation.DUPLICATE_RESULT)
    ),
    "nexmark_q5_max": (Mutation.DROP, Mutation.DUPLICATE, Mutation.INVENT),
}
"""Other errors than one of each class. Where results have no ids, added ones would hide lost ones. If a result is a
pair, its other id would be wrong, too. A window of `nexmark_q5_max` has one key."""
FEW_RESULTS: Final = ("nexmark_q3", "nexmark_q7", "nexmark_q4")
"""Workloads with so few results that a share of them may be none."""
WINDOW_MS: Final = 10_000


def first_errors(workload: Workload) -> Errors:
    """The errors of the first mutant."""
    return DAMAGE.get(workload.kind, ONE_OF_EACH_CLASS)


def further_errors(workload: Workload) -> Errors:
    """The other errors that the results of a workload can have."""
    operator = workload.operator(WINDOW_MS).get("operator")
    if workload.kind in FEW_RESULTS:
        return ()
    if operator == "interval":
        return (Mutation.ABORT,)
    if not workload.has_ids:
        return (Mutation.MISPLACE_COPY, Mutation.ABORT)
    # With an event of another session in nearly every result, the gap is in doubt.
    impossible = {"passthrough": {Mutation.SWAP}, "session": {Mutation.MISPLACE_COPY}}.get(str(operator), set())
    if Mutation.MISPLACE not in first_errors(workload):
        impossible.add(Mutation.MISPLACE_COPY)
    return tuple(
        one for one in (Mutation.ALTER, Mutation.SWAP, Mutation.MISPLACE_COPY, Mutation.ABORT) if one not in impossible
    )


def listed() -> str:
    """The errors of all workloads, as Markdown."""
    of_errors: dict[Errors, list[str]] = defaultdict(list)
    for kind in built():
        of_errors[(*first_errors(named(kind)), *further_errors(named(kind)))].append(kind)
    lines = [f"- {_names(errors)}: {_names(kinds)}" for errors, kinds in of_errors.items()]
    return "\n".join(lines) + "\n"


def _names(given: tuple[Mutation, ...] | list[str]) -> str:
    return ", ".join(f"`{one}`" for one in given)
