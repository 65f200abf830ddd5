"""Figures in the pages are those of the JSON files in docs/bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import WITH_IDS, compare_with_ids

ROOT = Path(__file__).parents[2]
CORES = 2
"""Of the machine that measured. The pages calculate the cost of an event on all of them."""


def rows(part: str) -> list[dict[str, Any]]:
    read = json.loads((ROOT / "docs" / "bench" / f"{part}.json").read_text(encoding="utf-8"))
    assert read["machine"].startswith(f"{CORES} cores, ")
    found = read["rows"]
    assert isinstance(found, list)
    return found


def gib(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB"


def together(row: dict[str, Any]) -> str:
    return gib(row["together_max_mib"])


def largest(row: dict[str, Any]) -> str:
    return gib(row["all_resident_max_mib"])


def micros(row: dict[str, Any]) -> str:
    return f"{CORES * 1e6 / row['validate_events_per_second']:.2g} µs"


[LIVE], [KEYS], [ONCE] = rows("live"), rows("keys"), rows("once")
SHAPES = {row["shape"]: row for row in rows("shapes")}
INTEGERS, UUIDS, PARTS, CELLS = (SHAPES[name] for name in ("integers", "uuids", "parts", "cells"))
ALONE, TEN, IN_ONE = rows("many")
CITED = {
    "docs/kubernetes.md": [
        (
            f"`live`: {LIVE['rate_asked']:,} events/s took {LIVE['sidecar_cores']} cores and {together(LIVE)} "
            f"(sum of peaks: {largest(LIVE)})"
        ),
        (f"`keys`: a million keys in a window took {together(KEYS)} on two cores (sum of peaks: {largest(KEYS)})"),
    ],
    "docs/sizing.md": [
        f"{LIVE['rate_asked']:,} events/s live on two cores, of which the sidecar used {LIVE['sidecar_cores']} (`live`",
        f"{largest(INTEGERS)} (integers), {largest(UUIDS)} (UUIDs) | `shapes`",
        f"{micros(INTEGERS)} of a core | `shapes`, `integers`: {INTEGERS['validate_events_per_second']:,} events/s",
        f"{micros(UUIDS)} | `shapes`, `uuids`",
        f"{micros(PARTS)} | `shapes`, `parts`",
        f"{micros(CELLS)}, event and cell | `shapes`, `cells`",
        (
            f"ten processes take {gib(TEN['pss_mib'])}, {TEN['pss_mib_per_sidecar']} MiB each, against "
            f"{ALONE['pss_mib']} MiB of one alone. Ten in one process take {gib(IN_ONE['pss_mib'])}"
        ),
        f"{gib(ALONE['pss_mib'])} at 120 events/s, and {gib(TEN['pss_mib_per_sidecar'])} as one of ten",
        (
            f"The start of one took {ALONE['all_started_seconds']:.0f} s, "
            f"the start of ten {TEN['all_started_seconds']:.0f} s"
        ),
        f"One sidecar used {ALONE['cores']} cores, and ten processes used {TEN['cores']} cores together",
    ],
    "docs/operations.md": [f"ten of them used {gib(TEN['pss_mib'])}"],
    "README.md": [
        f"The live sidecar keeps up with {LIVE['rate_asked']:,} events/s",
        f"20 million events at {round(ONCE['validate_events_per_second'], -4):,} events/s",
    ],
}


def test_results_without_ids_are_compared_with_ids_of_as_many_cells() -> None:
    assert all(SHAPES[name]["cells"] == SHAPES[with_ids]["cells"] for name, with_ids in WITH_IDS.items())
    again = [{name: value for name, value in row.items() if name != "rate_to_that_of_ids"} for row in SHAPES.values()]
    compare_with_ids(again)
    assert again == list(SHAPES.values())
    assert {row["shape"] for row in again if "rate_to_that_of_ids" in row} == set(WITH_IDS)


@pytest.mark.parametrize("page", CITED)
def test_a_page_cites_the_figures_of_the_benchmarks(page: str) -> None:
    words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert [text for text in CITED[page] if text not in words] == []


def test_the_benchmark_supports_the_claims_of_the_readme() -> None:
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    found = LIVE["missing_found"] + LIVE["duplicate_found"]
    half, most = (LIVE["detection_delay_seconds"][name] for name in ("p50", "max"))
    assert f"of the {found} violations of that minute, it found half within {half:.1f} s" in words
    assert f"and each within {most:.1f} s" in words
    # It keeps up: it never lags by more than a second of the load.
    assert LIVE["lag_events_max_after_warm_up"] < LIVE["rate_asked"]
    assert ONCE["events"] == 20_000_000
