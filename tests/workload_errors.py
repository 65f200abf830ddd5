"""The errors that mutants make in the results of each workload: tests/e2e/test_workloads.py runs them on a real broker,
and docs/engines.md lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from generator.workloads.kinds import built, named
from generator.workloads.seam import Workload
from testbed.engines.mutations import OF_A_RESULT, Mutation

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
pair, its other id would be wrong, too."""
ONE_KEY: Final = ("nexmark_q5_max", "nexmark_q7")
"""Workloads whose windows have one result, so that no id can be misplaced into another."""
FEW_RESULTS: Final[Mapping[str, float]] = {"nexmark_q3": 0.15, "nexmark_q7": 0.3, "nexmark_q4": 0.3}
"""Workload with so few results that a small share of their ids may be none -> a larger one."""
NO_ERRORS: Final[Errors] = (Mutation.ABORT_RETRY, Mutation.DELAY)
"""What the second mutant also does, and is nothing to find."""
WINDOW_MS: Final = 10_000


def share_of(workload: Workload, mutation: Mutation) -> float:
    """The share of results or ids that a mutation of this workload changes."""
    return 0.15 if mutation in OF_A_RESULT else FEW_RESULTS.get(workload.kind, 0.05)


def first_errors(workload: Workload) -> Errors:
    """The errors of the first mutant."""
    return DAMAGE.get(workload.kind, ONE_OF_EACH_CLASS)


def further_errors(workload: Workload) -> Errors:
    """The other errors that the results of a workload can have."""
    operator = workload.operator(WINDOW_MS).get("operator")
    if operator == "interval":
        return (Mutation.ABORT,)
    if not workload.has_ids:
        return (Mutation.ABORT,) if workload.kind in ONE_KEY else (Mutation.MISPLACE_COPY, Mutation.ABORT)
    # With an event of another session in nearly every result, the gap is in doubt.
    impossible = {"passthrough": {Mutation.SWAP}, "session": {Mutation.MISPLACE_COPY}}.get(str(operator), set())
    if workload.kind in ONE_KEY:
        impossible.add(Mutation.MISPLACE_COPY)
    of_ids = (Mutation.ALTER, Mutation.SWAP, Mutation.MISPLACE_COPY)
    late = (Mutation.LATE_ROUTE,) if has_late_events(workload) else ()
    return (*(one for one in of_ids if one not in impossible), *late, Mutation.ABORT)


def has_late_events(workload: Workload) -> bool:
    """Whether the load of a workload has late events: it has adjacent windows, which list ids, of a generator's
    events."""
    return not (workload.operator(WINDOW_MS) or workload.aggregates or workload.follows)


def listed() -> str:
    """The errors of all workloads, as Markdown."""
    of_errors: dict[Errors, list[str]] = defaultdict(list)
    for kind in built():
        of_errors[(*first_errors(named(kind)), *further_errors(named(kind)))].append(kind)
    lines = [f"- {_names(errors)}: {_names(kinds)}" for errors, kinds in of_errors.items()]
    return "\n".join(lines) + "\n"


def _names(given: tuple[Mutation, ...] | list[str]) -> str:
    return ", ".join(f"`{one}`" for one in given)
